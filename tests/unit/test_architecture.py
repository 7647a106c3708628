"""The form of the house: imports go one way, only the command line speaks, everything stays small."""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import imagebuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(imagebuilder.__file__).parent

# From the bottom to the top: a part imports those of its own row's kind as said below, and lower rows.
ERRORS = {"errors"}
FACTS = {"resources", "matrix"}
ADAPTERS = {"base", "buildx", "engine", "host", "index", "network", "registry", "remote", "solver"}
# Each may import the types of those before it.
STAGES = ("request", "resolve", "lock", "render", "lint", "build", "smoke")
# Look at the host or at an index instead of taking a stage's result, so they need no stage.
BESIDE = {"doctor", "update"}

# What the checks may import besides the standard library.
UNDER_TEST = {"torch", "numpy", "triton", "torchvision", "torchaudio", "jax", "tensorflow"}

ENVIRONMENT = {
    "base.apt": "IMGBUILD_APT_MIRROR and the proxies; apt itself runs in this environment",
    "base.mmdebstrap": "mmdebstrap runs in this environment",
    "engine": "DOCKER_HOST, as the docker command reads it",
    "index": "the indexes and CA bundles of docs/configuration.md; uv runs in what is left",
    "matrix.cache": "XDG_CACHE_HOME: what was checked once is remembered there",
    "network": "the proxies and secrets that a build gets",
    "registry": "IMGBUILD_REGISTRY_MIRROR",
    "registry.credentials": "DOCKER_CONFIG: the logins of `docker login`",
}
# Durations, which say nothing of the date: limits of questions to the outside.
STOPWATCH = {"host.reach", "registry.distribution"}

LINES_OF_A_MODULE = 300
LINES_OF_A_FUNCTION = 40


@cache
def tree(path: Path) -> ast.Module:
    """Parse a module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def modules() -> list[Path]:
    """Give every module of the package."""
    return sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    """Give the name of a module within the package: `lock.clash`; a package has the name of its folder."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(path: Path) -> str:
    """Give the part of the house that a module belongs to: `lock` for `lock.clash`."""
    return name_of(path).partition(".")[0]


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Give every module that a module imports anywhere in it, also inside functions and for types only."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield node.lineno, "." * node.level + (node.module or "")
        elif isinstance(node, ast.ImportFrom) and node.module == "imagebuilder":
            yield from ((node.lineno, f"imagebuilder.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, str(node.module)


def parts_imported(path: Path) -> set[str]:
    """Give the parts of the house that a module imports; the version of the package is none."""
    found = {module.split(".")[1] for _, module in imported(path) if module.startswith("imagebuilder.")}
    return found - {"__version__", part_of(path)}


def allowed(part: str) -> set[str]:
    """Give the parts that a part may import."""
    if part in ERRORS:
        return set()
    if part in FACTS:
        return ERRORS | FACTS
    if part in ADAPTERS:
        return ERRORS | FACTS | ADAPTERS
    if part in STAGES:
        return ERRORS | FACTS | ADAPTERS | set(STAGES[: STAGES.index(part)])
    if part in BESIDE:
        return ERRORS | FACTS | ADAPTERS
    return ERRORS | FACTS | ADAPTERS | set(STAGES) | BESIDE  # cli


def test_every_part_has_its_place() -> None:
    """A new module or package belongs to a row here before it is merged."""
    known = {"", "cli", "checks"} | ERRORS | FACTS | ADAPTERS | set(STAGES) | BESIDE
    assert {part_of(path) for path in modules()} == known


def test_imports_go_one_way() -> None:
    """Command line, then stages (later ones know earlier ones), then adapters and facts, then errors."""
    wrong = {
        name_of(path): sorted(bad)
        for path in modules()
        if part_of(path) not in ("", "checks") and (bad := parts_imported(path) - allowed(part_of(path)))
    }
    assert wrong == {}


def test_no_module_of_the_package_imports_the_package_itself() -> None:
    """`imagebuilder` holds the version alone, so that importing a part loads that part."""
    assert [node for node in tree(ROOT / "__init__.py").body if isinstance(node, ast.Import)] == []
    assert parts_imported(ROOT / "__init__.py") == set()


def test_checks_stand_alone() -> None:
    """What runs in images knows the standard library and the framework under test, nothing of the rest."""
    wrong = []
    for path in modules():
        if part_of(path) == "checks":
            for line, module in imported(path):
                top = module.split(".")[0] or module
                relative = module.startswith(".") and not module.startswith("..")
                if not relative and top not in sys.stdlib_module_names | UNDER_TEST:
                    wrong.append(f"{path.name}:{line} imports {module}")
        elif "checks" in parts_imported(path):
            wrong.append(f"{name_of(path)} imports the checks")
    assert wrong == []


def test_checks_of_the_host_load_no_framework() -> None:
    """Only `pytorch_*` modules import torch: the others serve images with any framework, or none."""
    loading = {
        path.stem for path in modules() for _, module in imported(path) if module.split(".")[0] == "torch"
    }
    assert all(name.startswith("pytorch_") for name in loading)


def used(path: Path) -> Iterator[tuple[int, str]]:
    """Give the functions that a module calls and the attributes that it reads, as written."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call):
            yield node.lineno, ast.unparse(node.func) + "()"
        elif isinstance(node, ast.Attribute):
            yield node.lineno, ast.unparse(node)


def offenders(forbidden: set[str], excepted: set[str]) -> list[str]:
    """Give the places below the command line that use what is forbidden, but those in excepted modules."""
    return [
        f"{name_of(path)}:{line} {what}"
        for path in modules()
        if part_of(path) not in ("cli", "checks") and name_of(path) not in excepted
        for line, what in used(path)
        if what in forbidden
    ]


def test_only_the_command_line_speaks_and_ends() -> None:
    """Below it nothing prints, reads a terminal or the arguments, or ends the process."""
    speaking = {"print()", "input()", "exit()", "quit()", "sys.exit", "sys.argv", "os._exit", "os.abort"}
    speaking |= {"sys.stdout", "sys.stderr", "sys.stdin", "click.echo", "logging.getLogger"}
    assert offenders(speaking, set()) == []


def test_only_adapters_read_the_environment() -> None:
    """Below the command line the environment is configuration of the adapters that are named here."""
    reading = {"os.environ", "os.getenv()", "os.environb", "os.putenv()"}
    assert offenders(reading, set(ENVIRONMENT)) == []
    assert all(reason for reason in ENVIRONMENT.values())
    idle = [
        name
        for name in ENVIRONMENT
        if not any(what in reading for path in modules() if name_of(path) == name for _, what in used(path))
    ]
    assert idle == [], "the exception is no longer needed"


def test_no_stage_reads_the_clock() -> None:
    """The date comes from the command line or from the lock; only limits of questions are measured."""
    clocks = {"time.time()", "time.time_ns()", "datetime.now()", "datetime.utcnow()", "datetime.today()"}
    clocks |= {"date.today()", "time.localtime()", "time.gmtime()"}
    assert offenders(clocks, set()) == []
    assert offenders({"time.monotonic()", "time.perf_counter()"}, STOPWATCH) == []


@pytest.mark.parametrize("part", ["request", "resolve", "render", "lint", "matrix"])
def test_the_middle_is_pure(part: str) -> None:
    """Resolving, rendering and linting start no process, open no connection and draw no number."""
    impure = {"subprocess", "socket", "http", "urllib", "docker", "random", "secrets", "uuid", "threading"}
    found = {
        f"{name_of(path)}:{line} {module}"
        for path in modules()
        if part_of(path) == part
        for line, module in imported(path)
        if module.split(".")[0] in impure and not module.startswith("urllib.parse")
    }
    assert found == set()


def test_modules_stay_small() -> None:
    """A module past 300 lines is split by noun."""
    lines = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in modules()}
    assert {name: count for name, count in lines.items() if count > LINES_OF_A_MODULE} == {}


def _body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's statements: options of a command and its docstring are no logic."""
    statements = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (statements[-1].end_lineno or 0) - statements[0].lineno + 1 if statements else 0


def test_functions_stay_small() -> None:
    """A function has at most 40 lines of statements."""
    found = {
        f"{name_of(path)}.{node.name}": count
        for path in modules()
        for node in ast.walk(tree(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and (count := _body(node)) > LINES_OF_A_FUNCTION
    }
    assert found == {}


def test_public_functions_and_classes_say_what_they_do() -> None:
    """Everything with a public name has a docstring."""
    silent = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in modules()
        for node in tree(path).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []
