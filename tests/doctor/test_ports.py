"""Ports that must be free, and ports that must be open."""

import socket

from splitserve.doctor.ports import WantedPort, look_at, wanted_ports
from splitserve.launch.topology import GatewayAsked, ModelAsked, Topology, WorkerGroup

HERE = "127.0.0.1"


def named(*groups: WorkerGroup, port: int = 8000) -> list[tuple[str, int, str, str, str]]:
    topology = Topology(ModelAsked("m"), groups, GatewayAsked(port=port))
    return [
        (one.host, one.number, one.user, one.purpose, one.must) for one in wanted_ports(topology)
    ]


def test_the_gateways_port_must_be_free_unless_any_will_do() -> None:
    assert named(WorkerGroup()) == [(HERE, 8000, "gateway", "http", "free")]
    assert named(WorkerGroup(), port=0) == []


def test_named_ports_of_instances_count_up_and_must_be_free() -> None:
    group = WorkerGroup(role="prefill", engine="vllm", count=2, port=8100, side_channel_port=5600)
    assert named(group, port=0) == [
        (HERE, 8100, "prefill-0", "http", "free"),
        (HERE, 5600, "prefill-0", "side channel", "free"),
        (HERE, 8101, "prefill-1", "http", "free"),
        (HERE, 5601, "prefill-1", "side channel", "free"),
    ]


def test_instances_that_run_must_have_theirs_open() -> None:
    group = WorkerGroup(
        role="prefill",
        engine="vllm",
        url=("http://a:8100", "https://b"),
        facts={"side_channel_port": 5600, "bootstrap_addr": "http://c:9", "p2p_port": "none"},
    )
    assert named(group, port=0) == [
        ("a", 8100, "prefill-0", "http", "open"),
        ("a", 5600, "prefill-0", "side channel", "open"),
        ("c", 9, "prefill-0", "side channel", "open"),
        ("b", 443, "prefill-1", "http", "open"),
        ("b", 5600, "prefill-1", "side channel", "open"),
        ("c", 9, "prefill-1", "side channel", "open"),
    ]


def test_a_listener_is_noticed() -> None:
    with socket.create_server((HERE, 0)) as listener:
        number = listener.getsockname()[1]
        assert not look_at(WantedPort(HERE, number, "u", "http", "free")).right
        assert look_at(WantedPort(HERE, number, "u", "http", "open")).right
    assert look_at(WantedPort(HERE, number, "u", "http", "free")).right
    assert not look_at(WantedPort(HERE, number, "u", "http", "open")).right
