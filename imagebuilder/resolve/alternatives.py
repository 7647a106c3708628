"""What a user could ask for instead: each clashing constraint changed to the nearest value that works."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeVar

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from imagebuilder.matrix.words import Cuda, Driver, Python
from imagebuilder.request import Arch, command

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from imagebuilder.resolve.candidates import Candidate, Constraint, Space
    from imagebuilder.resolve.names import WantedGpu

Change = tuple[str, dict[str, Any]]
Ordered = TypeVar("Ordered", Cuda, Driver, Python, Version)
_ORDER = ("cuda", "cudnn", "python", "os", "framework", "source", "arch", "driver", "gpu")


def alternatives(space: Space, clash: Sequence[Constraint]) -> tuple[dict[str, str], ...]:
    """Give the changes of fewest constraints that make the request work, as sentence and command.

    One constraint of the clash is changed at a time; where that does not help, or only by giving up a GPU,
    two of the request are, and so on. Those that give up a GPU come last.
    """
    kept_lines = [constraint for constraint in space.constraints if constraint.option not in _ORDER]
    order = sorted(
        (constraint for constraint in space.constraints if constraint.option in _ORDER),
        key=lambda constraint: _ORDER.index(constraint.option),
    )
    helped: list[set[Constraint]] = []
    kept: list[dict[str, str]] = []
    dropped: list[dict[str, str]] = []
    for size in range(1, len(order) + 1):
        for some in combinations(order, size):
            if not set(some) & set(clash) or any(less.issubset(some) for less in helped):
                continue
            met = space.meeting(
                [*kept_lines, *(constraint for constraint in order if constraint not in some)]
            )
            changes = list(_changes(space, some, met)) if met else []
            if changes:
                helped.append(set(some))
            for said, values in changes:
                request = replace(space.request, framework=space.name, **values)
                (dropped if "gpus" in values else kept).append({"change": said, "command": command(request)})
        if kept:
            break
    return (*kept, *dropped)


def matched(space: Space) -> list[Version]:
    """Give the releases with GPU builds that the request's specifier allows."""
    named = [c for c in space.constraints if c.option == "framework"]
    return sorted({offer.version for offer in space.offers_in(space.meeting(named))})


def asked_releases(space: Space, there: Collection[Version]) -> list[Version]:
    """Give the releases that the specifier allows; where there are none, the versions that it names."""
    known = matched(space)
    if known:
        return known
    named = [one.version.removesuffix(".*") for one in space.request.spec]
    return sorted(Version(Version(text).public) for text in named) or [max(there)]


def neighbours_of_range(
    asked: Sequence[Version], there: Collection[Version]
) -> tuple[Version | None, Version | None]:
    """Give the nearest versions below and above a range of versions."""
    return neighbours(asked[0], there)[0], neighbours(asked[-1], there)[1]


def neighbours(wanted: Any, values: Iterable[Ordered]) -> tuple[Ordered | None, Ordered | None]:
    """Give the nearest values up to the wanted one and above it."""
    below = [value for value in values if value <= wanted]
    above = [value for value in values if value > wanted]
    return max(below, default=None), min(above, default=None)


def _changes(space: Space, some: tuple[Constraint, ...], met: int) -> Iterator[Change]:
    """Give the changes of these constraints that the candidates in `met` allow: the nearest, one or two."""
    if len(some) > 1 or some[0].option in ("gpu", "driver"):
        change = _together(space, some, met)
        if change:
            yield change
        return
    for candidate in _nearest(space, some[0].option, list(space.candidates(met))):
        yield _to(space, some[0], candidate)


def _nearest(space: Space, option: str, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give for one option the best candidates with the nearest values below and above the wanted one."""
    if option == "cuda":
        by_cuda = _best_by(candidates, lambda c: c.offer.cuda)
        return [by_cuda[value] for value in neighbours(space.request.cuda, by_cuda) if value]
    if option == "python":
        by_python = _best_by(candidates, lambda c: c.base.python)
        return [by_python[value] for value in neighbours(space.request.python, by_python) if value]
    if option == "framework":
        by_version = _best_by(candidates, lambda c: c.offer.version)
        return [by_version[value] for value in _near_releases(space, by_version)]
    if option == "cudnn":
        return [candidate for candidate in candidates if candidate.offer.build.cudnn][:1]
    return list(candidates[:1])


def _first_near(space: Space, options: Sequence[str], candidates: Sequence[Candidate]) -> Candidate:
    """Give the best candidate with the nearest release or CUDA, newer before older, where those change."""
    for option in ("framework", "cuda"):
        if option in options:
            return _nearest(space, option, candidates)[-1]
    return candidates[0]


def _best_by(candidates: Sequence[Candidate], key: Callable[[Candidate], Any]) -> dict[Any, Candidate]:
    """Give for each value the best candidate that has it."""
    best: dict[Any, Candidate] = {}
    for candidate in candidates:
        best.setdefault(key(candidate), candidate)
    return best


def _near_releases(space: Space, there: Collection[Version]) -> list[Version]:
    """Give the release before those asked for, and the newest patch of the first minor behind them."""
    before, after = neighbours_of_range(asked_releases(space, there), there)
    if after:
        after = max(version for version in there if version.release[:2] == after.release[:2])
    return [version for version in (before, after) if version] or [max(there)]


def _together(space: Space, some: tuple[Constraint, ...], met: int) -> Change | None:
    """Give the change of several constraints at once to the values of the best candidate that allows it."""
    said: list[str] = []
    values: dict[str, Any] = {}
    dropped = {constraint.value for constraint in some if constraint.option == "gpu"}
    gpus = tuple(gpu for gpu in space.gpus if gpu.name not in dropped)
    if any(constraint.option == "driver" for constraint in some):
        driver, met = _nearest_driver(space, gpus, met)
        if driver is None:
            return None
        values["driver"] = driver
        newer = space.request.driver is not None and driver > space.request.driver
        said.append(f"host driver {driver}{' or newer' if newer else ''} instead of `{space.request.driver}`")
    chosen = _first_near(space, [c.option for c in some], list(space.candidates(met)))
    if dropped:
        values["gpus"] = tuple(gpu.name for gpu in gpus)
        said.append(f"without {' and '.join(sorted(dropped))}")
    for constraint in some:
        if constraint.option not in ("driver", "gpu"):
            words, changed = _to(space, constraint, chosen)
            values.update(changed)
            said.append(words)
    return ", ".join(said), values


def _nearest_driver(space: Space, gpus: Collection[WantedGpu], met: int) -> tuple[Driver | None, int]:
    """Give the driver nearest to the named one (newer ones first) with the candidates of `met` it runs."""
    wanted = space.request.driver
    runs: dict[Driver, int] = {}
    for driver in _known_drivers(space, gpus):
        allowed = met & space.with_driver(driver)
        for gpu in gpus:
            allowed &= space.with_gpu_and_driver(gpu, driver)
        if allowed:
            runs[driver] = allowed
    below, above = neighbours(wanted, runs)
    nearest = above or below
    return nearest, runs[nearest] if nearest else 0


def _known_drivers(space: Space, gpus: Collection[WantedGpu]) -> set[Driver]:
    """Give the drivers at which something begins or ends: CUDA majors, toolkits, the GPUs kept."""
    branches = {toolkit.driver_branch for toolkit in space.matrix.toolkits.values()}
    drivers = {major.driver_min for major in space.matrix.cuda_majors.values()}
    for gpu in gpus:
        branches |= {branch for branch in (gpu.gpu.driver_branch_first, gpu.gpu.driver_branch_last) if branch}
        drivers |= {gpu.gpu.driver_min} if gpu.gpu.driver_min else set()
    return drivers | {Driver.parse(str(branch)) for branch in branches}


def _to(space: Space, constraint: Constraint, candidate: Candidate) -> Change:
    """Give the change of one constraint to the value that a candidate has."""
    offer, base = candidate.offer, candidate.base
    archs: dict[str, Arch] = {"x86_64": "amd64", "aarch64": "arm64"}
    cudnn = None if offer.build.cudnn is None else SpecifierSet(f"=={offer.build.cudnn}")
    changes: dict[str, Change] = {
        "framework": (f"{space.name} {offer.version}", {"spec": SpecifierSet(f"=={offer.version}")}),
        "cuda": (f"CUDA {offer.cuda}", {"cuda": offer.cuda}),
        "cudnn": (f"cuDNN {offer.build.cudnn or 'of any version'}", {"cudnn": cudnn}),
        "python": (f"Python {base.python}", {"python": base.python}),
        "os": (f"base {candidate.os}", {"os": candidate.os}),
        "source": (f"the {offer.source} index", {"sources": (offer.source,)}),
        "arch": (f"platform {archs[offer.machine]}", {"arch": archs[offer.machine]}),
    }
    said, values = changes[constraint.option]
    return f"{said} instead of `{constraint.value}`", values
