"""Lock x templates -> BuildContext. Pure: the same lock and templates give the same bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from imagebuilder.errors import UsageError
from imagebuilder.render.layers import Layer, plan_layers
from imagebuilder.render.templating import Templates, render_text, used_by
from imagebuilder.resolve.stack import stack_to_dict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from imagebuilder.lock import Lock, Wheel

User = Literal["trainer", "root"]

# The file system of a user: `trainer` has no password and no sudo; any other uid works too, since its
# home and /workspace can be written by everyone.
HOMES: Mapping[User, str] = {"trainer": "/home/trainer", "root": "/root"}
UIDS: Mapping[User, int] = {"trainer": 1000, "root": 0}

# 1980-01-01, the oldest time that a zip file can hold: when a lock tells no upload time, the image says this.
OLDEST_TIME = 315532800

LABEL = "io.imgbuild"

# How layers are stored, as options of BuildKit's exporter: they decide the digest.
# Level 7 took 2.3 x the time of the default level on cuSPARSE and gave 13 % fewer bytes.
COMPRESSION = "oci-mediatypes=true,compression=zstd,compression-level=7,force-compression=true"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """A folder for `docker buildx build`, as a mapping of relative paths to bytes.

    `key` is the digest of everything that decides the image: an image that carries it in its labels need
    not be built again. `created` is SOURCE_DATE_EPOCH, in seconds. A bootstrapped base is a file
    `base.tar` that the builder puts beside these files.
    """

    lock: Lock
    user: User
    layers: tuple[Layer, ...]
    files: Mapping[str, bytes]
    labels: Mapping[str, str] = field(default_factory=dict)
    key: str
    created: int

    @property
    def dockerfile(self) -> str:
        """The rendered Dockerfile."""
        return self.files["Dockerfile"].decode()


def render(
    lock: Lock, templates: Templates, checks: Mapping[str, bytes], *, user: User = "trainer"
) -> BuildContext:
    """Render the build context of a lock.

    `checks` are the files of imagebuilder/checks, which run inside the image. Raises UsageError for a
    template that is broken or a value that must not enter a Dockerfile.
    """
    layers = plan_layers(lock)
    files: dict[str, bytes] = {
        "debs.txt": _debs(lock),
        "uv.txt": _requirement_lines((lock.installer,)),
        ".dockerignore": b"# everything in this folder belongs to the build\n",
        **{f"wheels/{layer.name}.txt": _requirement_lines(layer.wheels) for layer in layers},
        **{f"metadata/checks/{name}": content for name, content in checks.items()},
        **{name: templates.read(f"builtin/{name}") for name in SCRIPTS},
        "metadata/stack.json": _manifest(lock),
        "metadata/constraints.txt": _constraints(lock),
        "metadata/wheels.txt": _requirement_lines(lock.all_wheels),
        "metadata/debs.txt": _debs(lock),
    }
    created = _created(lock)
    values = {
        "lock": lock,
        "layers": layers,
        "user": {"name": user, "uid": UIDS[user], "home": HOMES[user]},
        "created": created,
        "compression": COMPRESSION,
    }
    template = f"{lock.stack.framework}.Dockerfile.j2"
    used = {*used_by(templates, template), *(f"builtin/{name}" for name in SCRIPTS)}
    labels = _labels(lock, templates.digest(used))
    draft = render_text(templates, template, {**values, "labels": labels})
    key = _digest({**files, "Dockerfile": draft.encode(), "created": str(created).encode()})
    labels[f"{LABEL}.build-key"] = key
    files["Dockerfile"] = render_text(templates, template, {**values, "labels": labels}).encode()
    return BuildContext(
        lock=lock,
        user=user,
        layers=layers,
        files=dict(sorted(files.items())),
        labels=dict(sorted(labels.items())),
        key=key,
        created=created,
    )


SCRIPTS = ("scripts/install-debs", "scripts/install-uv", "scripts/install-wheels", "scripts/install-metadata")


def _digest(files: Mapping[str, bytes]) -> str:
    """Digest names and contents together, so that moving a byte between files changes the key."""
    total = sha256()
    for name, content in sorted(files.items()):
        total.update(f"{name}\0{len(content)}\0".encode())
        total.update(content)
    return f"sha256:{total.hexdigest()}"


def _requirement_lines(wheels: tuple[Wheel, ...]) -> bytes:
    """Give wheels as lines of a hash-checked requirements file, by name."""
    lines = sorted(f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}" for wheel in wheels)
    return ("\n".join(lines) + "\n").encode()


def _debs(lock: Lock) -> bytes:
    """Give the locked packages as lines of NAME VERSION ARCH FILENAME SIZE SHA256."""
    lines = sorted(
        f"{deb.name} {deb.version} {deb.arch} {deb.filename} {deb.size} {deb.sha256}"
        for deb in lock.base.debs
    )
    return ("\n".join(lines) + "\n").encode()


def _manifest(lock: Lock) -> bytes:
    """Give stack.json as the image carries it: with every locked distribution among the packages."""
    document = stack_to_dict(lock.stack)
    document["packages"] = {
        wheel.name: str(wheel.version) for wheel in sorted(lock.all_wheels, key=lambda w: w.name)
    }
    return (json.dumps(document, indent=2, ensure_ascii=False) + "\n").encode()


def _constraints(lock: Lock) -> bytes:
    """Keep the framework and its CUDA wheels in place for images that are built on this one."""
    lines = sorted(
        f"{wheel.name}=={wheel.version}" for wheel in lock.wheels if wheel.name in lock.stack.packages
    )
    return ("\n".join(lines) + "\n").encode()


def _created(lock: Lock) -> int:
    """Give the newest upload time of the locked wheels: a date that is a function of the lock."""
    stamps = [_stamp(wheel) for wheel in lock.all_wheels if wheel.uploaded]
    return max((OLDEST_TIME, *stamps))


def _stamp(wheel: Wheel) -> int:
    """Read an upload time, in UTC where it names no zone: the time zone of this machine must not count."""
    try:
        time = datetime.fromisoformat(wheel.uploaded or "")
    except ValueError as error:
        raise UsageError(
            f"`{wheel.uploaded}` of `{wheel.filename}` is no upload time", why=str(error)
        ) from error
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())


def _labels(lock: Lock, templates: str) -> dict[str, str]:
    """Say in the image's configuration what it is, what it needs and what it was made from."""
    stack = lock.stack
    labels = {
        "org.opencontainers.image.title": stack.identifier,
        "org.opencontainers.image.description": (
            f"{stack.framework} {stack.version} with CUDA {stack.cuda}, Python {stack.python}, {stack.os}"
        ),
        "org.opencontainers.image.version": stack.tag,
        "org.opencontainers.image.base.digest": lock.base.digest,
        f"{LABEL}.stack": stack.identifier,
        f"{LABEL}.framework": stack.framework,
        f"{LABEL}.framework.version": str(stack.version),
        f"{LABEL}.cuda": str(stack.cuda),
        f"{LABEL}.python": str(stack.python),
        f"{LABEL}.driver.min": str(stack.driver_min),
        f"{LABEL}.compute-capabilities": " ".join(map(str, stack.compute_capabilities)),
        f"{LABEL}.matrix": stack.matrix,
        f"{LABEL}.templates": templates,
        f"{LABEL}.tool": lock.tool,
    }
    if stack.driver_packaged:
        labels[f"{LABEL}.driver.packaged"] = str(stack.driver_packaged)
    if stack.extras:
        labels[f"{LABEL}.extras"] = " ".join(stack.extras)
    if lock.base.image:
        labels["org.opencontainers.image.base.name"] = lock.base.image
    if stack.cudnn:
        labels[f"{LABEL}.cudnn"] = str(stack.cudnn)
    if stack.nccl:
        labels[f"{LABEL}.nccl"] = str(stack.nccl)
    return dict(sorted(labels.items()))
