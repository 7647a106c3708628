"""Everything that a request could get, best first, and what each of its constraints lets through.

A candidate is one build of one release for one machine, as one index serves it (an offer), on one base. Sets
of candidates are integers with one bit each, numbered in the order of preference of the design: the best
candidate of a set is its lowest bit, and constraints are met together by the intersection of their sets.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from packaging.version import Version

from imagebuilder.matrix.fit import (
    MACHINES,
    driver_compiles,
    driver_knows,
    driver_runs,
    glibc_fits,
    known_capabilities,
    python_fits,
    runs_on,
)
from imagebuilder.resolve.company import agrees, company_of, with_company
from imagebuilder.resolve.names import WantedGpu, check_base, find_framework, source_order, wanted_gpu
from imagebuilder.resolve.offers import Offer, is_named, offers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from packaging.requirements import Requirement
    from packaging.specifiers import SpecifierSet

    from imagebuilder.matrix.facts import Base, Machine, Matrix
    from imagebuilder.matrix.words import Capability, Cuda, Driver
    from imagebuilder.request import Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An offer on a base."""

    offer: Offer
    os: str
    base: Base


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """One constraint of a request: the option it came from and the value as it would be typed."""

    option: str
    value: str

    @property
    def shown(self) -> str:
        """The option with its value, quoted for a shell; a line of the requirements as it stands there."""
        if self.option == "requirements":
            return self.value
        value = self.value if self.option == "source" else shlex.quote(self.value)
        return f"--{self.option} {value}"


class Space:
    """The candidates of a request's framework, and the sets that its constraints let through.

    Raises UsageError where the request names a framework, GPU, base or source that the matrix does not know.
    """

    def __init__(self, request: Request, matrix: Matrix, requirements: Sequence[Requirement] = ()) -> None:
        self.request = request
        self.requirements = requirements
        self.name, self.framework = find_framework(matrix, request.framework)
        self.company = company_of(matrix, self.name, requirements)
        self.facts = matrix
        self.matrix = matrix = with_company(matrix, self.company)
        self.gpus = tuple(wanted_gpu(matrix, name) for name in sorted(request.gpus))
        self.sources = source_order(self.framework, request.sources)
        check_base(matrix, request.os)
        self.bases = sorted(matrix.bases.items(), key=lambda item: (not item[1].default, item[0]))
        self._code: dict[tuple[object, ...], Literal["cubin", "ptx"] | None] = {}
        self.known_capabilities = known_capabilities(matrix)
        self.offers = offers_of(matrix, self.framework, self.sources)
        self.possible = self._fitting_bases() & self._offered(lambda offer: _is_offered(offer, request.spec))
        self.sets = {frozenset(keys): allowed for keys, allowed in self._sets()}
        self.constraints = tuple(key for keys in self.sets if len(keys) == 1 for key in keys)

    def candidates(self, chosen: int) -> Iterator[Candidate]:
        """Give the candidates of a set, best first."""
        while chosen:
            offer, base = divmod((chosen & -chosen).bit_length() - 1, len(self.bases))
            chosen &= chosen - 1
            os, row = self.bases[base]
            yield Candidate(offer=self.offers[offer], os=os, base=row)

    def offers_in(self, chosen: int) -> list[Offer]:
        """Give the offers of a set without their bases, best first."""
        width = len(self.bases)
        block = (1 << width) - 1
        return [offer for i, offer in enumerate(self.offers) if chosen >> (i * width) & block]

    def meeting(self, constraints: Collection[Constraint]) -> int:
        """Give the set of candidates that meet these constraints together."""
        chosen = self.possible
        for keys, allowed in self.sets.items():
            if keys.issubset(constraints):
                chosen &= allowed
        return chosen

    def capabilities(self, offer: Offer) -> tuple[Capability, ...]:
        """Give the compute capabilities that an offer has machine code for, and those it was chosen for."""
        wanted = {gpu.capability for gpu in self.gpus if self.code_for(offer, gpu.capability)}
        native = {one for one in self.known_capabilities if self.code_for(offer, one) == "cubin"}
        return tuple(sorted(native | wanted))

    def of_machine(self, machine: Machine) -> int:
        """Give the set of candidates for one machine."""
        return self._offered(lambda offer: offer.machine == machine)

    def with_major(self, major: int) -> int:
        """Give the set of candidates of one CUDA major."""
        return self._offered(lambda offer: offer.cuda.major == major)

    def with_grade(self, grade: str) -> int:
        """Give the set of candidates whose existence is known with this grade."""
        return self._offered(lambda offer: offer.build.grade == grade)

    def with_code(self, capability: Capability) -> int:
        """Give the set of candidates with machine code for a compute capability."""
        return self._offered(lambda offer: self.code_for(offer, capability) == "cubin")

    def on_base(self, name: str) -> int:
        """Give the set of all offers on one base."""
        return self._on_bases(lambda os, _: os == name)

    def with_source(self, sources: Collection[str]) -> int:
        """Give the set of candidates that these indexes serve."""
        return self._offered(lambda offer: offer.source in sources)

    def with_driver(self, driver: Driver) -> int:
        """Give the set of candidates that run on a host with this driver, whatever its GPU."""
        runs = {
            cuda: driver_runs(self.matrix, cuda, driver) for cuda in {offer.cuda for offer in self.offers}
        }
        return self._offered(lambda offer: runs[offer.cuda])

    def with_gpu(self, gpu: WantedGpu) -> int:
        """Give the set of candidates that hold code for a GPU and run in its hosts."""
        return self._offered(
            lambda offer: (
                gpu.gpu.host in (None, offer.machine) and self.code_for(offer, gpu.capability) is not None
            )
        )

    def with_gpu_and_driver(self, gpu: WantedGpu, driver: Driver) -> int:
        """Give the set of candidates whose code for a GPU this driver loads, or compiles."""
        if not driver_knows(gpu.gpu, driver):
            return 0
        return self._offered(
            lambda offer: (
                self.code_for(offer, gpu.capability) == "cubin"
                or driver_compiles(self.matrix, offer.cuda, driver)
            )
        )

    def code_for(self, offer: Offer, capability: Capability) -> Literal["cubin", "ptx"] | None:
        """Tell how an offer runs on a compute capability; many offers share one answer."""
        build, wheels = offer.build, offer.wheels
        key = (offer.code, capability)
        if key not in self._code:
            self._code[key] = runs_on(self.matrix, build, wheels, capability)
        return self._code[key]

    def _sets(self) -> Iterator[tuple[tuple[Constraint, ...], int]]:
        """Give each constraint of the request with its set, then those that bind only together."""
        wanted = self.request
        if len(wanted.spec):
            framework = Constraint(option="framework", value=f"{self.name}{wanted.spec}")
            yield (framework,), self._offered(_allowed_by(wanted.spec))
        if wanted.cuda:
            yield (Constraint(option="cuda", value=str(wanted.cuda)),), self._offered(_is_for(wanted.cuda))
        if wanted.cudnn is not None:
            cudnn = Constraint(option="cudnn", value=str(wanted.cudnn))
            yield (cudnn,), self._offered(_has_cudnn(wanted.cudnn))
        if wanted.python:
            python = Constraint(option="python", value=str(wanted.python))
            yield (python,), self._on_bases(lambda _, base: base.python == wanted.python)
        if wanted.os:
            yield (Constraint(option="os", value=wanted.os),), self._on_bases(lambda os, _: os == wanted.os)
        if wanted.sources:
            source = Constraint(option="source", value=" --source ".join(wanted.sources))
            yield (source,), self.with_source(wanted.sources)
        for one in self.company:
            line = Constraint(option="requirements", value=one.line)
            yield (line,), self._offered(partial(agrees, one))
        yield from self._host_sets()
        yield (Constraint(option="arch", value=wanted.arch),), self.of_machine(MACHINES[wanted.arch])

    def _host_sets(self) -> Iterator[tuple[tuple[Constraint, ...], int]]:
        """Give the sets of the GPUs, of the driver, and of each GPU with the driver."""
        driver = self.request.driver
        gpus = [(gpu, Constraint(option="gpu", value=gpu.name)) for gpu in self.gpus]
        for gpu, constraint in gpus:
            yield (constraint,), self.with_gpu(gpu)
        if driver:
            named = Constraint(option="driver", value=str(driver))
            yield (named,), self.with_driver(driver)
            for gpu, constraint in gpus:
                yield (named, constraint), self.with_gpu_and_driver(gpu, driver)

    def _offered(self, holds: Callable[[Offer], bool]) -> int:
        """Give the set of the offers that a predicate holds for, on every base."""
        every, none = "1" * len(self.bases), "0" * len(self.bases)
        return int("".join(every if holds(offer) else none for offer in reversed(self.offers)) or "0", 2)

    def _on_bases(self, holds: Callable[[str, Base], bool]) -> int:
        """Give the set of all offers on the bases that a predicate holds for."""
        block = "".join("1" if holds(os, base) else "0" for os, base in reversed(self.bases))
        return int(block * len(self.offers) or "0", 2)

    def _fitting_bases(self) -> int:
        """Give the set of offers on bases of their machine, with one of their Pythons and their glibc."""
        known: dict[tuple[object, ...], str] = {}
        blocks = []
        for offer in reversed(self.offers):
            wheels = offer.wheels
            key = (wheels.python, wheels.glibc, offer.machine)
            if key not in known:
                known[key] = "".join("1" if _fits(offer, base) else "0" for _, base in reversed(self.bases))
            blocks.append(known[key])
        return int("".join(blocks) or "0", 2)


def _fits(offer: Offer, base: Base) -> bool:
    """Tell whether the wheels of an offer run on a base with the base's own Python."""
    return (
        offer.machine in base.machines
        and python_fits(offer.wheels, base.python)
        and glibc_fits(offer.wheels, base)
    )


def _is_offered(offer: Offer, spec: SpecifierSet) -> bool:
    """Tell whether a release may be chosen: yanked ones and pre-releases only when named."""
    ordinary = not offer.release.yanked and not offer.version.is_prerelease
    return ordinary or is_named(offer.version, spec)


def _allowed_by(spec: SpecifierSet) -> Callable[[Offer], bool]:
    """Give the test of a framework's specifier; one with a local version asks for just that build."""
    known: dict[Version, bool] = {}
    local = "+" in str(spec)

    def allowed(offer: Offer) -> bool:
        version = offer.version
        if local:
            version = Version(offer.build.local_version or str(offer.build.version))
        if version not in known:
            known[version] = spec.contains(version, prereleases=True)
        return known[version]

    return allowed


def _is_for(cuda: Cuda) -> Callable[[Offer], bool]:
    return lambda offer: offer.cuda == cuda


def _has_cudnn(spec: SpecifierSet) -> Callable[[Offer], bool]:
    """Give the test of a cuDNN specifier; a build whose cuDNN nobody knows does not meet it."""
    return lambda offer: offer.build.cudnn is not None and spec.contains(offer.build.cudnn, prereleases=True)
