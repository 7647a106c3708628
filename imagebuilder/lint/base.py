"""Rules about what the image stands on and how it starts."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from imagebuilder.lint.dockerfile import KEYWORDS
from imagebuilder.lint.problem import Found, LintFacts, Rule
from imagebuilder.lint.reading import is_cuda_image, root_stage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from imagebuilder.lint.dockerfile import Dockerfile


def _form(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    if not dockerfile.stages:
        yield Found(line=1, what="there is no FROM")
    for instruction in dockerfile.instructions:
        if instruction.keyword not in KEYWORDS:
            yield Found(line=instruction.line, what=f"`{instruction.keyword[:40]}` is no instruction")
        elif not instruction.text:
            yield Found(line=instruction.line, what=f"`{instruction.keyword}` has no arguments")


def _syntax(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for line, name, value in dockerfile.directives:
        if name == "syntax":
            yield Found(line=line, what=f"`syntax={value}` fetches another frontend")


def _images(dockerfile: Dockerfile) -> Iterator[tuple[int, str]]:
    """Give every outside image: of FROM, of COPY --from and of RUN --mount=from."""
    names = {stage.name for stage in dockerfile.stages if stage.name} | {"scratch"}
    names |= {str(index) for index in range(len(dockerfile.stages))}
    for stage in dockerfile.stages:
        if stage.parent is None and stage.image != "scratch":
            yield stage.line, stage.image
        for instruction in stage.instructions:
            for flag in instruction.flags:
                match = re.search(r"(?:^--|[=,])from=([^,]+)", flag)
                if match and match[1].lower() not in names:
                    yield instruction.line, match[1]


def _pinned(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    for line, image in _images(dockerfile):
        if not re.search(r"@sha256:[0-9a-f]{64}$", image):
            tag = image.rpartition("/")[2].partition(":")[2].partition("@")[0]
            moving = "" if tag and tag != "latest" else ", and `latest` moves with every release"
            yield Found(line=line, what=f"`{image}` is not pinned by digest{moving}")


def _gone(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    for line, image in _images(dockerfile):
        named = image.partition("@")[0]
        short = "/".join(named.split("/")[-2:])
        tagged = short if ":" in short else f"{short}:latest"
        for pattern, gone in facts.gone.items():
            if fnmatchcase(tagged, pattern):
                yield Found(
                    line=line,
                    what=f"`{named}` is gone",
                    why=f"{gone.why} (failure mode H1, gotcha 44) [{gone.src}]",
                    fix=f"use {gone.instead}",
                )


def _cuda_twice(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    root = root_stage(dockerfile)
    if root and facts.cuda and is_cuda_image(root.image):
        yield Found(
            line=root.line, what=f"the image stands on `{root.image}` and its wheels bring CUDA {facts.cuda}"
        )


def _entrypoint(dockerfile: Dockerfile, _: LintFacts) -> Iterator[Found]:
    points = [
        instruction
        for stage in dockerfile.final
        for instruction in stage.instructions
        if instruction.keyword == "ENTRYPOINT"
    ]
    root = root_stage(dockerfile)
    if root and not points:
        yield Found(line=root.line, what="there is no ENTRYPOINT, so that of the base stays")
    elif points and "nvidia_entrypoint" in points[-1].text:
        yield Found(line=points[-1].line, what="the ENTRYPOINT is the banner of nvidia/cuda")


def _user(dockerfile: Dockerfile, facts: LintFacts) -> Iterator[Found]:
    users = [
        instruction
        for stage in dockerfile.final
        for instruction in stage.instructions
        if instruction.keyword == "USER"
    ]
    if facts.root or not dockerfile.final:
        return
    if not users:
        yield Found(line=dockerfile.final[-1].line, what="there is no USER, so the image runs as root")
    elif users[-1].text.partition(":")[0] in ("root", "0"):
        yield Found(line=users[-1].line, what="the image runs as root, and was asked for a user")


RULES = (
    Rule(
        name="form",
        why="BuildKit refuses such a file",
        fix="look at the line of the template that gave it",
        find=_form,
    ),
    Rule(
        name="syntax-line",
        why="the build then needs Docker Hub, and another frontend may give another image"
        " (failure modes J2, J4)",
        fix="leave the `# syntax=` line out: nothing here needs it",
        find=_syntax,
    ),
    Rule(
        name="unpinned-image",
        why="the same tag holds something else after each rebuild (failure mode H3)",
        fix="add @sha256:... behind the tag",
        find=_pinned,
    ),
    Rule(
        name="gone-tag",
        why="the tag was deleted (failure mode H1, gotcha 44)",
        fix="use a plain base by digest",
        find=_gone,
    ),
    Rule(
        name="cuda-twice",
        why="CUDA is in the image twice, and the base brings cuda-compat, which gives error 804 on GeForce"
        " (failure modes I1, B3, gotcha 17)",
        fix="start from a plain base; use nvidia/cuda in a build stage where a compiler is needed",
        find=_cuda_twice,
        level="warning",
    ),
    Rule(
        name="entrypoint",
        why="the entrypoint of CUDA bases prints a banner into the output of every command"
        " (failure mode H12)",
        fix='ENTRYPOINT ["/usr/bin/python3", "-IS", "/opt/imgbuild/checks/gate.py"], or ENTRYPOINT []',
        find=_entrypoint,
    ),
    Rule(
        name="user",
        why="files in mounted folders then belong to root (failure mode L1)",
        fix="end with USER and the uid, or render with --user root",
        find=_user,
    ),
)
