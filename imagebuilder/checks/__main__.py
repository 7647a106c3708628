"""The command line: `imgbuild-check`, `python -m checks`, `python -m imagebuilder.checks`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Tuple

from . import catalogue, manifest, report, runner

if TYPE_CHECKING:
    from .catalogue import Check

PASSED, USAGE, FAILED, INTERRUPTED = 0, 2, 6, 130


def parser() -> argparse.ArgumentParser:
    """Give the parser of the options."""
    options = argparse.ArgumentParser(
        prog="imgbuild-check",
        description="Run the smoke checks in this environment, each in a process of its own.",
        epilog="exit codes: 0 no check failed, 2 wrong usage, 6 a check failed (or no GPU evidence)",
    )
    add = options.add_argument
    add("--suite", choices=("quick", "full"), default="quick", help="how much to run (default: quick)")
    add("--only", action="append", default=[], metavar="ID", help="run this check or group only; repeatable")
    add("--skip", action="append", default=[], metavar="ID", help="leave this check or group out; repeatable")
    add("--gpus", default="all", metavar="all|none|N", help="GPUs to use; N fails when fewer are visible")
    add("--device", choices=("cpu", "cuda"), help="where to run (default: cuda where a GPU is, else cpu)")
    add("--timeout", type=_seconds, metavar="S", help="seconds for each check, in place of its own limit")
    add("--require-gpu", action="store_true", help="fail when there is no GPU evidence")
    add(
        "--manifest",
        default=manifest.DEFAULT_PATH,
        metavar="PATH",
        help="stack.json to compare with (default: %(default)s)",
    )
    add("--report", metavar="PATH", help="write the JSON report to this file")
    add("--format", choices=("text", "json"), default="text", help="what to print on stdout")
    add("--list", action="store_true", help="show the checks and run none")
    return options


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("seconds are more than 0")
    return value


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run what the options say; give the exit code."""
    options = parser().parse_args(arguments)
    try:
        device, gpus = _devices(options.gpus, options.device)
        found = _promised(options.manifest)
        framework = runner.detect_framework(found.framework if found else None)
        known = catalogue.for_framework(framework, found.extras if found else ())
        checks = catalogue.select(known, options.only, options.skip)
        if not checks:
            raise catalogue.UnknownCheckError(
                "no check is left to run; framework here: {}".format(framework or "none")
            )
    except (catalogue.UnknownCheckError, ValueError) as error:
        print("imgbuild-check: {}".format(error), file=sys.stderr)
        return USAGE
    if options.list:
        _list(checks, options.format)
        return PASSED
    plan = runner.Plan(checks, options.suite, device, gpus, options.timeout, options.manifest)
    try:
        return _run(plan, options, framework)
    except KeyboardInterrupt:
        print("imgbuild-check: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has left; Python must not flush into it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return INTERRUPTED


def _devices(gpus: str, device: Optional[str]) -> Tuple[Optional[str], Optional[int]]:
    """Read --gpus together with --device."""
    if gpus == "all":
        return device, None
    if gpus == "none":
        return "cpu", None
    if not gpus.isdigit() or int(gpus) < 1:
        raise ValueError("`--gpus {}` is none of all, none and a number from 1 on".format(gpus))
    return device, int(gpus)


def _promised(path: str) -> Optional[manifest.Manifest]:
    """Read the manifest; a broken one is the checks' to report."""
    try:
        return manifest.read(path)
    except manifest.ManifestError:
        return None


def _list(checks: Sequence[Check], form: str) -> None:
    if form == "json":
        print(
            json.dumps([{"id": c.id, "group": c.group, "device": c.device, "title": c.title} for c in checks])
        )
        return
    for check in checks:
        print("{:<22}{:<6}{}".format(check.id, check.device, check.title))


def _run(plan: runner.Plan, options: argparse.Namespace, framework: Optional[str]) -> int:
    facts = runner.probe()
    text = options.format == "text"
    about = _about(plan, facts, framework)
    if text:
        print(
            "framework {}, manifest {}, suite {}\n".format(
                framework or "none", about["manifest"], plan.suite
            ),
            flush=True,
        )
    results = runner.run(plan, facts, lambda result: print(report.row(result), flush=True) if text else None)
    verdict = runner.verdict(results, require_gpu=options.require_gpu)
    document = report.document(results, verdict, about)
    if options.report:
        report.write(options.report, document)
    print("\n" + report.closing(document) if text else json.dumps(document, indent=2, default=str))
    return FAILED if verdict == runner.FAILED else PASSED


def _about(plan: runner.Plan, facts: Dict[str, Any], framework: Optional[str]) -> Dict[str, Any]:
    """Say what was looked at: the stack by its manifest, or that there is nothing to compare with."""
    stack: Optional[str] = None
    note = "{} is absent, so nothing is compared with it".format(plan.manifest)
    try:
        found = manifest.read(plan.manifest or manifest.DEFAULT_PATH)
        if found is not None:
            stack, note = found.identifier, found.identifier
    except manifest.ManifestError as error:
        note = str(error)
    return {"stack": stack, "manifest": note, "framework": framework, "suite": plan.suite, "host": facts}


if __name__ == "__main__":
    exit_code: int = main()
    sys.exit(exit_code)
