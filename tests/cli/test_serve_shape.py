import pytest

from splitserve.cli.options import core_list
from splitserve.cli.serve import shaped
from splitserve.errors import ConfigError
from splitserve.launch.topology import WorkerGroup

GROUP = WorkerGroup(max_num_seqs=7)


@pytest.mark.parametrize(
    ("prefill", "decode", "colocated", "roles"),
    [
        (None, None, None, {"colocated": 1}),
        (None, None, 3, {"colocated": 3}),
        (1, 2, None, {"prefill": 1, "decode": 2}),
    ],
)
def test_flags_become_groups(
    prefill: int | None, decode: int | None, colocated: int | None, roles: dict[str, int]
) -> None:
    groups = shaped(GROUP, prefill=prefill, decode=decode, colocated=colocated)
    assert {group.role: group.count for group in groups} == roles
    assert all(group.max_num_seqs == 7 for group in groups)


def test_cores_are_read_as_numbers_and_ranges() -> None:
    assert core_list("--cores", "") == ()
    assert core_list("--cores", "3") == (3,)
    assert core_list("--cores", "0-2,5") == (0, 1, 2, 5)


@pytest.mark.parametrize("text", [",", "1,", "a", "1 2", "-1", "1-", "0-2,1", "2-1"])
def test_a_bad_list_of_cores_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--cores: "):
        core_list("--cores", text)
