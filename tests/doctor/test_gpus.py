"""GPUs as the driver's tool or torch tells of them."""

import pytest

from splitserve.doctor.findings import Gpu
from splitserve.doctor.gpus import gpus_of_smi, gpus_of_torch, visible

MIB = 1 << 20
SMI = "0, NVIDIA H200, 143771, 143000\n1, NVIDIA H200, 143771, [N/A]\nNo devices\n"
GPUS = tuple(Gpu(number, "g", 1, 1) for number in range(4))


def test_the_drivers_lines_are_read_and_others_left_out() -> None:
    assert gpus_of_smi(SMI) == (
        Gpu(0, "NVIDIA H200", 143771 * MIB, 143000 * MIB),
        Gpu(1, "NVIDIA H200", 143771 * MIB, 0),
    )


def test_torchs_last_line_is_read() -> None:
    assert gpus_of_torch('a warning\n[[0, "g", 10, 5]]\n') == (Gpu(0, "g", 10, 5),)
    assert gpus_of_torch("a warning") == ()
    assert gpus_of_torch("[[0]]") == ()


@pytest.mark.parametrize(
    ("setting", "numbers"),
    [
        (None, [0, 1, 2, 3]),
        ("2,0", [2, 0]),
        ("1, 3", [1, 3]),
        ("", []),
        ("-1", []),
        ("1,9,2", [1]),
        ("GPU-5f", [0, 1, 2, 3]),
    ],
)
def test_only_what_the_environment_lets_be_seen_counts(
    setting: str | None, numbers: list[int]
) -> None:
    assert [gpu.index for gpu in visible(GPUS, setting)] == numbers
