"""Build time and size of an image beside the Dockerfile that most people write, as ratios in one run.

    python benchmarks/image.py [--prune] [--json]

Runs the `imgbuild` beside this interpreter and the `docker` on PATH; takes about ten minutes and 30 GB of
disk. Cold means: no base, no lock, `--no-cache`. Wheels that earlier builds downloaded stay in the engine's
cache mounts, which helps imgbuild alone; `--prune` removes the mounts first, of all builds on this engine.
Exit code 1: a budget was missed; 2: imgbuild or docker is not there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

IMGBUILD = Path(sys.executable).parent / "imgbuild"
NAME = "imgbuild-benchmark"
BUILD = ("build", "--framework", "pytorch", "--cuda", "12.1", "--progress", "plain", "--format", "json")
# Three small packages that nothing in the stack needs; the last one is the line that changes.
REQUIREMENTS = "tqdm==4.66.5\ntabulate==0.9.0\neinops==0.8.{}\n"
REPEATS = 5
# Both install without their own caches and without apt's lists: what a careful person writes.
PLAIN = """
FROM scratch AS base
ADD base.tar /
FROM base
ENV DEBIAN_FRONTEND=noninteractive
RUN apt-get update && apt-get install -y python3 python3-pip && rm -rf /var/lib/apt/lists/*
RUN --mount=type=secret,id=ca if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi; \\
    pip install --no-cache-dir --break-system-packages torch==2.4.1 numpy
"""
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")
BUDGETS = {"no_change_to_cold": 0.03, "one_line_to_cold": 0.15, "bytes_to_plain": 0.80, "cli_peak_mib": 150}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of imgbuild: seconds until the image was built, and until it was tested and tagged too."""

    built_s: float
    whole_s: float
    cli_peak_mib: float
    reused: bool
    digest: str
    reference: str


def imgbuild(folder: Path, *words: str) -> Run:
    """Run `imgbuild build` in a folder with a cache of its own; SystemExit with its words where it fails."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as answer:
        process = subprocess.Popen(
            [str(IMGBUILD), *BUILD, *words],
            cwd=folder,
            env=environment,
            stdout=answer,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        built, peak, told = _follow(process.pid, process.stderr, begun)
        if process.wait():
            raise SystemExit(told)
        whole = time.perf_counter() - begun
        answer.seek(0)
        document = json.load(answer)
    return Run(
        built_s=built,
        whole_s=whole,
        cli_peak_mib=peak,
        reused=document["reused"],
        digest=document["digest"],
        reference=document["tags"][0],
    )


def _follow(pid: int, stderr: IO[str], begun: float) -> tuple[float, float, str]:
    """Read the progress to its end; give the seconds at which the image was built, peak memory and text."""
    built, peak, told = 0.0, 0.0, ""
    for line in stderr:
        told += line
        peak = max(peak, _peak_mib(pid))
        if line.startswith("build "):
            built = time.perf_counter() - begun
    return built, peak, told


def _peak_mib(pid: int) -> float:
    """Give the kernel's high-water mark of a process' memory; 0 once it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def plain(folder: Path, base: Path) -> float:
    """Build the plain Dockerfile on the same base, without a cache, and give the seconds."""
    context = folder / "plain"
    context.mkdir()
    os.link(base, context / "base.tar")
    (context / "Dockerfile").write_text(PLAIN)
    command = ["docker", "buildx", "build", "--no-cache", "--provenance=false", "--load"]
    command += ["--tag", f"{NAME}:plain", *_network(), str(context)]
    begun = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - begun


def _network() -> list[str]:
    """Give this machine's authority, proxies and index to the plain build."""
    words = [f"--build-arg={name}={os.environ[name]}" for name in PROXIES if os.environ.get(name)]
    if os.environ.get("PIP_INDEX_URL"):
        words.append(f"--build-arg=PIP_INDEX_URL={os.environ['PIP_INDEX_URL']}")
    bundle = os.environ.get("SSL_CERT_FILE")
    return [*words, f"--secret=id=ca,src={bundle}"] if bundle else words


def compressed_bytes(reference: str) -> int:
    """Give the bytes of an image's layers as a registry would hold them, by what `docker save` writes."""
    sizes: dict[str, int] = {}
    small: dict[str, bytes] = {}
    with (
        subprocess.Popen(["docker", "save", reference], stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as archive,
    ):
        for member in archive:
            name = member.name.rpartition("/")[2]
            sizes[name] = member.size
            if member.isfile() and member.size < 2**20 and (stream := archive.extractfile(member)):
                small[name] = stream.read()
    document = json.loads(small["index.json"])
    while "layers" not in document:
        document = json.loads(small[document["manifests"][0]["digest"].removeprefix("sha256:")])
    return sum(sizes[layer["digest"].removeprefix("sha256:")] for layer in document["layers"])


def measure(folder: Path) -> dict[str, Any]:
    """Do everything in one run and give the numbers: seconds, bytes, MiB and their ratios."""
    cold = imgbuild(folder, "--no-cache", "--tag", f"{NAME}:ours")
    same = [imgbuild(folder, "--tag", f"{NAME}:ours") for _ in range(REPEATS)]
    (folder / "requirements.txt").write_text(REQUIREMENTS.format(0))
    imgbuild(folder, "-r", "requirements.txt", "--no-test", "--tag", f"{NAME}:required")
    (folder / "requirements.txt").write_text(REQUIREMENTS.format(1))
    line = imgbuild(folder, "-r", "requirements.txt", "--tag", f"{NAME}:changed")
    (base,) = (folder / "cache" / "imgbuild" / "bases").glob("sha256-*.tar")
    plain_s = plain(folder, base)
    ours, theirs = compressed_bytes(f"{NAME}:ours"), compressed_bytes(f"{NAME}:plain")
    no_change = statistics.median(run.whole_s for run in same)
    return {
        "cold": asdict(cold),
        "no_change": {"whole_s": no_change, "reused": all(run.reused for run in same), "runs": REPEATS},
        "one_line": asdict(line),
        "plain_s": plain_s,
        "bytes": {"ours": ours, "plain": theirs},
        "ratios": {
            # against the cold build alone, the harder one: its smoke checks would make it larger
            "no_change_to_cold": no_change / cold.built_s,
            "one_line_to_cold": line.built_s / cold.built_s,
            "one_line_tested_to_cold_tested": line.whole_s / cold.whole_s,
            "cold_to_plain": cold.built_s / plain_s,
            "bytes_to_plain": ours / theirs,
            "cli_peak_mib": max(run.cli_peak_mib for run in (cold, *same, line)),
        },
    }


def table(found: dict[str, Any]) -> str:
    """Give the numbers for people."""
    cold, line, size = found["cold"], found["one_line"], found["bytes"]
    same = found["no_change"]
    lines = [
        f"cold build          {cold['built_s']:8.1f} s   with its smoke checks {cold['whole_s']:.1f} s",
        f"nothing changed     {same['whole_s']:8.1f} s   median of {same['runs']}",
        f"one line changed    {line['built_s']:8.1f} s   with its smoke checks {line['whole_s']:.1f} s",
        f"plain Dockerfile    {found['plain_s']:8.1f} s",
        f"compressed bytes    {size['ours'] / 1e9:8.2f} GB  plain {size['plain'] / 1e9:.2f} GB",
        "",
    ]
    for name, value in found["ratios"].items():
        budget = BUDGETS.get(name)
        verdict = "" if budget is None else f"   at most {budget}: {'ok' if value <= budget else 'MISSED'}"
        lines.append(f"{name:<32}{value:8.3f}{verdict}")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--prune", action="store_true", help="remove the engine's cache mounts first")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if not IMGBUILD.exists() or shutil.which("docker") is None:
        print(f"`{IMGBUILD}` or `docker` is missing: {sys.executable} -m pip install .", file=sys.stderr)
        return 2
    if options.prune:
        prune = ["docker", "builder", "prune", "--all", "--force", "--filter", "type=exec.cachemount"]
        subprocess.run(prune, check=True, stdout=subprocess.DEVNULL)
    try:
        with tempfile.TemporaryDirectory(prefix="imgbuild-benchmark-") as folder:
            found = {"pruned": options.prune, **measure(Path(folder))}
    finally:
        names = [f"{NAME}:{tag}" for tag in ("ours", "required", "changed", "plain")]
        subprocess.run(["docker", "rmi", "--force", *names], capture_output=True)
    print(json.dumps(found, indent=2) if options.json else table(found))
    return int(any(found["ratios"][name] > budget for name, budget in BUDGETS.items()))


if __name__ == "__main__":
    sys.exit(main())
