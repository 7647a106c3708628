"""The doctor's findings on hosts whose files lie in tests/hosts: each names the cause and the fix."""

import socket
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from packaging.version import Version

from imagebuilder.doctor import Facts, Finding, examine, stops_a_build
from imagebuilder.doctor.gpu import fact_of
from imagebuilder.host import Host, HostGpu, this_host
from imagebuilder.host.daemon import read_daemon
from imagebuilder.host.machine import Disk, find_program, read_machine
from imagebuilder.host.reach import Answer, probe, together, without_credentials
from imagebuilder.host.toolkit import read_toolkit
from imagebuilder.matrix.facts import CudaMajor, DriverBranch, Floor, Gpu, Matrix
from imagebuilder.matrix.words import Capability, Cuda, Driver

HOSTS = Path(__file__).parents[1] / "hosts"
GIB = 1024**3
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def _gpu(capability: str, kind: str = "datacenter", last: int | None = None, **more: object) -> Gpu:
    return Gpu(
        capability=Capability.parse(capability),
        arch="-",
        kind=kind,  # type: ignore[arg-type]
        tensor_cores=(),
        amp="-",
        cuda_first=Cuda.parse("9.0"),
        forward_compat="no: error 804" if kind == "geforce" else "yes",
        driver_branch_last=last,
        **more,  # type: ignore[arg-type]
    )


MATRIX = Matrix(
    schema=1,
    sources={},
    cuda_majors={
        "11": CudaMajor(driver_min=Driver.parse("450.80.02")),
        "12": CudaMajor(driver_min=Driver.parse("525.60.13")),
        "13": CudaMajor(driver_min=Driver.parse("580.65.06")),
    },
    toolkits={},
    code_runs_on={},
    gpus={
        "V100": _gpu("7.0", last=580),
        "T4": _gpu("7.5"),
        "A100": _gpu("8.0"),
        "A10": _gpu("8.6"),
        "GeForce RTX 30 series": _gpu("8.6", "geforce", aliases=("RTX 3090",)),
        "RTX A6000": _gpu("8.6", "workstation"),
        "L4": _gpu("8.9"),
        "H100": _gpu("9.0"),
    },
    driver_branches={
        "535": DriverBranch(kind="LTSB", eol="2026-06"),
        "580": DriverBranch(kind="LTSB", eol="2028-06"),
    },
    cudnn={},
    nccl={},
    bases={},
    gone={},
    packages={},
    clashes=(),
    floors={
        "toolkit-wsl": Floor(
            program="nvidia-container-toolkit",
            version=Version("1.14.4"),
            why="drivers from 555 on need a library that older toolkits do not mount",
            src="t",
        )
    },
    frameworks={},
)
INDEX = Answer(url="https://index.test/simple/", status=200, date=NOW)
HUB = Answer(url="https://registry.test/v2/", status=401, date=NOW)


def facts_of(name: str, **changes: object) -> Facts:
    """Read a host of tests/hosts; the network answers and the disk is empty unless changed."""
    root = HOSTS / name
    facts = Facts(
        host=this_host(root),
        machine=replace(read_machine(root), superuser=False),
        toolkit=read_toolkit(root),
        daemon=read_daemon(find_program(root, "docker")),
        disks=(Disk(purpose="images", folder=Path("/var/lib/docker"), free_bytes=100 * GIB, device=1),),
        index=INDEX,
        registry=HUB,
        now=NOW,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


def judge(facts: Facts) -> dict[str, Finding]:
    """Give the findings by id, which must be unique."""
    findings = examine(facts, MATRIX, need_bytes=20 * GIB)
    by_id = {one.id: one for one in findings}
    assert len(by_id) == len(findings)
    return by_id


def gpu_problems(found: dict[str, Finding]) -> dict[str, str]:
    """Give the ids and states of all findings on GPUs that are not well."""
    return {one.id: one.status for one in found.values() if one.needed_for == "gpu" and one.status != "ok"}


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTS.iterdir()))
def test_every_problem_says_what_to_do(name: str) -> None:
    """On every host each finding has words, and each warning or failure a fix."""
    for one in judge(facts_of(name)).values():
        assert one.what
        assert not one.what.endswith(".")
        if one.status in {"warn", "fail"}:
            assert one.fix, one


@pytest.mark.parametrize("name", sorted(path.name for path in HOSTS.iterdir()))
def test_no_gpu_problem_stops_a_build(name: str) -> None:
    """Images are built without a GPU: no state of driver or toolkit stops that."""
    found = judge(facts_of(name))
    stopped = stops_a_build(tuple(found.values()))
    assert stopped == (name in {"nouveau", "plain", "old-store"})  # no engine, or one without the store


def test_v100_host_with_470_runs_cuda_11_alone() -> None:
    """The driver's floor per CUDA major says which images start there, before one is pulled."""
    found = judge(facts_of("v100"))
    assert found["gpu"].what == (
        "Tesla V100-SXM2-16GB (compute capability 7.0), Tesla V100-SXM2-16GB (compute capability 7.0)"
    )
    assert found["cuda"].what == (
        "driver 470.256.02 runs images of CUDA 11.x, not of CUDA 12.x (from driver 525.60.13),"
        " 13.x (from driver 580.65.06)"
    )
    assert found["driver-last"].what == "R580 is the last driver branch for Tesla V100-SXM2-16GB"


def test_legacy_hook_under_systemd_is_warned_of() -> None:
    """GPUs that vanish hours later (`NVML: Unknown Error`) are foretold; CDI mends it."""
    found = judge(facts_of("v100"))["cgroups"]
    assert found.status == "warn"
    assert "Unknown Error" in (found.why or "")
    assert "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml" in (found.fix or "")


def test_two_gpus_with_the_default_shm_are_warned_of() -> None:
    """64 MB of /dev/shm is too little for NCCL; the run line that helps is given."""
    found = judge(facts_of("v100"))["shm"]
    assert found.status == "warn"
    assert "--shm-size" in (found.fix or "")


def test_geforce_has_no_forward_compatibility() -> None:
    """Error 804 is foretold on GPUs whose row says so, and on no other."""
    assert judge(facts_of("geforce"))["forward-compat"].what.endswith("NVIDIA GeForce RTX 3090")
    assert "forward-compat" not in judge(facts_of("v100"))


def test_missing_toolkit_names_dockers_own_error() -> None:
    """`could not select device driver` is explained by the missing toolkit, with the way to install it."""
    found = judge(facts_of("geforce"))["toolkit"]
    assert found.status == "fail"
    assert 'could not select device driver ""' in (found.why or "")
    assert "apt-get install -y nvidia-container-toolkit" in (found.fix or "")
    assert "sudo systemctl restart docker" in (found.fix or "")


def test_fixes_fit_the_host() -> None:
    """Without systemd the service command is used, and root needs no sudo."""
    facts = facts_of("no-toolkit")
    assert "sudo service docker restart" in (judge(facts)["toolkit"].fix or "")
    root = replace(facts, machine=replace(facts.machine, superuser=True))
    assert "sudo" not in (judge(root)["toolkit"].fix or "sudo")


def test_toolkit_without_a_runtime_is_told_to_docker() -> None:
    """Installed but unknown to Docker is another cause than not installed."""
    facts = facts_of("mismatch")
    facts = replace(facts, daemon=replace(facts.daemon, runtimes=("runc",)))
    assert "nvidia-ctk runtime configure --runtime=docker" in (judge(facts)["toolkit"].fix or "")
    known = replace(facts.machine, daemon_config={"runtimes": {"nvidia": {}}})
    assert judge(replace(facts, machine=known))["toolkit"].fix == "sudo systemctl restart docker"


def test_driver_upgraded_without_a_reboot_is_named() -> None:
    """`Driver/library version mismatch` is told by both versions; the image is not blamed."""
    found = judge(facts_of("mismatch"))["driver-library"]
    assert found.what == "the running driver is 535.104.05, the libraries on disk are 535.230.02"
    assert "no image can mend this" in (found.why or "")
    assert found.fix == "sudo reboot"


def test_missing_uvm_device_is_named() -> None:
    """CUDA fails although nvidia-smi works: the device is missing."""
    found = judge(facts_of("no-uvm"))["uvm"]
    assert (found.status, found.fix) == ("fail", "sudo nvidia-modprobe -u -c=0")


def test_old_toolkit_on_wsl2_is_named() -> None:
    """Error 500 on WSL2 comes from a toolkit below the floor that the matrix holds."""
    found = judge(facts_of("wsl2"))["wsl"]
    assert found.what == "container toolkit 1.14.2 on WSL2, 1.14.4 or newer is needed"
    assert "named symbol not found" in (found.why or "")


def test_mig_is_a_reason_to_skip_not_a_fault() -> None:
    """MIG instances are warned of because NCCL does not run across them."""
    found = judge(facts_of("mig"))
    assert found["mig"].status == "warn"
    assert "NCCL" in (found["mig"].why or "")


def test_mig_mode_without_instances_is_a_fault() -> None:
    """A GPU in MIG mode without an instance shows no CUDA device."""
    facts = facts_of("mig")
    gpus = (replace(facts.host.gpus[0], mig=True),)
    found = judge(replace(facts, host=replace(facts.host, gpus=gpus, mig_instances=0)))
    assert found["mig"].status == "fail"


def test_cdi_alone_is_enough() -> None:
    """An engine that finds the GPUs by CDI needs no runtime of NVIDIA's."""
    found = judge(facts_of("cdi-only"))
    assert gpu_problems(found) == {}
    assert found["toolkit"].what == "container toolkit 1.17.8; Docker gives GPUs by CDI"
    assert found["cdi"].what == "/etc/cdi/nvidia.yaml: cdiVersion 0.5.0, 2 devices"


def test_stale_cdi_specification_is_named() -> None:
    """A specification of the former driver is told by the versions of the files it mounts."""
    found = judge(facts_of("stale-cdi"))["cdi"]
    assert found.status == "fail"
    assert found.what == "/var/run/cdi/nvidia.yaml mounts files of driver 570.133.20, but 580.65.06 runs"
    assert "nvidia-ctk cdi generate" in (found.fix or "")


def test_cdi_specification_that_the_engine_rejects_is_named() -> None:
    """A cdiVersion that the engine does not know leaves it without devices."""
    found = judge(facts_of("rejected-cdi"))["cdi"]
    assert found.status == "fail"
    assert "cdiVersion 1.1.0" in found.what


def test_cdi_specification_for_an_engine_that_reads_none() -> None:
    """An engine with the feature off gets the setting, everything else in daemon.json kept."""
    facts = facts_of("cdi-only")
    machine = replace(facts.machine, daemon_config={"data-root": "/data", "features": {"a": True}})
    daemon = replace(facts.daemon, cdi_folders=(), cdi_devices=None)
    found = judge(replace(facts, daemon=daemon, machine=machine))["cdi"]
    assert '{"data-root": "/data", "features": {"a": true, "cdi": true}}' in (found.fix or "")


def test_rootless_docker_with_the_legacy_hook() -> None:
    """The hook may not touch device cgroups there: the setting is named."""
    found = judge(facts_of("rootless"))["rootless"]
    assert found.status == "fail"
    assert "nvidia-container-cli.no-cgroups" in (found.fix or "")


def test_nvswitches_without_fabric_manager() -> None:
    """Error 802 is a matter of the host's fabric manager: the service to start is named."""
    found = judge(facts_of("hgx"))["fabric"]
    assert found.status == "fail"
    assert "802" in (found.why or "")
    assert "systemctl enable --now nvidia-fabricmanager" in (found.fix or "")
    up = replace(facts_of("hgx").host, fabric_manager=True)
    assert judge(facts_of("hgx", host=up))["fabric"].status == "ok"


def test_infiniband_with_little_locked_memory() -> None:
    """RDMA in containers needs the limit lifted; the run line that does is given."""
    found = judge(facts_of("hgx"))["memlock"]
    assert "8192 KiB" in found.what
    assert "--ulimit memlock=-1 --cap-add IPC_LOCK --device /dev/infiniband" in (found.fix or "")


def test_nouveau_is_named() -> None:
    """A GPU without NVIDIA's driver is told, with what drives it instead."""
    found = judge(facts_of("nouveau"))
    assert found["gpu"].status == "fail"
    assert "nouveau" in (found["driver"].why or "")
    assert "ubuntu-drivers install --gpgpu" in (found["driver"].fix or "")


def test_driver_newer_than_the_gpus_last_branch() -> None:
    """A driver past the last branch of a GPU loses it."""
    gpus = (HostGpu(name="Tesla V100-SXM2-16GB", uuid="GPU-1"),)
    host = replace(facts_of("outgrown").host, gpus=gpus)
    found = judge(facts_of("outgrown", host=host))["driver-last"]
    assert found.status == "fail"
    assert "R580 is the last branch" in found.what
    assert judge(facts_of("outgrown"))["gpu"].status == "fail"


def test_branch_without_updates_is_warned_of() -> None:
    """A branch past its end is told with the month; one before it is not."""
    assert judge(facts_of("mismatch"))["driver-branch"].status == "warn"
    june = facts_of("mismatch", now=datetime(2026, 6, 30, tzinfo=UTC))
    assert "driver-branch" not in judge(june)


def test_host_without_gpu_skips_with_the_reason() -> None:
    """No GPU is no fault: three findings say skip."""
    found = judge(facts_of("plain"))
    assert gpu_problems(found) == {"gpu": "skip", "driver": "skip", "toolkit": "skip"}


def test_gpus_are_known_by_name_then_by_capability() -> None:
    """Names as drivers print them find their row; an unknown name is found by its capability."""

    def key(name: str) -> str | None:
        fact = fact_of(HostGpu(name=name, uuid="-"), MATRIX)
        return next((key for key, row in MATRIX.gpus.items() if row is fact), None)

    assert key("Tesla V100-SXM2-16GB") == "V100"
    assert key("NVIDIA GeForce RTX 3090") == "GeForce RTX 30 series"
    assert key("NVIDIA RTX A6000") == "RTX A6000"
    assert key("NVIDIA A10") == "A10"
    assert key("NVIDIA A100-SXM4-80GB") == "A100"
    assert key("NVIDIA New Thing") is None
    volta = fact_of(HostGpu(name="NVIDIA New Thing", uuid="-", capability=Capability.parse("7.0")), MATRIX)
    assert volta is not None
    assert volta.driver_branch_last == 580


# ------------------------------------------------------------------ what a build needs


def test_no_engine_stops_a_build() -> None:
    """No docker command: the fix installs one."""
    found = judge(facts_of("plain"))
    assert (found["engine"].status, found["engine"].what) == ("fail", "Docker is not installed")
    assert "get.docker.com | sudo sh" in (found["engine"].fix or "")
    assert found["buildx"].status == "fail"


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("permission denied while trying to connect to the Docker daemon socket", "usermod -aG docker"),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock",
            "systemctl enable --now docker",
        ),
        ("Cannot connect to the Docker daemon at tcp://10.0.0.1:2375", "unset DOCKER_HOST"),
    ],
)
def test_an_engine_that_does_not_answer(error: str, fix: str) -> None:
    """Not started, not permitted and looked for elsewhere are told apart."""
    daemon = replace(facts_of("geforce").daemon, version=None, error=error)
    found = judge(facts_of("geforce", daemon=daemon))["engine"]
    assert found.status == "fail"
    assert found.why == error
    assert fix in (found.fix or "")


def test_engine_without_containerd_store() -> None:
    """The setting is added to what daemon.json already holds."""
    found = judge(facts_of("old-store"))["store"]
    assert found.status == "fail"
    assert '{"log-driver": "local", "features": {"cdi": true, "containerd-snapshotter": true}}' in (
        found.fix or ""
    )


def test_engine_without_buildx() -> None:
    """Buildx is needed for every build."""
    facts = facts_of("geforce")
    assert judge(replace(facts, daemon=replace(facts.daemon, buildx=None)))["buildx"].status == "fail"


def test_too_small_a_disk_is_refused_with_numbers() -> None:
    """The free bytes are held against what a build fills, disk by disk."""
    images = Disk(purpose="images", folder=Path("/var/lib/docker"), free_bytes=3 * GIB, device=1)
    cache = Disk(purpose="downloads", folder=Path("/home/u/.cache"), free_bytes=30 * GIB, device=2)
    found = judge(facts_of("geforce", disks=(images, cache)))
    assert found["disk"].status == "fail"
    assert found["disk"].what == ("3.0 GiB free for images (/var/lib/docker), but a build fills up to 20 GiB")
    assert found["disk-2"].status == "ok"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(url="https://i.test/", trouble="tls", detail="self-signed certificate"), "SSL_CERT_FILE"),
        (Answer(url="https://i.test/", trouble="name"), "HTTPS_PROXY"),
        (
            Answer(url="https://i.test/", trouble="proxy", proxy="http://p:1", status=407),
            "env | grep -i proxy",
        ),
        (Answer(url="https://i.test/", trouble="status", status=503), "curl -sSI https://i.test/"),
        (None, "HTTPS_PROXY"),
    ],
)
def test_an_index_that_cannot_be_used_stops_a_build(answer: Answer | None, words: str) -> None:
    """Certificate, name, proxy and service are different causes with different fixes."""
    unanswered = ("index",) if answer is None else ()
    found = judge(facts_of("geforce", index=answer, unanswered=unanswered))["index"]
    assert found.status == "fail"
    assert words in (found.fix or "")


def test_registry_or_bootstrap_is_enough() -> None:
    """Only the lack of both stops a build."""
    facts = facts_of("geforce", registry=Answer(url="https://r.test/v2/", trouble="name"))
    assert judge(facts)["registry"].status == "fail"
    bootstrap = replace(facts, machine=replace(facts.machine, mmdebstrap=Path("/usr/bin/mmdebstrap")))
    assert judge(bootstrap)["registry"].status == "warn"
    assert not stops_a_build(tuple(judge(bootstrap).values()))


def test_pull_limit_is_named() -> None:
    """HTTP 429 of a registry is its pull limit, and logging in lifts it."""
    answer = Answer(url="https://r.test/v2/", trouble="status", status=429, detail="HTTP 429")
    facts = facts_of("geforce", registry=answer)
    found = judge(replace(facts, machine=replace(facts.machine, mmdebstrap=Path("/m"))))["registry"]
    assert "toomanyrequests" in (found.why or "")
    assert found.fix == "docker login"


def test_engine_without_the_proxy_of_this_shell() -> None:
    """The engine pulls by itself: a proxy that only this shell knows does not help it."""
    via = Answer(url="https://r.test/v2/", status=401, proxy="http://proxy.test:3128")
    facts = facts_of("geforce", registry=via)
    found = judge(facts)["engine-proxy"]
    assert found.status == "warn"
    assert '"https-proxy": "http://proxy.test:3128"' in (found.fix or "")
    knows = replace(facts, daemon=replace(facts.daemon, proxy="http://proxy.test:3128"))
    assert "engine-proxy" not in judge(knows)


def test_clock_that_is_off_is_warned_of() -> None:
    """The servers' clock is the reference."""
    assert judge(facts_of("geforce"))["clock"].status == "ok"
    found = judge(facts_of("geforce", now=NOW + timedelta(hours=2)))["clock"]
    assert (found.status, found.what) == ("warn", "the clock is 120 minutes ahead")


# ------------------------------------------------------------------ asking


def test_an_address_without_a_name_is_told() -> None:
    """A name that cannot be resolved is a trouble of its own."""
    assert probe("https://no-such-host.invalid/simple/").trouble in {"name", "proxy"}


def test_a_port_without_a_service_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused connection is told apart from a name that is not known."""
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    assert probe(f"http://127.0.0.1:{port}/").trouble == "connection"


def test_a_silent_service_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that accepts and never answers costs its limit and no more."""
    monkeypatch.setenv("no_proxy", "*")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        answer = probe(f"http://127.0.0.1:{silent.getsockname()[1]}/", seconds=0.3)
    assert answer.trouble == "timeout"
    assert time.monotonic() - started < 2


def test_a_folder_as_index_is_looked_for_on_disk(tmp_path: Path) -> None:
    """An index on disk answers when it is there."""
    assert probe(tmp_path.as_uri()).reached
    assert not probe((tmp_path / "none").as_uri()).reached


def test_a_question_that_hangs_is_left_behind() -> None:
    """All questions together take no longer than the limit; answers that came are kept."""
    never = Event()
    started = time.monotonic()
    answers = together({"fast": lambda: True, "hangs": lambda: never.wait(5)}, seconds=0.3)
    assert answers == {"fast": True}
    assert time.monotonic() - started < 2
    never.set()


def test_credentials_in_an_address_are_never_shown() -> None:
    """User and password of an index or proxy do not reach a report."""
    assert (
        without_credentials("https://user:secret@index.test:8443/simple/")
        == "https://index.test:8443/simple/"
    )
    assert "secret" not in repr(probe("https://user:secret@no-such-host.invalid/"))


def test_an_empty_host_gives_findings() -> None:
    """Facts of which nothing could be read are judged without an exception."""
    assert judge(Facts(now=NOW, unanswered=("host", "daemon", "toolkit", "index")))
    assert judge(Facts(now=NOW, host=Host(nvml_error="the driver did not answer in time")))
