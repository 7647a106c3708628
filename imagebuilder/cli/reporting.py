"""What `test` and `build` share: run the checks, show and keep the report, turn a verdict into an exit."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from imagebuilder.cli.output import say, styled, table
from imagebuilder.errors import SmokeError, UsageError
from imagebuilder.smoke import SmokeReport, Suite, junit_xml, report_to_dict, smoke

if TYPE_CHECKING:
    from pathlib import Path

    from imagebuilder.build import Image
    from imagebuilder.engine import Engine

# Seconds that the driver may take to name its GPUs.
GPU_SEARCH = 20
COLOURS = {"pass": "green", "fail": "red", "skip": "yellow"}


@dataclass(frozen=True, slots=True)
class Tests:
    """How the images of a build are tested: the suite, whether a GPU must be seen, where reports go."""

    suite: str
    require_gpu: bool
    folder: Path | None

    def run(self, engine: Engine, image: Image, beneath: str = "") -> SmokeReport:
        """Run the checks, or take the report of the last run where image and question are the same.

        `beneath` is the part of the reports' folder that is this image's own. Raises SmokeError.
        """
        from imagebuilder.cli.pipeline import cache_folder

        folder = cache_folder() / "reports" / image.digest.removeprefix("sha256:") / self.suite
        report = kept_report(folder) if image.reused else None
        if report is None or (self.require_gpu and report.verdict != "passed"):
            report = run_smoke(
                engine, image.reference, suite=self.suite, gpus="auto", require_gpu=self.require_gpu
            )
            if report.verdict != "failed":
                write_report(report, folder)
        else:
            show(report)
        if self.folder is not None:
            write_report(report, self.folder / beneath)
        finish(report, self.require_gpu)
        return report


def run_smoke(
    engine: Engine, image: str, *, suite: str, gpus: str, require_gpu: bool, user: str | None = None
) -> SmokeReport:
    """Run the checks on an image and print their table on stderr."""
    chosen: Suite = "full" if suite == "full" else "quick"
    report = smoke(
        engine,
        image,
        packaged_checks(),
        suite=chosen,
        gpus=_count(gpus),
        require_gpu=require_gpu,
        user=user,
    )
    show(report)
    return report


def packaged_checks() -> dict[str, bytes]:
    """Read the files of imagebuilder/checks, by their path inside the folder."""
    from imagebuilder.resources import checks_path

    root = checks_path()
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*.py"))}


def _count(gpus: str) -> int | None:
    """Turn the option into the engine's count: -1 for all, None for no request."""
    if gpus == "auto":
        from imagebuilder.host import this_host
        from imagebuilder.host.reach import together

        # a broken driver can hang whoever asks it
        found = together({"host": this_host}, seconds=GPU_SEARCH)
        return -1 if "host" in found and found["host"].gpus else None
    return {"all": -1, "none": None}.get(gpus, int(gpus) if gpus.isdecimal() else None)


def show(report: SmokeReport) -> None:
    """Print one line a check, then what failed with its diagnosis and next step, then the verdict."""
    rows = [
        (
            styled(result.status, COLOURS[result.status]),
            result.id,
            f"{result.seconds:.1f} s",
            result.device or "",
            result.summary,
        )
        for result in report.results
    ]
    say(table(rows))
    for result in report.results:
        if result.status == "fail":
            say(f"\n{styled('fail', 'red')} {result.id}: {result.diagnosis or result.summary}")
            if result.next_step:
                say(f"  next: {result.next_step}")
    say(f"\nverdict: {styled(report.verdict, 'bold')}")


def write_report(report: SmokeReport, folder: Path) -> None:
    """Write report.json and junit.xml into a folder, each whole or not at all."""
    files = {
        "report.json": (json.dumps(report_to_dict(report), indent=2, default=str) + "\n").encode(),
        "junit.xml": junit_xml(report),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            beside = folder / f".{name}.part"
            beside.write_bytes(content)
            beside.replace(folder / name)
    except OSError as error:
        raise UsageError(f"cannot write the report to `{folder}`", why=error.strerror) from error


def finish(report: SmokeReport, require_gpu: bool) -> None:
    """Raise SmokeError for a failed verdict."""
    if report.verdict != "failed":
        return
    failed = [result.id for result in report.results if result.status == "fail"]
    document = report_to_dict(report)
    if failed:
        raise SmokeError(
            f"smoke checks failed: {', '.join(failed)}",
            report=document,
            hint=f"imgbuild test {report.image} --suite full",
        )
    raise SmokeError(
        "no GPU has run this image",
        report=document,
        why="`--require-gpu` asks for GPU evidence and this host gave none",
        hint=f"on a host with a GPU: imgbuild test {report.image} --require-gpu; here: imgbuild doctor",
    )


def kept_report(folder: Path) -> SmokeReport | None:
    """Give the report that an earlier run left in a folder; None where there is none that can be read."""
    from imagebuilder.smoke import report_from_dict

    try:
        return report_from_dict(json.loads((folder / "report.json").read_text()))
    except (OSError, ValueError, KeyError, TypeError):
        return None
