"""Pairs that cannot hand over, whatever the deployment says of them."""

import socket
from collections.abc import Iterator

import pytest
from client import complete
from cluster import wait_until
from vllm_fleet import Fleet, gateway, settle
from vllm_instance import HOST
from vllm_prompts import prompt
from vllm_relay import lying

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NEW = 8
FAILED = "vllm:nixl_num_failed_transfers_total"


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with socket.create_server((HOST, 0)) as silent:
        yield int(silent.getsockname()[1])


def test_other_connectors_are_refused_and_the_rest_serves(pulling: Fleet) -> None:
    prefill, decode = pulling["p0"], pulling["d0"]
    wrong = decode.address().replace("NixlConnector", "ExampleConnector")
    ids = prompt(140, seed="connectors")
    with gateway(pulling.model, {"p0": prefill.address(), "d0": wrong}, linked=False) as cluster:
        tokens = complete(cluster, ids, NEW, ignore_eos=True)
        assert cluster.handoffs == 0
        assert "fingerprint differs: vllm_connector" in cluster.log
    assert tokens == pulling["p0"].complete(ids, NEW, ignore_eos=True)


def test_an_address_that_is_not_prefills_own_is_never_given_to_decode(pulling: Fleet) -> None:
    """Prefill's answer names another side channel than the deployment: somebody is wrong, and
    decode would connect to whatever it is told."""
    addresses = {
        "p0": pulling["p0"].address(side_channel_port=pulling["d0"].side_port),
        "d0": pulling["d0"].address(),
    }
    ids = prompt(140, seed="address")
    with gateway(pulling.model, addresses, linked=False) as cluster:
        tokens = complete(cluster, ids, NEW, ignore_eos=True)
        assert cluster.handoffs == 0
        assert "p0 cannot hand over to d0" in cluster.log
    assert tokens == pulling["p0"].complete(ids, NEW, ignore_eos=True)


def test_a_pair_with_a_dead_side_channel_is_not_linked(pulling: Fleet, nobody: int) -> None:
    """With ``kv_load_failure_policy`` set to recompute, decode answers as if nothing were wrong:
    only its own count of failed transfers tells."""
    prefill, decode = pulling["p0"], pulling["d0"]
    ids = prompt(140, seed="never linked")
    with lying(prefill.url, dead(nobody)) as relay:
        addresses = {"p0": prefill.address(relay.url, side_channel_port=nobody)}
        addresses["d0"] = decode.address()
        with gateway(pulling.model, addresses, linked=False) as cluster:
            refused = "p0 cannot hand over to d0: decode could not load the KV"
            wait_until(lambda: refused in cluster.log, 30, lambda: cluster.log[-2000:])
            tokens = complete(cluster, ids, NEW, ignore_eos=True)
            assert cluster.handoffs == 0
    assert tokens == prefill.complete(ids, NEW, ignore_eos=True)
    settle(decode)


def test_when_the_side_channel_dies_decode_computes_the_prompt(pulling: Fleet, nobody: int) -> None:
    prefill, decode = pulling["p0"], pulling["d0"]
    ids = prompt(140, seed="side channel")
    with lying(prefill.url, {}) as relay:
        query = "name=p0&role=prefill&connector=NixlConnector&kv_role=kv_both"
        addresses = {"p0": f"vllm+{relay.url}?{query}", "d0": decode.address()}
        with gateway(pulling.model, addresses) as cluster:
            relay.changes = dead(nobody)
            before, failed = cluster.handoffs, decode.total(FAILED)
            tokens = complete(cluster, ids, NEW, ignore_eos=True)
            assert cluster.handoffs == before + 1
    assert tokens == prefill.complete(ids, NEW, ignore_eos=True)

    def counted() -> bool:
        decode.nudge()
        return decode.total(FAILED) > failed

    wait_until(counted, 20, lambda: "no transfer has failed")
    settle(decode)
    settle(prefill, within_s=45)  # nobody told it to let go: its lease of 30 s does


def dead(port: int) -> dict[str, str | int]:
    return {"remote_port": port, "remote_engine_id": "not-there"}
