"""A report is read from what the container left behind; a missing one is a failed check, no exception."""

from __future__ import annotations

import json
from xml.etree.ElementTree import fromstring

import pytest

from imagebuilder.engine import Outcome
from imagebuilder.smoke import (
    KERNELS,
    CheckResult,
    SmokeReport,
    _read,
    _verdict,
    junit_xml,
    report_from_dict,
    report_to_dict,
)


def result(group: str, status: str, **fields: object) -> CheckResult:
    """Give a result with defaults."""
    name = {"gpu": KERNELS}.get(group, f"{group}.x")
    values = {"id": name, "group": group, "status": status, "seconds": 0.5, "summary": "so"}
    return CheckResult(**{**values, **fields})  # type: ignore[arg-type]


def outcome(**fields: object) -> Outcome:
    """Give what a run gave, with defaults."""
    values = {"exit_code": 0, "logs": "", "taken": None, "out_of_memory": False}
    return Outcome(**{**values, **fields})  # type: ignore[arg-type]


REPORT = SmokeReport(
    image="pytorch:1",
    digest="sha256:0",
    stack=None,
    host={"cpus": 2},
    results=(
        result("env", "pass", evidence={"bell": "\x07"}),
        result("gpu", "skip"),
        result("libs", "fail", diagnosis="no\x00thing", next_step="do"),
    ),
    verdict="failed",
)


@pytest.mark.parametrize(
    ("statuses", "require", "verdict"),
    [
        ({"env": "pass", "gpu": "skip"}, False, "passed without GPU evidence"),
        ({"env": "pass", "gpu": "skip"}, True, "failed"),
        ({"env": "pass", "gpu": "pass"}, True, "passed"),
        ({"env": "fail", "gpu": "pass"}, False, "failed"),
    ],
)
def test_a_skip_is_never_a_pass(statuses: dict[str, str], require: bool, verdict: str) -> None:
    """Without a GPU that ran the kernels the verdict says so, and fails where evidence is required."""
    results = tuple(result(*pair, device="cuda") for pair in statuses.items())
    assert _verdict(results, require) == verdict


@pytest.mark.parametrize("blind", [("pass", "cpu"), ("pass", None), ("skip", None)])
def test_one_passed_gpu_check_is_not_enough(blind: tuple[str, str | None]) -> None:
    """A GPU check that was skipped or ran on the CPU is not made good by another that passed on a GPU."""
    results = (result("gpu", "pass", device="cuda"), result("gpu", blind[0], device=blind[1]))
    assert _verdict(results, False) == "passed without GPU evidence"
    assert _verdict(results, True) == "failed"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exit_code": None}, "did not end within"),
        ({"exit_code": 127}, "no Python"),
        ({"exit_code": 137, "out_of_memory": True}, "out of memory"),
        ({"exit_code": 1, "taken": b"{]"}, "exit code 1"),
        ({"exit_code": 0, "taken": b'{"results": [{"id": 1}]}'}, "exit code 0"),
        ({"exit_code": 0, "taken": b'{"results": 7}'}, "exit code 0"),
    ],
)
def test_no_whole_report_is_a_failed_check(fields: dict[str, object], words: str) -> None:
    """A hang, a crash, no Python, no memory or garbage: one failed check that says which."""
    results, _ = _read(outcome(**fields), 60)
    assert [one.status for one in results] == ["fail"]
    assert words in str(results[0].diagnosis)


def test_a_report_is_read_whole_whatever_the_image_prints() -> None:
    """A banner on stdout does not matter: the report is a file."""
    document = report_to_dict(REPORT)
    results, host = _read(outcome(taken=json.dumps(document).encode(), logs="== BANNER =="), 60)
    assert results == REPORT.results
    assert host == {"cpus": 2}


def test_a_run_that_was_stopped_keeps_what_was_reported_and_fails() -> None:
    """The time limit of the whole run is a failed check beside the results that are there."""
    taken = json.dumps(report_to_dict(REPORT)).encode()
    results, _ = _read(outcome(exit_code=None, taken=taken), 60)
    assert results[-1].id == "runner.report"
    assert len(results) == len(REPORT.results) + 1


def test_a_report_survives_its_file() -> None:
    """report.json read back gives an equal report."""
    assert report_from_dict(json.loads(json.dumps(report_to_dict(REPORT)))) == REPORT


@pytest.mark.parametrize("change", [{"schema": 2}, {"verdict": "fine"}, {"results": [{"status": "ok"}]}])
def test_a_foreign_report_is_refused(change: dict[str, object]) -> None:
    """Another schema, verdict or status is not read as ours."""
    with pytest.raises((ValueError, KeyError, TypeError)):
        report_from_dict({**report_to_dict(REPORT), **change})


def test_junit_counts_and_escapes() -> None:
    """JUnit XML has a suite a group with its counts, and control characters cannot break it."""
    root = fromstring(junit_xml(REPORT))  # noqa: S314  our own text
    counts = {s.get("name"): (s.get("tests"), s.get("failures"), s.get("skipped")) for s in root}
    assert counts == {"env": ("1", "0", "0"), "gpu": ("1", "0", "1"), "libs": ("1", "1", "0")}
    failure = root.find("./testsuite[@name='libs']/testcase/failure")
    assert failure is not None
    assert failure.get("message") == "nothing"
