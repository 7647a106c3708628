"""The report of a run: one JSON document, or a table that a person reads."""

from __future__ import annotations

import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Dict, List, Sequence

if TYPE_CHECKING:
    from .result import CheckResult


def document(results: Sequence[CheckResult], verdict: str, about: Dict[str, Any]) -> Dict[str, Any]:
    """Give report.json: schema, what was run where, all results, their counts, the verdict."""
    counts = dict.fromkeys(("pass", "fail", "skip"), 0)
    for result in results:
        counts[result.status] += 1
    return {
        "schema": 1,
        **about,
        "seconds": round(sum(result.seconds for result in results), 3),
        "results": [result.to_dict() for result in results],
        "counts": counts,
        "verdict": verdict,
    }


def write(path: str, report: Dict[str, Any]) -> None:
    """Write the report beside its place, then move it there: a reader never sees half of it."""
    folder = os.path.dirname(os.path.abspath(path))
    handle, draft = tempfile.mkstemp(dir=folder, prefix=".report-", suffix=".json")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2, default=str)
            file.write("\n")
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise


def row(result: CheckResult) -> str:
    """Give a result as one line of the table, with diagnosis and next step below it where it failed."""
    where = "" if result.device in (None, "host") else " [{}]".format(result.device)
    lines = [
        "{:<5}{:<22}{:>7.1f}s  {}{}".format(result.status, result.id, result.seconds, result.summary, where)
    ]
    if result.status == "fail":
        lines += _indented("why ", result.diagnosis) + _indented("next", result.next_step)
    return "\n".join(lines)


def _indented(label: str, text: Any) -> List[str]:
    return ["       {}  {}".format(label, text)] if text else []


def closing(report: Dict[str, Any]) -> str:
    """Give the last lines: counts, why there is no GPU evidence, the verdict."""
    counts = report["counts"]
    lines = ["{} passed, {} failed, {} skipped in {:.0f} s".format(
        counts["pass"], counts["fail"], counts["skip"], report["seconds"])]  # fmt: skip
    blind = [
        result for result in report["results"] if result["group"] == "gpu" and result["status"] == "skip"
    ]
    if blind:
        lines.append("no GPU evidence: {}".format(blind[0]["diagnosis"]))
        lines.append("to get it: {}".format(blind[0]["next_step"]))
    lines.append("verdict: {}".format(report["verdict"]))
    return "\n".join(lines)
