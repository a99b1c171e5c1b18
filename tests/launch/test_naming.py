"""What each worker is called."""

from splitserve.launch.naming import named_workers
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup


def test_workers_are_named_as_they_will_be() -> None:
    asked = Topology(
        ModelAsked("m"),
        (
            WorkerGroup(role="decode", count=2),
            WorkerGroup(role="prefill"),
            WorkerGroup(role="decode", engine="vllm", url=("http://a", "http://b")),
        ),
    )
    assert [(worker.name, worker.number, worker.url) for worker in named_workers(asked)] == [
        ("decode-0", 0, ""),
        ("decode-1", 1, ""),
        ("prefill-0", 0, ""),
        ("decode-2", 0, "http://a"),
        ("decode-3", 1, "http://b"),
    ]
