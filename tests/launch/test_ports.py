"""Free ports: there, different, and outside of what the kernel gives away."""

import socket
from pathlib import Path

from splitserve.launch.ports import free_ports, ports_needed
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup


def test_they_are_free_and_differ() -> None:
    ports = free_ports(5)
    assert len(set(ports)) == 5
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_one_that_somebody_listens_on_is_left_out() -> None:
    (first,) = free_ports(1)
    with socket.create_server(("127.0.0.1", first)):
        assert first not in free_ports(3)


def test_no_outgoing_connection_can_take_them() -> None:
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert max(free_ports(3)) < max(low, 32_768)


def test_only_instances_that_are_started_need_some() -> None:
    started = WorkerGroup(engine="vllm", count=2)
    attached = WorkerGroup(engine="vllm", url=("http://a:1",))
    assert ports_needed(Topology(ModelAsked("m"), (WorkerGroup(), attached))) == 0
    assert ports_needed(Topology(ModelAsked("m"), (started, attached))) == 5
