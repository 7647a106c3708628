"""The container engine: buildx to build, docker's SDK to inspect, tag, run and remove.

One wrapper that always cleans up. It knows nothing of stacks: it takes folders, references and
commands, and gives digests, exit codes and bytes.
"""

from __future__ import annotations

import io
import tarfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from imagebuilder.engine.faults import engine_errors, short
from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from docker import DockerClient
    from docker.models.containers import Container
    from docker.types import DeviceRequest

# Seconds that the engine may take to answer a question; runs and builds have limits of their own.
ANSWER_TIMEOUT = 60
INSTALL_HINT = "./scripts/engine installs and starts one on Debian and Ubuntu; then `imgbuild doctor`"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineImage:
    """One image in the engine. `digest` names its manifest; with the containerd store it is the id too.

    `created` is in seconds since 1970; 0 where the image does not say.
    """

    digest: str
    created: int
    tags: tuple[str, ...]
    labels: Mapping[str, str]
    size: int
    config: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a container is run: everything bounded. `timeout` in seconds, `shm_size` in bytes."""

    image: str
    command: Sequence[str]
    entrypoint: Sequence[str] | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    user: str | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    files_at: str = "/"
    take: str | None = None
    gpus: int | None = None
    shm_size: int | None = None
    network: str | None = "none"
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run gave: exit code (None when it was stopped at its time limit), logs, the file taken."""

    exit_code: int | None
    logs: str
    taken: bytes | None
    out_of_memory: bool


class Engine:
    """A Docker engine with the containerd image store."""

    def __init__(self, client: DockerClient) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> Engine:
        """Connect to the engine that the docker command line would use.

        Raises OutsideError when no engine answers, or when it keeps images without manifests.
        """
        import docker
        from docker.errors import DockerException

        try:
            client = docker.DockerClient(**_endpoint(), timeout=ANSWER_TIMEOUT)
            info = client.info()
        except (DockerException, OSError, ValueError) as error:  # ValueError: an odd DOCKER_HOST
            raise OutsideError("no Docker engine answers", why=short(error), hint=INSTALL_HINT) from error
        if "io.containerd.snapshotter.v1" not in str(info.get("DriverStatus", "")):
            raise OutsideError(
                "the Docker engine does not use the containerd image store",
                why="without it an image has no manifest digest that others agree on",
                hint='add {"features": {"containerd-snapshotter": true}} to /etc/docker/daemon.json',
            )
        return cls(client)

    def image(self, reference: str) -> EngineImage | None:
        """Give an image by tag or digest, None where the engine has none."""
        from docker.errors import ImageNotFound

        try:
            with engine_errors():
                image = self._client.images.get(reference)
        except ImageNotFound:
            return None
        return _image(image)

    def images_labelled(self, label: str, value: str) -> list[EngineImage]:
        """Give the tagged images that carry a label."""
        with engine_errors():
            return [
                _image(image) for image in self._client.images.list(filters={"label": f"{label}={value}"})
            ]

    def tag(self, digest: str, reference: str) -> None:
        """Give an image one more tag; a tag of that name moves."""
        repository, _, tag = reference.rpartition(":")
        with engine_errors():
            self._client.images.get(digest).tag(repository, tag)

    def remove(self, reference: str) -> None:
        """Remove a tag (and the image with its last one); it does not matter when it is gone already."""
        from docker.errors import APIError, ImageNotFound

        with suppress(ImageNotFound, APIError):
            self._client.images.remove(reference, noprune=False)

    def push(self, reference: str) -> str:
        """Push a tag to its registry and give the digest that the registry has it under.

        Raises OutsideError with the registry's own words.
        """
        repository, _, tag = reference.rpartition(":")
        with engine_errors():
            for event in self._client.images.push(repository, tag=tag, stream=True, decode=True):
                if "error" in event:
                    raise OutsideError(
                        f"the registry did not take `{reference}`",
                        why=str(event["error"]),
                        hint=f"docker login {repository.split('/')[0]}",
                    )
            # The events of the containerd image store name no digest; the registry itself is asked.
            return str(self._client.images.get_registry_data(reference).id)

    def pull(self, reference: str, platform: str) -> None:
        """Pull an image by digest for a platform such as linux/amd64; raises OutsideError."""
        with engine_errors():
            self._client.images.pull(reference, platform=platform)

    def run(self, run: Run) -> Outcome:
        """Run a command in a new container: create, start, wait with a limit, always remove.

        Raises OutsideError when the container cannot start; what the command does is an Outcome.
        """
        with self._container(run) as container:
            if run.files:
                with engine_errors():
                    container.put_archive(run.files_at, _archive(run.files))
            with engine_errors():
                container.start()
            exit_code = self._wait(container, run.timeout)
            with engine_errors():
                logs = container.logs(tail=2000).decode(errors="replace")
                container.reload()
                out_of_memory = bool(container.attrs["State"].get("OOMKilled"))
            return Outcome(
                exit_code=exit_code,
                logs=logs,
                taken=self._take(container, run.take),
                out_of_memory=out_of_memory,
            )

    @contextmanager
    def _container(self, run: Run) -> Iterator[Container]:
        from docker.types import Ulimit

        requests, limits = [], []
        if run.gpus is not None:
            requests = [self._gpu_request(run.gpus)]
            # NCCL pins memory, and its threads want the stack that NVIDIA documents for containers
            limits = [
                Ulimit(name="memlock", soft=-1, hard=-1),
                Ulimit(name="stack", soft=1 << 26, hard=1 << 26),
            ]
        with engine_errors():
            container = self._client.containers.create(
                run.image,
                list(run.command),
                entrypoint=list(run.entrypoint) if run.entrypoint is not None else None,
                environment=dict(run.environment),
                user=run.user,
                device_requests=requests,
                shm_size=run.shm_size,
                network=run.network,
                ulimits=limits,
                labels={"io.imgbuild.temporary": "true"},
                init=True,
            )
        try:
            yield container
        finally:
            with suppress(Exception):
                container.remove(force=True, v=True)

    def _gpu_request(self, count: int) -> DeviceRequest:
        """Ask for GPUs as this engine knows it: by the nvidia runtime, or by CDI where there is only that."""
        from docker.types import DeviceRequest

        with engine_errors():
            info = self._client.info()
        devices = {device.get("ID", "") for device in info.get("DiscoveredDevices") or ()}
        if "nvidia" not in info.get("Runtimes", {}) and any(
            name.startswith("nvidia.com/gpu") for name in devices
        ):
            names = ["all"] if count < 0 else [str(number) for number in range(count)]
            return DeviceRequest(driver="cdi", device_ids=[f"nvidia.com/gpu={name}" for name in names])
        return DeviceRequest(count=count, capabilities=[["gpu"]])

    def _wait(self, container: Container, timeout: float) -> int | None:
        from requests.exceptions import ConnectionError as Disconnected
        from requests.exceptions import ReadTimeout

        try:
            with engine_errors():
                return int(container.wait(timeout=timeout)["StatusCode"])
        except (ReadTimeout, Disconnected):
            with suppress(Exception):
                container.kill()
            return None

    def _take(self, container: Container, path: str | None) -> bytes | None:
        from docker.errors import NotFound

        if path is None:
            return None
        try:
            with engine_errors():
                stream, _ = container.get_archive(path)
                packed = io.BytesIO(b"".join(stream))
        except NotFound:
            return None
        with tarfile.open(fileobj=packed) as archive:
            member = archive.extractfile(archive.getmembers()[0])
            return member.read() if member else None


def _endpoint() -> dict[str, Any]:
    """Give the endpoint of DOCKER_HOST or of the docker command line's current context."""
    import os

    if os.environ.get("DOCKER_HOST"):
        from docker.utils import kwargs_from_env

        return dict(kwargs_from_env())
    from docker.context import ContextAPI

    context = ContextAPI.get_current_context()
    return {"base_url": context.Host} if context is not None and context.Host else {}


def _image(image: Any) -> EngineImage:
    attributes = image.attrs
    return EngineImage(
        digest=image.id,
        created=_seconds(str(attributes.get("Created") or "")),
        tags=tuple(image.tags),
        labels=dict(image.labels or {}),
        size=int(attributes.get("Size", 0)),
        config=dict(attributes.get("Config") or {}),
    )


def _seconds(text: str) -> int:
    """Read the engine's RFC 3339 time, whose fraction may have more digits than Python takes."""
    try:
        return int(datetime.fromisoformat(f"{text[:19]}+00:00").timestamp())
    except ValueError:
        return 0


def _archive(files: Mapping[str, bytes]) -> bytes:
    """Pack files as a tar that anyone in the container can read."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            member.mode = 0o755
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()
