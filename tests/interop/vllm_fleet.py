"""Instances that belong together, and gateways over them."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from client import complete
from cluster import Cluster, leftovers, wait_until
from vllm_instance import HOST, Instance

from splitserve.launch.ports import free_ports

LINK_S = 60.0

CORES = {"prefill": min(os.sched_getaffinity(0)), "decode": max(os.sched_getaffinity(0))}

TOKENS_IN = ("--enable-scale-out",)
"""Opens ``/inference/v1/generate``; without it the gateway uses ``/v1/completions``."""

TOKENS_ONLY = ("--tokens-only",)
"""Without a tokenizer: text is ours alone."""


@dataclass
class VllmCluster(Cluster):
    """A gateway over vLLM instances, whose addresses are ``addresses``."""

    addresses: Mapping[str, str] = field(default_factory=dict)

    def address(self, name: str) -> str:
        return self.addresses[name]

    @property
    def handoffs(self) -> float:
        return self.total("splitserve_handoff_prefill_seconds_count")

    @property
    def fallbacks(self) -> float:
        """Linking may have cost some."""
        return self.total("splitserve_fallback_total")

    @property
    def log(self) -> str:
        return (self.run_dir / "gateway.log").read_text()

    def happened(self, what: str) -> float:
        """See ``WORDS`` of the exchange."""
        return self.total("splitserve_vllm_handoff_total", what=what)

    def wait_linked(self) -> None:
        """Until requests are split."""

        def split() -> bool:
            before = self.handoffs
            complete(self, [1, 2, 3], 2)
            return self.handoffs > before

        wait_until(split, LINK_S, lambda: f"nothing is handed over: {self.log[-2000:]}")


@dataclass
class Fleet:
    model: Path
    instances: dict[str, Instance]

    def __getitem__(self, name: str) -> Instance:
        return self.instances[name]

    def start(self, *names: str) -> None:
        """Those of them that do not run, all at once."""
        asleep = [self[name] for name in names if not self[name].alive]
        for instance in asleep:
            instance.start()
        for instance in asleep:
            instance.wait_ready()

    @contextmanager
    def gateway(self, *names: str, linked: bool = True) -> Iterator[VllmCluster]:
        """A gateway of its own over those instances; ends with nothing at work in them."""
        addresses = {name: self[name].address() for name in names}
        with gateway(self.model, addresses, linked=linked) as cluster:
            yield cluster
        for name in names:
            if self[name].alive:
                settle(self[name])


@contextmanager
def gateway(
    model: Path, addresses: Mapping[str, str], *, linked: bool = True
) -> Iterator[VllmCluster]:
    """``linked``: begins when requests are split."""
    with TemporaryDirectory(prefix="ss-interop-") as run_dir:
        cluster = VllmCluster(str(model), Path(run_dir), (), addresses=addresses)
        try:
            cluster.start_gateway(list(addresses))
            if linked:
                cluster.wait_linked()
            yield cluster
        finally:
            cluster.stop()
        assert not leftovers(run_dir)


def settle(instance: Instance, within_s: float = 15.0) -> None:
    """Nothing runs or waits there, and no block is held: well before NIXL's lease of 30 s."""

    def empty() -> bool:
        instance.nudge()
        return not any(levels(instance).values())

    wait_until(empty, within_s, lambda: f"{instance.name} still holds: {levels(instance)}")


def levels(instance: Instance) -> dict[str, float]:
    names = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
    return {name: instance.total(f"vllm:{name}") for name in names}


@contextmanager
def fleet(model: Path, instances: Sequence[Instance]) -> Iterator[Fleet]:
    """``p0`` and ``d0`` are up; at the end nothing may be left running."""
    made = Fleet(model, {instance.name: instance for instance in instances})
    try:
        made.start("p0", "d0")
        yield made
    finally:
        for instance in instances:
            instance.stop()
    left = [process for instance in instances for process in instance.left()]
    assert not left, f"left running: {left}"


@contextmanager
def pull_fleet(model: Path, run_dir: Path) -> Iterator[Fleet]:
    roles = {"p0": "prefill", "p1": "prefill", "d0": "decode"}
    ports = list(free_ports(2 * len(roles)))
    instances = [
        Instance(
            name,
            role,
            model,
            run_dir,
            "NixlConnector",
            ports.pop(),
            side_port,
            CORES[role],
            flags=TOKENS_ONLY if name == "p1" else TOKENS_IN,
            facts={"side_channel_host": HOST, "side_channel_port": side_port},
        )
        for name, role in roles.items()
        if (side_port := ports.pop())
    ]
    with fleet(model, instances) as made:
        yield made


@contextmanager
def turn_fleet(model: Path, run_dir: Path) -> Iterator[Fleet]:
    """Prefill reads what decode keeps of finished turns, which holds its blocks for minutes."""
    extra = {"bidirectional_kv_xfer": True}
    facts = {"kv_connector_extra_config": json.dumps(extra)}
    more = {"flags": TOKENS_IN, "extra": extra, "facts": facts}
    with fleet(model, pair("NixlConnector", model, run_dir, **more)) as made:
        yield made


@contextmanager
def push_fleet(model: Path, run_dir: Path) -> Iterator[Fleet]:
    """Prefill has to be named to decode before it has answered: its engine id is ours."""
    ports = list(free_ports(4))
    engine, side_port = "push-p0", ports.pop()
    side = {"side_channel_host": HOST, "side_channel_port": side_port}
    instances = [
        Instance(
            "p0",
            "prefill",
            model,
            run_dir,
            "NixlPushConnector",
            ports.pop(),
            side_port,
            CORES["prefill"],
            flags=TOKENS_IN,
            engine_id=engine,
            facts={"engine_id": engine, **side, "tp_size": 1},
        ),
        Instance(
            "d0",
            "decode",
            model,
            run_dir,
            "NixlPushConnector",
            ports.pop(),
            ports.pop(),
            CORES["decode"],
            flags=TOKENS_IN,
        ),
    ]
    with fleet(model, instances) as made:
        yield made


@contextmanager
def example_fleet(model: Path, run_dir: Path) -> Iterator[Fleet]:
    store = run_dir / "store"
    store.mkdir()
    flags = ("--disable-hybrid-kv-cache-manager",)
    more = {"flags": flags, "extra": {"shared_storage_path": str(store)}}
    with fleet(model, pair("ExampleConnector", model, run_dir, **more)) as made:
        yield made


def pair(connector: str, model: Path, run_dir: Path, **more: Any) -> list[Instance]:
    """``p0`` and ``d0``, alike but for their roles. ``more``: see Instance."""
    ports = list(free_ports(4))
    return [
        Instance(
            name, role, model, run_dir, connector, ports.pop(), ports.pop(), CORES[role], **more
        )
        for name, role in (("p0", "prefill"), ("d0", "decode"))
    ]
