"""Whole-process time of the command line beside HPCCM and bare Python, as ratios of medians.

    python benchmarks/cli.py [--runs 25] [--json]

Runs `imgbuild` and `hpccm` from the bin folder of this interpreter (`pip install . hpccm` into it first).
The runs are interleaved, so that what else the machine does hits all of them alike. Exit code 1: a budget
was missed; 2: `imgbuild` is not installed beside this interpreter.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BIN = Path(sys.executable).parent
REQUEST = ("--framework", "pytorch", "--cuda", "12.1")
# The same image in HPCCM's words: a distribution's Python with torch of the same version on it.
RECIPE = """
Stage0 += baseimage(image='ubuntu:22.04')
Stage0 += python(python2=False)
Stage0 += pip(packages=['torch==2.4.1'], pip='pip3')
"""
# How many times HPCCM's rendering a command may take.
BUDGETS = {"imgbuild --help": 1.5, "imgbuild resolve": 2.0}


def commands(folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Give the commands to time by name, and what is missing with its reason.

    `folder` takes the recipe and the lock; locking needs the package index, once.
    """
    missing = []
    imgbuild, hpccm = str(BIN / "imgbuild"), str(BIN / "hpccm")
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "imgbuild --help": [imgbuild, "--help"],
        "imgbuild resolve": [imgbuild, "resolve", *REQUEST],
    }
    lock, context = folder / "torch.lock", folder / "context"
    render = [imgbuild, "render", "--lock", str(lock), "-o", str(context)]
    for command in ([imgbuild, "lock", *REQUEST, "-o", str(lock)], render):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            missing.append(f"imgbuild render: `{' '.join(command[1:])}` failed: {done.stderr.strip()}")
            break
    else:
        found["imgbuild render"] = render
    if Path(hpccm).exists():
        recipe = folder / "recipe.py"
        recipe.write_text(RECIPE)
        found["hpccm --recipe"] = [hpccm, "--recipe", str(recipe)]
    else:
        missing.append(f"hpccm --recipe: not installed here; {sys.executable} -m pip install hpccm")
    return found, missing


def measure(found: dict[str, list[str]], runs: int) -> dict[str, list[float]]:
    """Give the seconds of each run of each command, after one run of each that is not counted."""
    for command in found.values():
        subprocess.run(command, check=True, capture_output=True)
    seconds: dict[str, list[float]] = {name: [] for name in found}
    for _ in range(runs):
        for name, command in found.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - started)
    return seconds


def summary(seconds: dict[str, list[float]]) -> list[dict[str, float | str | bool | None]]:
    """Give one row a command: median, spread, ratios to bare Python and to HPCCM, and its budget."""
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    bare, hpccm = medians["python -c pass"], medians.get("hpccm --recipe")
    rows: list[dict[str, float | str | bool | None]] = []
    for name, median in medians.items():
        quarter, _, three_quarters = statistics.quantiles(seconds[name], n=4)
        to_hpccm = round(median / hpccm, 2) if hpccm else None
        budget = BUDGETS.get(name)
        rows.append(
            {
                "command": name,
                "median_s": round(median, 4),
                "quartile_range_s": round(three_quarters - quarter, 4),
                "to_python": round(median / bare, 2),
                "to_hpccm": to_hpccm,
                "budget_to_hpccm": budget,
                "within_budget": None if budget is None or to_hpccm is None else to_hpccm <= budget,
            }
        )
    return rows


def table(rows: list[dict[str, float | str | bool | None]]) -> str:
    """Give the rows for people."""
    lines = [f"{'command':<18}{'median':>10}{'+-':>9}{'x python':>10}{'x hpccm':>10}{'budget':>8}"]
    for row in rows:
        to_hpccm, budget = row["to_hpccm"], row["budget_to_hpccm"]
        name, median, spread = row["command"], row["median_s"], row["quartile_range_s"]
        verdict = {True: "  ok", False: "  MISSED", None: ""}[row["within_budget"]]  # type: ignore[index]
        lines.append(
            f"{name:<18}{median:>8.3f} s{spread:>7.3f} s{row['to_python']:>10.2f}"
            f"{'-' if to_hpccm is None else format(to_hpccm, '.2f'):>10}"
            f"{'' if budget is None else format(budget, '.1f'):>8}{verdict}"
        )
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=25, help="runs of each command, at least 20 for a median")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    if not (BIN / "imgbuild").exists():
        print(f"imgbuild is not installed in {BIN}: {sys.executable} -m pip install .", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="imgbuild-benchmark-") as folder:
        found, missing = commands(Path(folder))
        rows = summary(measure(found, options.runs))
    if options.json:
        print(json.dumps({"runs": options.runs, "commands": rows, "missing": missing}, indent=2))
    else:
        print(table(rows), *(f"missing: {one}" for one in missing), sep="\n")
    return int(any(row["within_budget"] is False for row in rows))


if __name__ == "__main__":
    sys.exit(main())
