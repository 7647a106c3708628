"""The child's side: run one check and write its answer to the pipe whose number is the only argument."""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import sys
import traceback
import warnings
from typing import Any, Callable, Dict

from . import manifest, symptoms
from .result import Context, Failed, Outcome, Skipped

# torch only warns about a GPU that its wheel has no code for; here such a warning is a failure.
_CAPABILITY_WARNINGS = (
    r"(?s).*is not compatible with the current PyTorch installation",
    r"(?s).*which is of (cuda )?capability",
    r"(?s).*which has less than .* compute capability",
    r"(?s).*no longer supports? this GPU",
    r"(?s).*The minimum .*supported by this library",
)


def main() -> None:
    """Read the request from stdin, run the check, answer."""
    pipe = int(sys.argv[1])
    os.set_inheritable(pipe, False)  # else a grandchild keeps it open
    request = json.load(sys.stdin)
    faulthandler.enable()
    # Shortly before the runner loses patience, say where every thread stands.
    faulthandler.dump_traceback_later(max(request["limit"] - 1.0, request["limit"] * 0.8), exit=False)
    for pattern in _CAPABILITY_WARNINGS:
        warnings.filterwarnings("error", message=pattern)
    answer = perform(request["function"], _context(request))
    data = json.dumps(answer, default=str).encode()
    while data:
        data = data[os.write(pipe, data) :]
    sys.stdout.flush()
    # The answer is given: no destructor of a broken library shall turn it into a crash.
    os._exit(0)


def _context(request: Dict[str, Any]) -> Context:
    found, error = None, None
    try:
        found = manifest.read(request["manifest"]) if request.get("manifest") else None
    except manifest.ManifestError as broken:
        error = str(broken)
    return Context(
        device=request["device"],
        gpus=request.get("gpus"),
        suite=request["suite"],
        manifest=found,
        manifest_error=error,
        limit=request["limit"],
    )


def load(function: str) -> Callable[[Context], Outcome]:
    """Import `module:name` of this package."""
    module, _, name = function.partition(":")
    found: Callable[[Context], Outcome] = getattr(
        importlib.import_module("{}.{}".format(__package__, module)), name
    )
    return found


def perform(function: str, context: Context) -> Dict[str, Any]:
    """Run one check function here and now, and give status, summary, evidence, diagnosis and next_step."""
    try:
        outcome = load(function)(context)
    except Skipped as skipped:
        return _answer("skip", skipped)
    except Failed as failed:
        return _answer("fail", failed)
    except BaseException as error:  # an unforeseen end, sys.exit included, is a failed check
        return _answer("fail", explain(error))
    return {"status": "pass", "summary": outcome.summary, "evidence": outcome.evidence}


def explain(error: BaseException) -> Failed:
    """Turn an exception into a failure, with the cause where its message is a known one."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    message = "{}: {}".format(type(error).__name__, error).strip().splitlines()[0][:300]
    known = symptoms.find("".join(lines))
    return Failed(
        message,
        diagnosis=known.diagnosis if known else "unexpected {}".format(message),
        next_step=known.next_step if known else None,
        evidence={"traceback": "".join(lines).splitlines()[-25:]},
    )


def _answer(status: str, failed: Failed) -> Dict[str, Any]:
    return {
        "status": status,
        "summary": failed.summary,
        "evidence": failed.evidence,
        "diagnosis": failed.diagnosis,
        "next_step": failed.next_step,
    }


if __name__ == "__main__":
    main()
