"""The group `env`, as far as it needs no framework: Python, the user, packages and what they require."""

from __future__ import annotations

import errno
import getpass
import os
import platform
import sys
import tempfile
from typing import Any, Dict, List, Optional

from . import requirements
from .result import Context, Failed, Outcome, Skipped, raise_all

_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_NO_MANIFEST = "no stack manifest in this image, so nothing is compared"


def python(context: Context) -> Outcome:
    """Check that the Python that runs is the manifest's, on the manifest's machine."""
    libc = " ".join(platform.libc_ver())
    evidence = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "machine": platform.machine(),
        "libc": libc,
    }
    if context.manifest_error:
        raise Failed(
            "the stack manifest is broken",
            diagnosis=context.manifest_error,
            next_step="build the image again: stack.json was changed or damaged",
            evidence=evidence,
        )
    summary = "Python {}, {}, {}".format(platform.python_version(), platform.machine(), libc)
    if context.manifest is None:
        return Outcome("{}; {}".format(summary, _NO_MANIFEST), evidence)
    here = {
        "python": "{}.{}".format(*sys.version_info[:2]),
        "arch": _MACHINES.get(platform.machine(), platform.machine()),
    }
    promised = {"python": context.manifest.python, "arch": context.manifest.arch}
    problems = [
        Failed(
            "{} is {}, the manifest says {}".format(key, here[key], promised[key]),
            diagnosis="another {} runs than the image was built for".format(key),
            next_step="run the image's own Python: /opt/venv/bin/python",
        )
        for key in here
        if promised[key] and here[key] != promised[key]
    ]
    raise_all(problems, evidence)
    return Outcome(summary, evidence)


def user(context: Context) -> Outcome:
    """Check that the user is not root, has a name, and can write where frameworks keep their caches."""
    home = os.path.expanduser("~")
    evidence: Dict[str, Any] = {
        "uid": os.getuid(),
    }
    problems: List[Failed] = []
    try:
        evidence["name"] = getpass.getuser()
    except (KeyError, OSError, ImportError):
        problems.append(
            Failed(
                "the user id {} has no name".format(os.getuid()),
                diagnosis="neither USER, LOGNAME nor the password file names it: Inductor stops with "
                "`getpwuid(): uid not found`",
                next_step="set USER and LOGNAME in the image",
            )
        )
    for what, folder in (("home", home), ("temporary folder", tempfile.gettempdir())):
        evidence[what] = folder
        error = _write_error(folder)
        # With `docker run --read-only` the home is read-only by choice; a temporary folder is still needed.
        if error and not (error == errno.EROFS and what == "home"):
            problems.append(_cannot_write(what, folder))
        evidence["{} can be written".format(what)] = not error
    # An image built with `--user root` says so with its HOME; `docker run -u 0` keeps the other HOME.
    if os.getuid() == 0 and home != "/root" and context.manifest is not None:
        problems.append(
            Failed(
                "the user is root",
                diagnosis="the image's own user was replaced when the container was started",
                next_step="run without `--user 0`, or build with `--user root`",
            )
        )
    raise_all(problems, evidence)
    if os.getuid() == 0 and context.manifest is None:
        raise Skipped("runs as root; {}".format(_NO_MANIFEST), evidence=evidence)
    state = "can be written" if evidence["home can be written"] else "is read-only"
    return Outcome("{} (uid {}), home {} {}".format(evidence["name"], os.getuid(), home, state), evidence)


def _write_error(folder: str) -> Optional[int]:
    """Give the error number of an attempt to write there; None when it can be written."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return error.errno or errno.EIO


def _cannot_write(what: str, folder: str) -> Failed:
    return Failed(
        "the {} {} cannot be written".format(what, folder),
        diagnosis="compiler and kernel caches go there and will fail",
        next_step="set HOME or TMPDIR to a folder that uid {} can write".format(os.getuid()),
    )


def packages(context: Context) -> Outcome:
    """Check that every package of the manifest is installed in exactly the manifest's version."""
    if context.manifest is None:
        raise Skipped(_NO_MANIFEST)
    here = {name: found.version for name, found in requirements.installed().items()}
    problems = []
    for name, version in sorted(context.manifest.packages.items()):
        seen = here.get(requirements.normalise(name))
        if seen != version:
            problems.append(_differs(name, version, seen))
    extra = sorted(set(here) - {requirements.normalise(name) for name in context.manifest.packages})
    evidence = {"compared": len(context.manifest.packages), "not_in_manifest": {n: here[n] for n in extra}}
    raise_all(problems, evidence)
    return Outcome("{} packages as in the manifest".format(len(context.manifest.packages)), evidence)


def _differs(name: str, promised: str, seen: Any) -> Failed:
    what = "is not installed" if seen is None else "is {}".format(seen)
    return Failed(
        "{} {}, the manifest says {}".format(name, what, promised),
        diagnosis="{} was {} after the image was built".format(
            name, "removed" if seen is None else "replaced"
        ),
        next_step="pip install --no-deps {}=={}".format(name, promised),
    )


def requirements_met(context: Context) -> Outcome:
    """Check that no installed package lacks a package that it requires, or has one of another version."""
    found = requirements.installed()
    verdict = requirements.check(found)
    evidence = {
        "packages": len(found),
        "requirements": verdict.judged,
        "not_evaluated": list(verdict.not_evaluated),
    }
    step = "install what is named, in the version that is named; then run `python -m pip check`"
    problems = [Failed(text, diagnosis=text, next_step=step) for text in verdict.problems]
    raise_all(problems, evidence)
    unsure = ", {} not evaluated".format(len(verdict.not_evaluated)) if verdict.not_evaluated else ""
    return Outcome(
        "{} requirements of {} packages met{}".format(verdict.judged, len(found), unsure), evidence
    )
