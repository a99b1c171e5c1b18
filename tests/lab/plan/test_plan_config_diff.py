"""The configuration diff: what is the split, what would be taken for it, what is noted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_plan import data, plan_of

from splitserve.lab.plan.config_diff import Difference, Kind, classify, compare, confounders

VALUES = st.one_of(st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["a", "b"]))
KEYS = st.sampled_from(
    [
        f"{scope}.{setting}"
        for scope in ("model", "gateway", "colocated", "prefill", "decode", "decode[1]")
        for setting in ("dtype", "count", "port")
    ]
)
CONFIGS = st.dictionaries(KEYS, VALUES, max_size=8)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("prefill.count", Kind.ROLE),
        ("decode[1].role", Kind.ROLE),
        ("prefill.tensor_parallel_size", Kind.ROLE),
        ("decode.connector", Kind.ROLE),
        ("decode.kv_connector_extra_config.backends", Kind.ROLE),
        ("decode.env.UCX_TLS", Kind.ROLE),
        ("proxy.version", Kind.ROLE),
        ("gateway.port", Kind.RECORDED),
        ("decode.side_channel_port", Kind.RECORDED),
        ("model.served_model_name", Kind.RECORDED),
        ("model.dtype", Kind.CONFOUNDER),
        ("software.version", Kind.CONFOUNDER),
        ("gateway.policy", Kind.CONFOUNDER),
        ("prefill.max_num_batched_tokens", Kind.CONFOUNDER),
        ("decode.gpu_memory_utilization", Kind.CONFOUNDER),
        ("decode.env.VLLM_ATTENTION_BACKEND", Kind.CONFOUNDER),
        ("something.nobody_heard_of", Kind.CONFOUNDER),
    ],
)
def test_each_difference_has_one_class(key: str, kind: Kind) -> None:
    assert classify(key)[0] is kind


def test_a_role_is_compared_with_the_worker_whose_place_it_takes() -> None:
    left = {"colocated.count": 2, "colocated.max_num_seqs": 64}
    right = {
        "prefill.count": 1,
        "prefill.max_num_seqs": 64,
        "decode.count": 2,
        "decode.max_num_seqs": 32,
    }
    differences = compare(left, right)
    assert [(one.key, one.left, one.right) for one in differences] == [
        ("decode.max_num_seqs", 64, 32),
        ("prefill.count", 2, 1),
    ]
    assert [one.key for one in confounders(differences)] == ["decode.max_num_seqs"]


def test_a_setting_that_one_arm_lacks_is_a_difference() -> None:
    (one,) = compare({"gateway.policy": "x"}, {})
    assert one == Difference("gateway.policy", "x", None, Kind.CONFOUNDER, one.why)
    (other,) = compare({"colocated.count": 1}, {"decode.count": 1, "decode.dtype": "a"})
    assert (other.key, other.left, other.right) == ("decode.dtype", None, "a")


def test_true_is_not_one() -> None:
    assert [one.key for one in compare({"model.x": True}, {"model.x": 1})] == ["model.x"]


def test_the_shipped_pair_of_topologies_differs_in_the_split_only() -> None:
    plan = plan_of(data())
    differences = compare(plan.baseline.config, plan.split.config)
    assert {one.kind for one in differences} == {Kind.ROLE}
    assert {one.key for one in differences} >= {"prefill.role", "decode.role", "proxy.name"}


@settings(max_examples=100, deadline=None)
@given(CONFIGS)
def test_a_configuration_does_not_differ_from_itself(config: dict[str, int | str | None]) -> None:
    assert compare(config, config) == ()


@settings(max_examples=150, deadline=None)
@given(CONFIGS, CONFIGS)
def test_seen_from_the_other_side_it_is_the_same_difference(
    left: dict[str, int | str | None], right: dict[str, int | str | None]
) -> None:
    there, back = compare(left, right), compare(right, left)
    swapped = [(one.key, one.right, one.left, one.kind) for one in back]
    assert [(one.key, one.left, one.right, one.kind) for one in there] == swapped
    assert all(one.left != one.right or type(one.left) is not type(one.right) for one in there)
