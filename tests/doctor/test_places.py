"""Which links are measured on which machine."""

from splitserve.doctor.findings import NumaNode
from splitserve.doctor.places import MEMCPY, SOCKET, wanted_links
from splitserve.transfer.registry import connectors_for

ONE_NODE = (NumaNode(0, (0, 1)),)
TWO_NODES = (NumaNode(0, (0, 1)), NumaNode(1, (2, 3)))


def ends(gpus: int, numa: tuple[NumaNode, ...] = ONE_NODE) -> list[tuple[str, str, str]]:
    wanted = wanted_links((0, 1, 2, 3), numa, gpus)
    return [(one.path, one.source.name, one.target.name) for one in wanted]


def test_a_host_without_gpus_has_every_connector_of_the_cpu() -> None:
    paths = (MEMCPY, SOCKET, *connectors_for("cpu"))
    assert ends(0) == [(path, "cpu", "cpu") for path in paths]


def test_numa_nodes_are_measured_within_and_across() -> None:
    found = ends(0, TWO_NODES)
    for path in connectors_for("cpu"):
        assert (path, "numa0", "numa0") in found
        assert (path, "numa0", "numa1") in found


def test_processes_stay_on_the_cores_they_may_use() -> None:
    wanted = wanted_links((1, 2), TWO_NODES, 0)
    assert {(end.name, end.cores) for one in wanted for end in (one.source, one.target)} == {
        ("numa0", (1,)),
        ("numa1", (2,)),
    }


def test_a_node_without_an_allowed_core_is_none() -> None:
    wanted = wanted_links((0, 1), TWO_NODES, 0)
    assert {one.target.name for one in wanted} == {"cpu"}


def test_one_gpu_is_measured_within_itself() -> None:
    gpus = [one for one in ends(1) if one[1].startswith("cuda")]
    assert gpus == [(path, "cuda:0", "cuda:0") for path in (MEMCPY, *connectors_for("cuda"))]


def test_each_pair_of_few_gpus_is_measured_and_of_many_those_with_the_first() -> None:
    few = {one[1:] for one in ends(3) if one[0] == "cuda_ipc"}
    assert few == {("cuda:0", "cuda:1"), ("cuda:0", "cuda:2"), ("cuda:1", "cuda:2")}
    many = [one[1:] for one in ends(8) if one[0] == "cuda_ipc"]
    assert many == [("cuda:0", f"cuda:{number}") for number in range(1, 8)]
