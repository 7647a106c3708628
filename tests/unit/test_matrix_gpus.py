"""GPUs are found by every name that people and nvidia-smi give them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.errors import UsageError
from imagebuilder.matrix import load
from imagebuilder.matrix.gpus import find_gpu

MATRIX = load()


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("V100", "7.0"),
        ("v100", "7.0"),
        ("Tesla V100-SXM2-16GB", "7.0"),
        ("V100 32GB", "7.0"),
        ("Tesla T4", "7.5"),
        ("T4G", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "8.0"),
        ("NVIDIA A100 80GB PCIe", "8.0"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
        ("A10", "8.6"),
        ("NVIDIA A10G", "8.6"),
        ("A6000", "8.6"),
        ("NVIDIA RTX A6000", "8.6"),
        ("RTX 3060", "8.6"),
        ("RTX 3060 12GB", "8.6"),
        ("NVIDIA GeForce RTX 3060 Laptop GPU", "8.6"),
        ("RTX 4090", "8.9"),
        ("RTX 4070 Ti SUPER", "8.9"),
        ("NVIDIA RTX 6000 Ada Generation", "8.9"),
        ("Quadro RTX 6000", "7.5"),
        ("H100 SXM", "9.0"),
        ("NVIDIA H100 80GB HBM3", "9.0"),
        ("H100 NVL", "9.0"),
        ("NVIDIA GH200 480GB", "9.0"),
        ("NVIDIA H200", "9.0"),
        ("NVIDIA B200", "10.0"),
        ("GB200", "10.0"),
        ("RTX 5090", "12.0"),
        ("rtx5090", "12.0"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "12.0"),
        ("NVIDIA GB10", "12.1"),
        ("GTX 1080", "6.1"),
        ("GTX 1080 Ti", "6.1"),
        ("Tesla P100-PCIE-16GB", "6.0"),
        ("TITAN Xp", "6.1"),
        ("NVIDIA TITAN V", "7.0"),
        ("Tesla K80", "3.7"),
        ("Jetson AGX Orin", "8.7"),
        ("sm_90", "9.0"),
        ("9.0", "9.0"),
        ("SM_120", "12.0"),
        ("sm_90a", "9.0"),
        ("sm_50", "5.0"),
        ("6.2", "6.2"),
    ],
)
def test_names(text: str, capability: str) -> None:
    """The same GPU whatever the case, the maker's and the family's name, the form factor and the memory."""
    assert str(find_gpu(MATRIX, text)[1].capability) == capability


def test_every_name_and_alias_finds_its_own_row() -> None:
    """No two GPUs of the matrix share a name."""
    for name, gpu in MATRIX.gpus.items():
        for called in (name, *gpu.aliases, f"NVIDIA {name}", name.upper()):
            assert find_gpu(MATRIX, called) == (name, gpu)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("RTX 509O", "RTX 5090"),
        ("h1000", "H100"),
        ("A10O", "A10"),
        ("RTX 6000", "RTX A6000"),
        ("V1000", "V100"),
    ],
)
def test_a_typo_names_the_nearest(text: str, near: str) -> None:
    """An unknown name is a usage error with close matches, never a guess."""
    with pytest.raises(UsageError, match=f"no GPU named `{text}`") as caught:
        find_gpu(MATRIX, text)
    assert f"`{near}`" in (caught.value.why or "")


@pytest.mark.parametrize("text", ["sm_64", "9.5", "sm_13"])
def test_an_unknown_capability_names_the_known(text: str) -> None:
    """A target that no toolkit makes code for is refused with those that there are."""
    with pytest.raises(UsageError, match="no GPU has the compute capability") as caught:
        find_gpu(MATRIX, text)
    assert "8.6" in (caught.value.why or "")


def test_a_target_promises_what_all_its_gpus_keep() -> None:
    """A bare target has the common tensor cores and the strictest rules of its GPUs."""
    _, gpu = find_gpu(MATRIX, "sm_75")
    assert gpu.tensor_cores == ()  # GeForce GTX 16 has none
    assert gpu.host is None
    assert not gpu.forward_compat.startswith("yes")
    assert find_gpu(MATRIX, "sm_70")[1].driver_branch_last == 580


@given(st.text(max_size=40))
def test_any_text_is_found_or_a_usage_error(text: str) -> None:
    """No text escapes as another exception."""
    try:
        name, _ = find_gpu(MATRIX, text)
    except UsageError:
        return
    assert name in MATRIX.gpus or name.startswith("sm_")
