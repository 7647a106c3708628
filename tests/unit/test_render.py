"""render: the same lock gives the same bytes, and everything that decides the image is in the build key."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from locks import CHECKS, example_of, make_base, make_lock, make_stack, make_wheel, packaged, rendered

from imagebuilder.errors import UsageError
from imagebuilder.lint.dockerfile import parse
from imagebuilder.render import OLDEST_TIME, render
from imagebuilder.render.templating import Templates, load_templates
from imagebuilder.resources import templates_path

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("framework", ["pytorch", "tensorflow", "jax", "paddlepaddle"])
def test_the_dockerfile_is_the_golden_one(framework: str) -> None:
    """The rendered Dockerfile of the example lock is, byte for byte, the file that people reviewed.

    After a wanted change: IMGBUILD_GOLDEN=write pytest tests/unit/test_render.py, and read the difference.
    """
    context = rendered(example_of(framework))
    text = context.dockerfile.replace(context.key, "sha256:KEY")
    text = text.replace(context.labels["io.imgbuild.templates"], "sha256:TEMPLATES")
    golden = GOLDEN / f"{framework}.Dockerfile"
    if os.environ.get("IMGBUILD_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


def test_another_frameworks_template_changes_nothing() -> None:
    """The label names the templates that this image was made with: a new framework rebuilds no other."""
    files = packaged().files
    other = {**files, "new.Dockerfile.j2": b"FROM x", "jax.Dockerfile.j2": b"FROM y"}
    assert rendered(templates=Templates(files=other)).key == rendered().key
    base = {**files, "builtin/base.Dockerfile.j2": files["base.Dockerfile.j2"] + b"{# a remark #}"}
    assert rendered(templates=Templates(files=base)).key != rendered().key


def test_equal_wheels_are_equal_stages_in_every_framework() -> None:
    """What installs a wheel of CUDA names no framework: its layer is the same in all their images."""
    stages = {
        framework: {
            stage.name: [instruction.text for instruction in stage.instructions]
            for stage in parse(rendered(example_of(framework)).dockerfile).stages
        }
        for framework in ("pytorch", "tensorflow", "jax")
    }
    assert len({str(found["nvidia-cudnn-cu12"]) for found in stages.values()}) == 1
    contents = {rendered(example_of(one)).files["wheels/nvidia-cudnn-cu12.txt"] for one in stages}
    assert len(contents) == 1


def test_the_same_lock_gives_the_same_bytes() -> None:
    """Rendering twice gives equal files, names and key, in the same order."""
    one, two = rendered(), rendered()
    assert one == two
    assert list(one.files) == sorted(one.files) == list(two.files)
    assert list(one.labels) == sorted(one.labels)


def test_the_order_of_the_lock_does_not_matter() -> None:
    """Wheels and packages in another order give the same context."""
    lock = make_lock()
    other = replace(lock, wheels=lock.wheels[::-1], base=make_base(debs=lock.base.debs[::-1]))
    assert rendered(other).files == rendered(lock).files


def test_the_clock_and_the_time_zone_of_the_machine_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upload time without a zone is read as UTC, wherever the rendering runs."""
    lock = make_lock(wheels=(make_wheel("torch", "2.4.1", uploaded="2024-09-04T19:00:00"),))
    found = set()
    for zone in ("UTC", "America/Los_Angeles", "Asia/Kolkata"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        found.add(rendered(lock).created)
    monkeypatch.undo()
    time.tzset()
    assert found == {1725476400}


def test_created_is_the_newest_upload() -> None:
    """SOURCE_DATE_EPOCH is the newest upload time, and 1980 where the lock tells none."""
    assert rendered().created == 1725476400
    assert rendered(make_lock(wheels=(make_wheel("torch", "2.4.1"),))).created == OLDEST_TIME
    assert (
        rendered(make_lock(wheels=(make_wheel("torch", "1", uploaded="0001-01-01"),))).created == OLDEST_TIME
    )


def test_an_upload_time_that_is_none_is_refused() -> None:
    """A lock that was edited by hand gives an error that names the wheel, no traceback."""
    with pytest.raises(UsageError, match=r"`9` of `torch-1-py3-none-any\.whl` is no upload time"):
        rendered(make_lock(wheels=(make_wheel("torch", "1", uploaded="9"),)))


def test_the_key_follows_every_file() -> None:
    """Any change of a wheel, package, check, template, script, the user or the time gives another key."""
    lock, templates = make_lock(), packaged()
    changed_script = {**templates.files, "builtin/scripts/install-wheels": b"#!/bin/sh\n"}
    keys = [
        rendered(lock).key,
        rendered(replace(lock, wheels=lock.wheels[1:])).key,
        rendered(replace(lock, installer=make_wheel("uv", "0.9.1"))).key,
        rendered(replace(lock, base=make_base(digest="sha256:" + "c" * 64))).key,
        rendered(replace(lock, base=make_base(debs=lock.base.debs[1:]))).key,
        rendered(replace(lock, user_wheels=(make_wheel("einops", "0.8.0"),))).key,
        rendered(replace(lock, stack=make_stack(notes=("another",)))).key,
        rendered(lock, user="root").key,
        rendered(lock, Templates(files=changed_script)).key,
        render(lock, templates, {**CHECKS, "gate.py": b"# another gate\n"}).key,
        render(lock, templates, {**CHECKS, "new.py": b""}).key,
        rendered(
            replace(lock, wheels=tuple(replace(w, uploaded="2025-01-01T00:00:00Z") for w in lock.wheels))
        ).key,
    ]
    assert len(set(keys)) == len(keys)


def test_the_key_does_not_follow_what_is_not_in_the_image() -> None:
    """Where a wheel was seen and which lines asked for it do not decide the image."""
    lock = make_lock()
    moved = tuple(replace(wheel, url="https://mirror.example/x.whl") for wheel in lock.wheels)
    assert rendered(replace(lock, wheels=moved, requirements=("einops  # why",))).key == rendered(lock).key


def test_the_key_is_in_the_labels_and_covers_the_labels() -> None:
    """The image can be found by its key; the key itself is computed without that label."""
    context = rendered()
    assert context.labels["io.imgbuild.build-key"] == context.key
    assert f'io.imgbuild.build-key="{context.key}"' in context.dockerfile


def test_labels_read_back() -> None:
    """What the Dockerfile sets as labels is what the context says."""
    context = rendered()
    labels = dict(
        pair for i in parse(context.dockerfile).instructions if i.keyword == "LABEL" for pair in i.pairs
    )
    assert labels == dict(context.labels)


def test_requirements_of_a_layer_carry_their_hashes() -> None:
    """Each layer is installed from lines of NAME==VERSION with the hash of the wheel."""
    context = rendered()
    torch = next(wheel for wheel in context.lock.wheels if wheel.name == "torch")
    assert context.files["wheels/pytorch.txt"].decode() == f"torch==2.4.1 --hash=sha256:{torch.sha256}\n"


def test_every_layer_is_a_stage_and_is_copied() -> None:
    """For each layer there is a stage, a requirements file and a COPY --link."""
    context = rendered()
    parsed = parse(context.dockerfile)
    copied = {
        flag.removeprefix("--from=")
        for instruction in parsed.stages[-1].instructions
        for flag in instruction.flags
        if flag.startswith("--from=")
    }
    names = {layer.name for layer in context.layers}
    assert copied == names | {"metadata"}
    assert names <= {stage.name for stage in parsed.stages}
    assert {f"wheels/{name}.txt" for name in names} <= context.files.keys()


def test_what_a_run_mounts_is_in_the_context() -> None:
    """No step of the Dockerfile asks for a file that the context does not have."""
    context = rendered()
    for instruction in parse(context.dockerfile).instructions:
        for flag in instruction.flags:
            options = dict(part.partition("=")[::2] for part in flag.removeprefix("--mount=").split(","))
            if options.get("type") == "bind":
                assert any(name.startswith(options["source"]) for name in context.files), flag


def test_a_registry_base_is_named_by_digest() -> None:
    """FROM holds the tag for people and the digest for the builder; no base.tar is asked for."""
    digest = "sha256:" + "d" * 64
    base = make_base(origin="registry", image="docker.io/library/debian:bookworm-slim", digest=digest)
    context = rendered(make_lock(base=base))
    assert f"FROM docker.io/library/debian:bookworm-slim@{digest} AS base\n" in context.dockerfile
    assert "base.tar" not in context.dockerfile
    assert context.labels["org.opencontainers.image.base.name"] == "docker.io/library/debian:bookworm-slim"


def test_the_index_of_another_source_is_the_argument_of_its_layers() -> None:
    """A layer from a framework's own index names it; the user's layer does not."""
    address = "https://example.org/whl/cu121"
    lock = make_lock(
        stack=make_stack(source="own"),
        sources={"own": address},
        wheels=(make_wheel("torch", "2.4.1", source="own"),),
        user_wheels=(make_wheel("einops", "0.8.0"),),
    )
    stages = {stage.name: stage.instructions[-1].text for stage in parse(rendered(lock).dockerfile).stages}
    assert stages["pytorch"] == f"/run/imgbuild/install-wheels {address}"
    assert stages["requirements"] == "/run/imgbuild/install-wheels"


@pytest.mark.parametrize(
    "address", ["https://x/$(id)", "https://x/\nRUN id", "https://x/;id", "https://x/`id`"]
)
def test_a_hostile_address_is_refused(address: str) -> None:
    """An address that the shell would act on does not get into a Dockerfile."""
    wheels = (make_wheel("torch", "2.4.1", source="own"),)
    lock = make_lock(stack=make_stack(source="own"), sources={"own": address}, wheels=wheels)
    with pytest.raises(UsageError, match="must not enter a Dockerfile"):
        rendered(lock)


@pytest.mark.parametrize("image", ["debian\nRUN id", "debian AS base\nRUN id #", "$IMAGE"])
def test_a_hostile_base_is_refused(image: str) -> None:
    """The name of a base cannot bring further instructions."""
    with pytest.raises(UsageError, match="must not enter a Dockerfile"):
        rendered(make_lock(base=make_base(origin="registry", image=image)))


def test_a_hostile_comment_is_refused() -> None:
    """What stands in a comment cannot end it."""
    with pytest.raises(UsageError, match="must not enter a Dockerfile"):
        rendered(make_lock(tool="1\nRUN id"))


def test_a_user_decides_the_account_of_the_image() -> None:
    """`trainer` runs by its number, root as 0, each with its home."""
    for user, uid, home in (("trainer", "1000", "/home/trainer"), ("root", "0", "/root")):
        stage = parse(rendered(user=user).dockerfile).stages[-1]
        assert [i.text for i in stage.instructions if i.keyword == "USER"] == [uid]
        assert stage.environment["HOME"] == home


def test_a_template_of_the_user_extends_the_packaged_one(tmp_path: Path) -> None:
    """A folder with one template changes a block, keeps the rest with `super()`, and changes the key."""
    (tmp_path / "pytorch.Dockerfile.j2").write_text(
        '{% extends "builtin/pytorch.Dockerfile.j2" %}\n'
        "{% block environment %}\nENV HF_HOME=/workspace/.cache\n{% endblock %}\n"
        "{% block system %}\n{{ super() }}RUN echo {{ lock.stack.version }}\n{% endblock %}\n"
    )
    context = rendered(templates=load_templates(templates_path(), [tmp_path]))
    final = parse(context.dockerfile).stages[-1]
    assert final.environment["HF_HOME"] == "/workspace/.cache"
    assert final.environment["HOME"] == "/home/trainer"
    assert (
        "\n    /run/imgbuild/install-debs trainer 1000 /home/trainer\nRUN echo 2.4.1\n" in context.dockerfile
    )
    assert context.key != rendered().key


def test_a_template_of_the_user_replaces_the_packaged_one(tmp_path: Path) -> None:
    """A template that extends nothing is the whole Dockerfile."""
    (tmp_path / "pytorch.Dockerfile.j2").write_text("FROM {{ lock.stack.os }}\n")
    assert rendered(templates=load_templates(templates_path(), [tmp_path])).dockerfile == "FROM debian-12\n"


def test_a_framework_without_a_template_is_refused() -> None:
    """The error names the template that is missing and those there are."""
    with pytest.raises(UsageError, match=r"no template `other.Dockerfile.j2`") as caught:
        rendered(make_lock(stack=make_stack(framework="other")))
    assert "pytorch.Dockerfile.j2" in str(caught.value.why)
