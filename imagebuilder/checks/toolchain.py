"""What torch.compile and Triton need at run time besides Python packages: provable without a GPU."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from typing import Any, Dict, List, Optional

from . import requirements
from .result import Context, Failed, Outcome, Skipped
from .specifiers import NotEvaluated

# What Triton compiles for each kernel: an extension module that launches it.
_SOURCE = """#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "probe", NULL, -1, NULL};
PyMODINIT_FUNC PyInit_probe(void) { return PyModule_Create(&module); }
"""


def toolchain(context: Context) -> Outcome:
    """Check that a C compiler builds an extension module that Python loads, and that ptxas runs."""
    if importlib.util.find_spec("triton") is None:
        raise _no_triton()
    evidence: Dict[str, Any] = {"triton": _version("triton"), "compiler": c_compiler(), "ptxas": None}
    if not evidence["compiler"]:
        raise Failed(
            "no C compiler",
            diagnosis="torch.compile on a GPU needs one: Triton compiles a launcher for each kernel",
            next_step="add gcc and libc6-dev to the image, or set CC",
            evidence=evidence,
        )
    _import_builder(evidence)
    _build(str(evidence["compiler"]), evidence)
    evidence["ptxas"] = _ptxas()
    return Outcome(
        "Triton {} with {} and ptxas {}".format(
            evidence["triton"], os.path.basename(str(evidence["compiler"])), evidence["ptxas"] or "absent"
        ),
        evidence,
    )


def _no_triton() -> Failed:
    """Tell a Triton that torch asks for and that is missing from one that torch does not ask for here."""
    for line in metadata.requires("torch") or [] if _version("torch") else []:
        try:
            wanted = requirements.parse(line)
            if wanted.name in ("triton", "pytorch-triton") and requirements.applies(wanted.marker):
                return Failed(
                    "Triton is not installed",
                    diagnosis="torch requires {}{} here".format(wanted.name, wanted.specifier),
                    next_step="pip install '{}{}'".format(wanted.name, wanted.specifier),
                )
        except NotEvaluated:
            continue
    return Skipped("no Triton here, and torch asks for none on this Python and machine")


def _version(name: str) -> Optional[str]:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def c_compiler() -> Optional[str]:
    """Give the C compiler that Triton would take: CC, then gcc, then clang."""
    for name in (os.environ.get("CC"), "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def cxx_compiler() -> Optional[str]:
    """Give the C++ compiler that Inductor would take for the CPU."""
    for name in (os.environ.get("CXX"), "g++", "clang++"):
        found = shutil.which(name) if name else None
        if found:
            return found
    return None


def _import_builder(evidence: Dict[str, Any]) -> None:
    """Import the module with which Triton compiles: up to 3.0 it wants setuptools, which nothing requires."""
    for name in ("triton.runtime.build", "triton.common.build"):
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name and name.startswith(error.name):
                continue  # this Triton keeps it elsewhere
            raise Failed(
                "Triton cannot import {}".format(error.name),
                diagnosis="Triton {} imports {} to compile kernels, and does not require it".format(
                    evidence["triton"], error.name
                ),
                next_step="pip install {}".format(error.name),
                evidence=evidence,
            ) from error
        return


def _build(compiler: str, evidence: Dict[str, Any]) -> None:
    """Compile the probe in the current folder, which the runner made for this check, and import it."""
    with open("probe.c", "w", encoding="ascii") as file:
        file.write(_SOURCE)
    include = sysconfig.get_paths()["include"]
    if not os.path.exists(os.path.join(include, "Python.h")):
        raise Failed(
            "Python.h is missing in {}".format(include),
            diagnosis="the headers of Python are not in the image: Triton compiles against them",
            next_step="add the python3-dev package of Python {}.{} to the image".format(
                *sys.version_info[:2]
            ),
            evidence=evidence,
        )
    command = [compiler, "probe.c", "-O1", "-shared", "-fPIC", "-I" + include, "-o", "probe.so"]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    if ran.returncode != 0:
        words = ran.stdout.decode("utf-8", "replace").splitlines()
        raise Failed(
            "{} cannot build an extension module".format(compiler),
            diagnosis=_first_error(words),
            next_step="add gcc with libc6-dev and the python3-dev package to the image",
            evidence={**evidence, "compiler_output": words[-15:]},
        )
    spec = importlib.util.spec_from_file_location("probe", os.path.abspath("probe.so"))
    if spec is None or spec.loader is None:
        raise Failed("the built module cannot be loaded", evidence=evidence)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def _first_error(words: List[str]) -> str:
    return next((line for line in words if "error" in line), words[-1] if words else "it says nothing")


def _ptxas() -> Optional[str]:
    """Give the version of the assembler in Triton's wheel; None when it lies elsewhere."""
    spec = importlib.util.find_spec("triton")
    for folder in list(spec.submodule_search_locations or []) if spec else []:
        for path in (
            "backends/nvidia/bin/ptxas",
            "common/../third_party/cuda/bin/ptxas",
            "third_party/cuda/bin/ptxas",
        ):
            program = os.path.join(folder, path)
            if os.path.exists(program):
                return _ask(program)
    return None


def _ask(program: str) -> str:
    try:
        ran = subprocess.run([program, "--version"], stdout=subprocess.PIPE, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failed(
            "{} does not run".format(program),
            diagnosis="Triton's assembler is damaged, or was built for another machine: {}".format(error),
            next_step="reinstall triton",
        ) from error
    return ran.stdout.decode().strip().splitlines()[-1]
