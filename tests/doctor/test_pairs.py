"""Which worker hands KV to which, and how."""

from splitserve.doctor.pairs import pairs_of
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup


def topology(*groups: WorkerGroup) -> Topology:
    return Topology(ModelAsked("m"), groups)


def test_every_prefill_worker_is_paired_with_every_decode_worker() -> None:
    asked = topology(
        WorkerGroup(role="prefill", count=2),
        WorkerGroup(role="decode", count=2),
        WorkerGroup(role="colocated"),
    )
    assert {(pair.prefill, pair.decode) for pair in pairs_of(asked)} == {
        (f"prefill-{p}", f"decode-{d}") for p in range(2) for d in range(2)
    }
    assert {(pair.connector, pair.path, pair.on_gpu) for pair in pairs_of(asked)} == {
        ("shm", "shm", False)
    }


def test_a_connector_that_was_asked_for_is_told_from_one_that_was_chosen() -> None:
    for connector, begins in (("auto", "by itself"), ("shm", "asked for")):
        groups = [WorkerGroup(role=role, connector=connector) for role in ("prefill", "decode")]
        (pair,) = pairs_of(topology(*groups))
        assert pair.why.startswith(begins)


def test_vllms_connectors_are_paths_where_ours_go_the_same_way() -> None:
    for name, path in ((None, "nixl"), ("MooncakeConnector", "mooncake"), ("FlexKV", "")):
        groups = [
            WorkerGroup(role=role, engine="vllm", kv_connector=name)
            for role in ("prefill", "decode")
        ]
        (pair,) = pairs_of(topology(*groups))
        assert (pair.engine, pair.path) == ("vllm", path)


def test_what_up_sets_for_ucx_is_said_and_gives_way_to_env() -> None:
    for env, said in (({}, "UCX_TLS is tcp,shm"), ({"UCX_TLS": "all"}, "UCX_TLS is all")):
        groups = [WorkerGroup(role=role, engine="vllm", env=env) for role in ("prefill", "decode")]
        (pair,) = pairs_of(topology(*groups))
        assert said in pair.why
