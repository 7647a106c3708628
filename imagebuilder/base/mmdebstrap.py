"""mmdebstrap, run so that the same packages give the same bytes on any host, from any mirror."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from imagebuilder.base.apt import apt_failure, mirror_sources
from imagebuilder.errors import OutsideError
from imagebuilder.network import ca_bundle

if TYPE_CHECKING:
    from imagebuilder.base import Arch, Deb
    from imagebuilder.matrix.facts import Base

# Seconds: 20 on a fast network; a slow mirror serves some 40 MB.
LIMIT = 1200
# Seconds that it gets to clean up after an interrupt.
GRACE = 20
# Files that are newer get this time: 1980-01-01, the oldest that a zip file can hold. A constant, since a
# time taken from the archive would change the digest of packages that did not.
EPOCH = 315532800

# Slim as the distributions' own slim images: licences stay. The rule stays too, as it does there, so that
# what is installed later is as slim.
EXCLUDES = (
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/info/*",
    "path-exclude=/usr/share/locale/*",
    "path-include=/usr/share/locale/locale.alias",
    "path-exclude=/usr/share/lintian/*",
    "path-exclude=/usr/share/groff/*",
    "path-exclude=/usr/share/linda/*",
)

SAVE_SOURCES = 'mv "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.imgbuild"'
# The image names the distribution's own address, wherever its packages came from.
RESTORE_SOURCES = 'mv "$1/etc/apt/sources.list.imgbuild" "$1/etc/apt/sources.list"'
# mmdebstrap names the key or not as this host's apt has it; the image always does.
NAME_KEY = (
    r"sed -Ei 's|^deb (\[[^]]*\] )?|deb [signed-by=/usr/share/keyrings/%s-archive-keyring.gpg] |'"
    ' "$1/etc/apt/sources.list"'
)
# What differs from one run or host to the next, and what only this run needed.
CLEAN = """\
cd "$1"
if [ -e etc/dpkg/dpkg.cfg.d/99mmdebstrap ]; then
    mv etc/dpkg/dpkg.cfg.d/99mmdebstrap etc/dpkg/dpkg.cfg.d/slim
fi
rm -rf etc/apt/apt.conf.d/99mmdebstrap etc/apt/preferences.d/imgbuild etc/hostname etc/resolv.conf \
    etc/passwd- etc/shadow- etc/group- etc/gshadow- etc/subuid- etc/subgid- etc/.pwd.lock \
    var/cache/ldconfig/aux-cache var/cache/debconf/*-old var/lib/dpkg/*-old
find var/log -mindepth 1 -delete
find . -xdev -type d -name __pycache__ -prune -exec rm -rf {} +"""

# Names the way a base is made: one in the cache that was made in another way is not taken.
RECIPE = sha256("\n".join((str(EPOCH), NAME_KEY, CLEAN, *EXCLUDES)).encode()).hexdigest()


def check_host(base: Base, arch: Arch) -> None:
    """Refuse at once what mmdebstrap would refuse late; raises OutsideError."""
    import platform

    if not base.bootstrap:
        raise OutsideError(
            f"{base.distribution} {base.suite} is not bootstrapped, only taken from a registry",
            why=f"the matrix says so of the base that is `{base.image}` there",
            hint="export IMGBUILD_REGISTRY_MIRROR=HOST[:PORT], or choose debian-12 with `--os debian-12`",
        )
    if shutil.which("mmdebstrap") is None:
        raise OutsideError(
            "this host cannot bootstrap a base: it has no `mmdebstrap`",
            why="no registry gave the base, and a bootstrap needs tools that Debian and Ubuntu have",
            hint=f"sudo apt-get install mmdebstrap {base.distribution}-archive-keyring",
        )
    own = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    emulator = {"amd64": "qemu-x86_64", "arm64": "qemu-aarch64"}[arch]
    if arch != own and not Path("/proc/sys/fs/binfmt_misc", emulator).exists():
        raise OutsideError(
            f"an {arch} base cannot be bootstrapped on this {own} host",
            why=f"its packages run {arch} programs when they are set up, and `{emulator}` is not registered",
            hint="sudo apt-get install qemu-user-static binfmt-support arch-test",
        )


def make(base: Base, arch: Arch, work: Path, pinned: tuple[Deb, ...]) -> Path:
    """Run mmdebstrap; raises OutsideError with its own words."""
    tar = work / "base.tar"
    process = subprocess.Popen(
        [*_command(base, arch, work, pinned), base.suite, str(tar)],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        _, said = process.communicate(timeout=LIMIT)
    except BaseException as error:
        _stop(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        raise OutsideError(f"the bootstrap did not end within {LIMIT} s", hint="imgbuild doctor") from error
    if process.returncode:
        raise _failure(base, said)
    return tar


def _command(base: Base, arch: Arch, work: Path, pinned: tuple[Deb, ...]) -> list[str]:
    command = ["mmdebstrap", "--variant=minbase", "--mode=auto", "--format=tar", f"--architectures={arch}"]
    command += [f"--dpkgopt={rule}" for rule in EXCLUDES]
    command.append('--aptopt=Acquire::Retries "3"')
    ca, sources = ca_bundle(), mirror_sources(base)
    if ca is not None:
        command.append(f'--aptopt=Acquire::https::CAInfo "{ca.resolve()}"')
    if sources is not None:
        Path(work, "sources.list").write_text(sources)
        command += [
            f"--setup-hook={SAVE_SOURCES}",
            f"--setup-hook=upload {quote(f'{work}/sources.list')} /etc/apt/sources.list",
        ]
        command.append(f"--customize-hook={RESTORE_SOURCES}")
    if pinned:
        Path(work, "pins").write_text(_pins(pinned))
        command.append(f"--setup-hook=upload {quote(f'{work}/pins')} /etc/apt/preferences.d/imgbuild")
    key = NAME_KEY % base.distribution
    return [*command, f"--customize-hook={key}", f"--customize-hook={CLEAN}"]


def _pins(packages: tuple[Deb, ...]) -> str:
    """Write apt's preferences so that these versions win, older ones too."""
    return "".join(
        f"Package: {deb.name}\nPin: version {deb.version}\nPin-Priority: 1001\n\n" for deb in packages
    )


def _stop(process: subprocess.Popen[str]) -> None:
    """Interrupt mmdebstrap, which then unmounts and removes what it made; kill it where it does not end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _failure(base: Base, said: str) -> OutsideError:
    """Say why mmdebstrap failed."""
    failure = apt_failure(said)
    hint = failure.hint
    if any(words in said for words in ("chroot mode", "unshare", "newuidmap", "/etc/subuid")):
        hint = "sudo apt-get install uidmap, which lets a user bootstrap without root"
    return OutsideError(
        f"{base.distribution} {base.suite} cannot be bootstrapped", why=failure.why, hint=hint
    )
