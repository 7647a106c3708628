"""Extras: what `--with` adds by the facts, where it stands in stack, lock and layers, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from locks import make_lock, make_stack, make_wheel, rendered

from imagebuilder.checks import catalogue, child, manifest
from imagebuilder.checks.result import Context
from imagebuilder.errors import UnmetError, UsageError
from imagebuilder.lock.requirements import of_extras
from imagebuilder.matrix import Matrix, load
from imagebuilder.matrix.check import check
from imagebuilder.matrix.facts import Extra
from imagebuilder.matrix.shape import Record, plain_of
from imagebuilder.request import command, parse_request
from imagebuilder.resolve import resolve, stack_from_dict, stack_to_dict
from imagebuilder.resolve.extras import debs, requirements


@pytest.fixture(scope="module")
def matrix() -> Matrix:
    """Load the packaged facts."""
    return load([])


def test_extras_are_part_of_the_stack_and_its_name(matrix: Matrix) -> None:
    """Their order does not matter; the stack can be written and read; the request can be pasted."""
    request = parse_request(framework="pytorch", cuda="12.1", extras=["ssh", "jupyter", "ssh"])
    stack = resolve(request, matrix)
    assert stack.extras == ("jupyter", "ssh")
    assert stack.identifier.endswith("-debian12-jupyter-ssh")
    assert stack_from_dict(stack_to_dict(stack)) == stack
    assert command(request).endswith("--with jupyter --with ssh")


def test_an_extra_never_changes_the_stack(matrix: Matrix) -> None:
    """The same framework, CUDA and pins with all extras as with none."""
    plain = resolve(parse_request(framework="pytorch", cuda="12.1"), matrix)
    full = resolve(parse_request(framework="pytorch", cuda="12.1", extras=list(matrix.extras)), matrix)
    assert replace(full, extras=()) == plain


def test_an_unknown_extra_is_a_typo(matrix: Matrix) -> None:
    """The nearest name is the next step."""
    with pytest.raises(UsageError) as found:
        resolve(parse_request(framework="pytorch", extras=["jupiter"]), matrix)
    assert found.value.hint == "--with jupyter"


def test_an_extra_of_another_framework_is_refused(matrix: Matrix) -> None:
    """Accelerate is PyTorch's; the reason names who is served, with its source."""
    with pytest.raises(UnmetError) as found:
        resolve(parse_request(framework="jax", extras=["distributed"]), matrix)
    assert "wheels for pytorch only" in str(found.value.why)
    assert found.value.conflicts[0]["source"]


def test_what_an_extra_adds(matrix: Matrix) -> None:
    """Wheels by framework with those of every framework, packages of the distribution together."""
    assert requirements(matrix, "pytorch", "distributed") == ("accelerate",)
    assert requirements(matrix, "jax", "distributed") == ()
    assert "jupyterlab" in requirements(matrix, "jax", "jupyter")
    assert set(debs(matrix, ["ssh", "dev", "jupyter"])) >= {"openssh-server", "git"}


def test_a_line_of_an_extra_is_named_by_its_option() -> None:
    """In a clash the user sees `--with jupyter`, not a file that there is not."""
    (line,) = of_extras({"jupyter": ("jupyterlab>=4",)})
    assert line.place == "--with jupyter"
    assert line.conflict == {
        "constraint": "jupyterlab>=4",
        "fact": "what the extra brings",
        "source": "--with jupyter",
    }


def test_their_wheels_are_a_layer_before_the_users() -> None:
    """A lock keeps them apart from the stack's and the user's, and so does the image."""
    lock = make_lock(
        stack=make_stack(extras=("jupyter",)),
        extra_wheels=(make_wheel("jupyterlab", "4.4.0"),),
        user_wheels=(make_wheel("einops", "0.8.1"),),
        requirements=("einops",),
    )
    context = rendered(lock)
    assert [layer.name for layer in context.layers][-2:] == ["extras", "requirements"]
    assert context.labels["io.imgbuild.extras"] == "jupyter"
    assert context.files["wheels/extras.txt"].startswith(b"jupyterlab==4.4.0 ")
    for name in ("wheels.txt", "stack.json"):
        assert b"jupyterlab" in context.files[f"metadata/{name}"]
    assert [wheel.name for wheel in lock.all_wheels][-2:] == ["jupyterlab", "einops"]


def with_extra(matrix: Matrix, name: str, extra: Extra) -> list[str]:
    """Give what a check finds wrong with one more extra."""
    changed = replace(matrix, extras={**matrix.extras, name: extra})
    return [finding.message for finding in check(changed, plain_of(changed, Record(type(changed))))]


@pytest.mark.parametrize(
    ("name", "extra", "words"),
    [
        ("Bad Name", Extra(what="x", debs=("git",)), "not a name of lower-case words"),
        ("empty", Extra(what="x"), "adds nothing"),
        ("lost", Extra(what="x", requires={"torchx": ("a",)}), "torchx"),
        ("url", Extra(what="x", requires={"any": ("a @ https://example.org/a.whl",)}), "by name and version"),
        ("shell", Extra(what="x", requires={"any": ("a; rm -rf /",)}), "by name and version"),
        ("apt", Extra(what="x", debs=("git; reboot",)), "not the name of a package"),
    ],
)
def test_a_broken_extra_is_found(matrix: Matrix, name: str, extra: Extra, words: str) -> None:
    """Names, frameworks, requirements and packages are checked before they reach uv, apt or a shell."""
    assert any(words in message for message in with_extra(matrix, name, extra))


def test_each_extra_has_a_check_that_runs_only_with_it(matrix: Matrix) -> None:
    """The manifest of the image decides."""
    checks = {check.extra: check.id for check in catalogue.CHECKS if check.extra}
    assert set(checks) == set(matrix.extras)
    plain = {check.id for check in catalogue.for_framework("pytorch")}
    assert not plain & set(checks.values())
    both = {check.id for check in catalogue.for_framework("pytorch", ("ssh", "dev"))}
    assert both - plain == {"extras.ssh", "extras.dev"}


def test_the_manifest_names_the_extras() -> None:
    """As stack.json of the image has them."""
    document = stack_to_dict(make_stack(extras=("dev", "ssh")))
    assert manifest.from_dict(document).extras == ("dev", "ssh")


@pytest.mark.parametrize("name", ["jupyter", "monitoring", "distributed", "compression"])
def test_what_is_missing_is_a_failed_check(name: str) -> None:
    """None of these is installed here."""
    answer = child.perform(f"extras:{name}", Context())
    assert answer["status"] == "fail"
    assert "is not installed" in answer["summary"]
