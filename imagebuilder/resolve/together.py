"""Two frameworks that cannot share an image: on what they clash, and the ways out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from imagebuilder.request import command
from imagebuilder.resolve.candidates import Space
from imagebuilder.resolve.company import clash_of
from imagebuilder.resolve.explain import graded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from imagebuilder.resolve.candidates import Constraint
    from imagebuilder.resolve.company import Company
    from imagebuilder.resolve.offers import Offer


def company_fact(
    space: Space, constraint: Constraint, offers: Sequence[Offer], given: str
) -> tuple[str, str | None]:
    """Name the library on which the best of these offers and a line of the requirements do not agree."""
    company = next(one for one in space.company if one.line == constraint.value)
    for offer in offers:
        found = clash_of(company, offer)
        if found:
            name, held, version, wanted = found
            said = (
                f"an image has one {name}: {space.name} {offer.version} asks for {held}, "
                f"{company.wanted} {version} for {wanted}"
            )
            return f"{given}{said}{_pair(space, company)}", graded(space.matrix, offer.build, "pins")
    said = f"no build of {company.wanted} on the default index is known to have the same CUDA libraries"
    return f"{given}{said}{_pair(space, company)}", None


def apart(space: Space, clash: Sequence[Constraint]) -> Iterator[dict[str, str]]:
    """Give the image without the other frameworks, where that is what clashes."""
    lines = [constraint.value for constraint in clash if constraint.option == "requirements"]
    alone = Space(space.request, space.facts)
    if lines and alone.meeting(alone.constraints):
        request = replace(space.request, framework=space.name, requirements=())
        said = f"two images: this one without `{'`, `'.join(lines)}`"
        yield {"change": said, "command": command(request)}


def _pair(space: Space, company: Company) -> str:
    """Name the newest releases of both frameworks that are known to fit into one image."""
    others = [line for line in space.requirements if str(line) != company.line]
    free = replace(space.request, spec=SpecifierSet(), cuda=None, cudnn=None)
    every = Space(free, space.facts, [Requirement(company.wanted)]).company[0]
    for version in dict.fromkeys(version for version, _ in every.builds):
        line = Requirement(f"{company.wanted}=={version}")
        pair = Space(free, space.facts, [*others, line])
        for best in pair.candidates(pair.meeting(pair.constraints)):
            if best.offer.build.pins:
                return f"; together there can be {line} and {space.name}=={best.offer.version}"
    return ""
