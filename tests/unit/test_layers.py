"""The layer plan: which wheel lies in which layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from locks import MIB, example_of, make_lock, make_stack, make_wheel

from imagebuilder.render.layers import LARGE, plan_layers

if TYPE_CHECKING:
    from imagebuilder.lock import Lock


def _names(lock: Lock) -> list[str]:
    return [layer.name for layer in plan_layers(lock)]


def test_layers_go_from_what_changes_least_to_the_users_own() -> None:
    """Large CUDA wheels, small ones, triton, the framework, its needs, the user's requirements."""
    lock = make_lock(user_wheels=(make_wheel("einops", "0.8.0"),))
    assert _names(lock) == ["nvidia-cudnn-cu12", "cuda-small", "triton", "pytorch", "python", "requirements"]


def test_what_is_released_with_the_framework_is_in_its_layer() -> None:
    """The version of jax changes with jaxlib and both plugins: they are one layer, numpy is in another."""
    layers = {layer.name: [wheel.name for wheel in layer.wheels] for layer in plan_layers(example_of("jax"))}
    assert layers["jax"] == ["jax", "jax-cuda12-pjrt", "jax-cuda12-plugin", "jaxlib"]
    assert layers["python"] == ["numpy"]


def test_an_empty_layer_is_left_out() -> None:
    """Without requirements, triton or small CUDA wheels there is no such layer."""
    assert _names(make_lock(wheels=(make_wheel("torch", "2.4.1"),))) == ["pytorch"]


def test_the_order_of_the_wheels_does_not_matter() -> None:
    """The same wheels in another order give the same plan."""
    lock = make_lock()
    assert plan_layers(make_lock(wheels=lock.wheels[::-1])) == plan_layers(lock)


def test_size_decides_which_cuda_wheel_stands_alone() -> None:
    """From LARGE bytes on a CUDA wheel is a layer of its own."""
    small, large = make_wheel("nvidia-a", "1", LARGE - 1), make_wheel("nvidia-b", "1", LARGE)
    layers = {layer.name: layer for layer in plan_layers(make_lock(wheels=(small, large)))}
    assert layers["nvidia-b"].wheels == (large,)
    assert layers["cuda-small"].wheels == (small,)


def test_a_layers_size_is_that_of_its_wheels() -> None:
    """The size of a layer is the sum of the bytes of its wheels."""
    sizes = {layer.name: layer.size for layer in plan_layers(make_lock())}
    assert sizes["cuda-small"] == MIB // 2


def test_a_layer_takes_all_its_wheels_from_one_index() -> None:
    """The default index is configuration; wheels of a framework's own index are layers that name it."""
    assert all(layer.index is None for layer in plan_layers(make_lock()))
    own = "https://example.org/whl/cu121"
    lock = make_lock(
        stack=make_stack(source="pytorch"),
        sources={"pytorch": own},
        wheels=(make_wheel("torch", "2.5.1", source="pytorch"), make_wheel("filelock", "3.0")),
        user_wheels=(make_wheel("einops", "0.8.0"), make_wheel("torchvision", "0.20.1", source="pytorch")),
    )
    indexes = {layer.name: layer.index for layer in plan_layers(lock)}
    assert indexes == {
        "pytorch": own,
        "python": None,
        "requirements-pypi": None,
        "requirements-pytorch": own,
    }


@given(
    st.dictionaries(
        st.from_regex(r"(nvidia-|cuda-|triton|torch|[a-z]{1,3})[a-z0-9]{0,4}", fullmatch=True),
        st.integers(1, 4 * LARGE),
        max_size=12,
    )
)
def test_every_wheel_lies_in_exactly_one_layer(sizes: dict[str, int]) -> None:
    """No wheel is lost or installed twice, whatever its name and size, and layer names differ."""
    wheels = tuple(make_wheel(name, "1", size) for name, size in sizes.items())
    layers = plan_layers(make_lock(wheels=wheels))
    assert sorted(wheel.name for layer in layers for wheel in layer.wheels) == sorted(sizes)
    assert len({layer.name for layer in layers}) == len(layers)
