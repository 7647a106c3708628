"""Image -> SmokeReport: runs checks/ inside a container; a failure is a result, not an exception."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from imagebuilder.engine import Engine, Outcome, Run
from imagebuilder.errors import OutsideError

if TYPE_CHECKING:
    from collections.abc import Mapping

Status = Literal["pass", "fail", "skip"]
Verdict = Literal["passed", "passed without GPU evidence", "failed"]
Suite = Literal["quick", "full"]

# Seconds for all checks of a suite together; every single check has a shorter limit of its own.
SUITE_TIMEOUT: Mapping[Suite, float] = {"quick": 900, "full": 2400}
# NCCL and data loaders share memory between processes; Docker's own default of 64 MiB is too small for both.
SHM_SIZE = 1 << 30
PLACE = "/imgbuild-smoke"
# The check without which no GPU has run anything of the framework.
KERNELS = "gpu.matmul"
REPORT = "/tmp/imgbuild-report.json"  # noqa: S108  a path inside the container, read back from there
# The checks run with the Python that the image offers first, whatever the image is.
SCRIPT = f"""
cd {PLACE} || exit 125
for python in python3 python; do
    if command -v "$python" >/dev/null 2>&1; then exec "$python" -m checks --report {REPORT} "$@"; fi
done
echo "no python3 or python on PATH" >&2
exit 127
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found; `evidence` holds numbers and names, `device` is `cuda`, `cpu` or `host`."""

    id: str
    group: str
    status: Status
    seconds: float
    device: str | None = None
    summary: str
    evidence: Mapping[str, Any] = field(default_factory=dict)
    diagnosis: str | None = None
    next_step: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeReport:
    """All results of one image on one host."""

    schema: int = 1
    image: str
    digest: str | None
    stack: str | None
    host: Mapping[str, Any]
    results: tuple[CheckResult, ...]
    verdict: Verdict


def smoke(
    engine: Engine,
    reference: str,
    checks: Mapping[str, bytes],
    *,
    suite: Suite = "quick",
    gpus: int | None = None,
    require_gpu: bool = False,
    user: str | None = None,
) -> SmokeReport:
    """Run the checks in a container of an image, ours or not, and give the report.

    `gpus` is the number of GPUs to ask the engine for, -1 for all, None for no device request. Raises
    OutsideError where the image or the engine is missing or the container cannot start.
    """
    image = engine.image(reference)
    if image is None:
        raise OutsideError(
            f"the engine has no image `{reference}`", hint=f"docker pull {shlex.quote(reference)}"
        )
    arguments = ["--suite", suite, *(["--require-gpu"] if require_gpu else [])]
    outcome = engine.run(
        Run(
            image=image.digest,
            entrypoint=["/bin/sh", "-c", SCRIPT, "checks"],
            command=arguments,
            files={f"{PLACE[1:]}/checks/{name}": content for name, content in checks.items()},
            take=REPORT,
            gpus=gpus,
            shm_size=SHM_SIZE,
            # collectives need a network interface to meet on, and nothing beyond this host
            network="bridge",
            user=user,
            timeout=SUITE_TIMEOUT[suite],
        )
    )
    results, host = _read(outcome, SUITE_TIMEOUT[suite])
    return SmokeReport(
        image=reference,
        digest=image.digest,
        stack=image.labels.get("io.imgbuild.stack"),
        host=host,
        results=results,
        verdict=_verdict(results, require_gpu),
    )


def _verdict(results: tuple[CheckResult, ...], require_gpu: bool) -> Verdict:
    """Give the verdict by the rule of the checks: `passed` needs all of `gpu` on a GPU, the kernels too."""
    if any(result.status == "fail" for result in results):
        return "failed"
    gpu = [result for result in results if result.group == "gpu"]
    kernels = any(result.id == KERNELS for result in gpu)
    if kernels and all(result.status == "pass" and result.device == "cuda" for result in gpu):
        return "passed"
    return "failed" if require_gpu else "passed without GPU evidence"


def _read(outcome: Outcome, limit: float) -> tuple[tuple[CheckResult, ...], Mapping[str, Any]]:
    """Read the runner's report; what the container did instead of writing one is a failed check."""
    try:
        document = json.loads(outcome.taken or b"")
        results = tuple(_result(entry) for entry in document["results"])
        host = dict(document.get("host") or {})
    except (ValueError, KeyError, TypeError) as error:
        return (_no_report(outcome, limit, error),), {}
    if outcome.exit_code is None:
        results = (*results, _no_report(outcome, limit, None))
    return results, host


def _result(entry: Mapping[str, Any]) -> CheckResult:
    if entry["status"] not in get_args(Status):
        raise ValueError(f"unknown status {entry['status']!r}")
    return CheckResult(
        id=str(entry["id"]),
        group=str(entry["group"]),
        status=entry["status"],
        seconds=float(entry["seconds"]),
        device=entry.get("device"),
        summary=str(entry["summary"]),
        evidence=dict(entry.get("evidence") or {}),
        diagnosis=entry.get("diagnosis"),
        next_step=entry.get("next_step"),
    )


def _no_report(outcome: Outcome, limit: float, error: Exception | None) -> CheckResult:
    """Say why there is no whole report: time limit, memory, no Python, or an image that cannot start it."""
    last = outcome.logs.strip().splitlines()[-5:]
    diagnosis = f"the checks ended with exit code {outcome.exit_code}"
    next_step = "look at the last lines of its output in the evidence"
    if outcome.exit_code is None:
        diagnosis = f"the checks did not end within {limit:.0f} s and were stopped"
    elif outcome.out_of_memory:
        diagnosis, next_step = "the container ran out of memory", "give the engine more memory"
    elif outcome.exit_code == 127:
        diagnosis, next_step = (
            "the image has no Python on PATH",
            "test an image that holds Python and a framework",
        )
    return CheckResult(
        id="runner.report",
        group="env",
        status="fail",
        seconds=0.0,
        device="host",
        summary="the checks gave no whole report",
        evidence={"output": last, "reason": str(error) if error else None},
        diagnosis=diagnosis,
        next_step=next_step,
    )


def report_to_dict(report: SmokeReport) -> dict[str, Any]:
    """Give the report as the document that report.json holds (docs/report.md)."""
    return asdict(report)


def report_from_dict(document: Mapping[str, Any]) -> SmokeReport:
    """Read report.json back; raises KeyError, TypeError or ValueError where it is not one."""
    results = tuple(_result(entry) for entry in document["results"])
    if document["schema"] != 1 or document["verdict"] not in get_args(Verdict):
        raise ValueError("not a report of this schema")
    return SmokeReport(
        image=str(document["image"]),
        digest=document["digest"],
        stack=document["stack"],
        host=dict(document["host"]),
        results=results,
        verdict=document["verdict"],
    )


def junit_xml(report: SmokeReport) -> bytes:
    """Give the report as JUnit XML: one suite a group, one case a check."""
    from xml.etree.ElementTree import Element, SubElement, tostring

    root = Element("testsuites", name=report.image)
    for group in dict.fromkeys(result.group for result in report.results):
        members = [result for result in report.results if result.group == group]
        counts = {status: str(sum(m.status == status for m in members)) for status in get_args(Status)}
        suite = SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(members)),
            failures=counts["fail"],
            skipped=counts["skip"],
            time=f"{sum(m.seconds for m in members):.3f}",
        )
        for member in members:
            case = SubElement(
                suite, "testcase", classname=group, name=member.id, time=f"{member.seconds:.3f}"
            )
            if member.status == "fail":
                SubElement(
                    case, "failure", message=_xml_text(member.diagnosis or member.summary)
                ).text = _xml_text(member.next_step or "")
            elif member.status == "skip":
                SubElement(case, "skipped", message=_xml_text(member.summary))
            SubElement(case, "system-out").text = _xml_text(json.dumps(member.evidence, default=str))
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _xml_text(text: str) -> str:
    """Leave out the control characters that XML 1.0 cannot hold."""
    return "".join(char for char in text if char in "\t\n\r" or ord(char) >= 0x20)
