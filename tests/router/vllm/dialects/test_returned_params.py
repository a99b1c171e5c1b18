"""No dict that vLLM would choke on gets past a dialect."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from router.vllm.dialects.families import HANDOFF
from splitserve.router.workers.vllm.dialects.base import DialectError, Instance
from splitserve.router.workers.vllm.dialects.mooncake import engine_ids
from splitserve.router.workers.vllm.dialects.moriio_read import MoriioRead
from splitserve.router.workers.vllm.dialects.moriio_write import MoriioWrite
from splitserve.router.workers.vllm.dialects.nixl_pull import NixlPull
from splitserve.router.workers.vllm.dialects.nixl_push import NixlPush

MORIIO_FACTS: Final = {
    "side_channel_host": "10.0.0.1",
    "handshake_port": 6301,
    "notify_port": 61005,
    "tp_size": 1,
}
NIXL_FACTS: Final = {
    "engine_id": "engine-p",
    "side_channel_host": "10.0.0.1",
    "side_channel_port": 5600,
    "tp_size": 1,
}
NIXL: Final = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[3, 4], [9]],
    "remote_engine_id": "engine-p",
    "remote_request_id": "cmpl-cmpl-a1b2c3#0-0-0a1b2c3d",
    "remote_host": "10.0.0.1",
    "remote_port": 5600,
    "tp_size": 1,
}
NEWER: Final = {
    "dcp_size": 1,
    "pp_size": 1,
    "remote_num_tokens": 35,
    "remote_blocks_expiry_time": 12.5,
    "remote_prefill_cached_tokens": 0,
}
MORIIO: Final = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[3, 4]],
    "remote_engine_id": "engine-p",
    "tp_size": 1,
    "transfer_id": f"xfer-{HANDOFF}",
}
MORIIO_NEWER: Final = {
    "remote_host": "10.0.0.1",
    "remote_handshake_port": 6301,
    "remote_notify_port": 61005,
    "remote_dp_rank": 0,
    "remote_dp_rank_override": True,
    "remote_dp_size": 1,
    "remote_dp_size_local": 1,
    "remote_prefill_cached_tokens": 0,
}


def pulled(returned: Any) -> Mapping[str, Any] | None:
    prefill, decode = Instance("http://p", NIXL_FACTS), Instance("http://d")
    return NixlPull().decode(HANDOFF, prefill, decode, returned).params


def pulled_from_anywhere(returned: Any) -> Mapping[str, Any] | None:
    prefill, decode = Instance("http://p"), Instance("http://d")
    return NixlPull().decode(HANDOFF, prefill, decode, returned).params


def pushed(returned: Any) -> Mapping[str, Any] | None:
    prefill, decode = Instance("http://p", NIXL_FACTS), Instance("http://d")
    return NixlPush().decode(HANDOFF, prefill, decode, returned).params


def moriio(returned: Any) -> Mapping[str, Any] | None:
    prefill, decode = Instance("http://p", MORIIO_FACTS), Instance("http://d", MORIIO_FACTS)
    return MoriioRead().decode(HANDOFF, prefill, decode, returned).params


Decode = Callable[[Any], Mapping[str, Any] | None]
CASES: Final[dict[str, tuple[Decode, dict[str, Any], dict[str, Any]]]] = {
    "pull": (pulled, NIXL, NEWER | {"transfer_mode": "pull"}),
    "anywhere": (pulled_from_anywhere, NIXL, NEWER | {"transfer_mode": "pull"}),
    "push": (pushed, NIXL, NEWER | {"transfer_mode": "push"}),
    "moriio": (moriio, MORIIO, MORIIO_NEWER),
}
names = st.sampled_from(sorted(CASES))
JUNK: Final = [
    "",
    " ",
    "a b",
    "a,b",
    "a\nb",
    "\x00",
    "elsewhere\u00e9",
    -1,
    2**70,
    1.5,
    float("nan"),
    [],
    [[]],
    [[], []],
    [3, 4],
    [[-1]],
    [[True]],
    [["3"]],
    [[2**40]],
    [None],
    {},
    {"a": 1},
]
junk = st.sampled_from(JUNK) | st.text(max_size=8).map(lambda text: f"\t{text}")


@pytest.mark.parametrize("name", CASES)
def test_a_sound_answer_goes_on_with_its_unknown_keys(name: str) -> None:
    decode, needed, newer = CASES[name]
    later = {"of_a_newer_version": {"a": [1, None]}}
    sent = decode(needed | newer | later | {"_note": 1, "__note": 2})
    assert sent is not None
    own = needed | newer | later
    own.pop("remote_block_ids") if name == "push" else None
    assert {key: sent[key] for key in own} == own
    assert not [key for key in sent if key.startswith("_")]


@pytest.mark.parametrize("name", CASES)
def test_an_older_vllm_is_understood(name: str) -> None:
    decode, needed, _ = CASES[name]
    assert decode(needed) is not None


@given(names, st.data())
def test_no_answer_without_a_needed_key_is_passed(name: str, data: st.DataObject) -> None:
    decode, needed, newer = CASES[name]
    gone = data.draw(st.sampled_from(sorted(needed)))
    left = {key: value for key, value in (needed | newer).items() if key != gone}
    with pytest.raises(DialectError, match=gone):
        decode(left)


@given(names, st.data(), junk)
def test_no_answer_with_a_mutilated_value_is_passed(
    name: str, data: st.DataObject, value: Any
) -> None:
    decode, needed, newer = CASES[name]
    key = data.draw(st.sampled_from(sorted(needed | newer)))
    # Any finite moment of another clock may be meant.
    assume(key != "remote_blocks_expiry_time" or value not in (-1, 1.5, 2**70))
    with pytest.raises(DialectError, match=key):
        decode(needed | newer | {key: value})


@pytest.mark.parametrize("name", CASES)
def test_a_null_is_passed_only_where_vllm_sends_and_takes_it(name: str) -> None:
    decode, needed, newer = CASES[name]
    taken = {"remote_num_tokens", "remote_blocks_expiry_time", "remote_prefill_cached_tokens"}
    for key in sorted(needed | newer):
        if key in taken:
            assert decode(needed | newer | {key: None}) is not None
        else:
            with pytest.raises(DialectError, match=key):
                decode(needed | newer | {key: None})


@given(names, st.data())
def test_true_and_false_are_not_numbers_and_numbers_are_not_true(
    name: str, data: st.DataObject
) -> None:
    decode, needed, newer = CASES[name]
    whole = needed | newer
    key = data.draw(st.sampled_from(sorted(k for k in whole if isinstance(whole[k], int))))
    other = int(whole[key]) if isinstance(whole[key], bool) else bool(whole[key])
    with pytest.raises(DialectError, match=key):
        decode(whole | {key: other})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(names, json_values)
def test_nothing_that_is_no_answer_is_passed(name: str, returned: Any) -> None:
    if name == "push" and returned is None:
        return  # decode may be asked before there is an answer
    with pytest.raises(DialectError):
        CASES[name][0](returned)


@given(names, st.data(), json_values)
def test_what_is_passed_is_always_what_vllm_reads(
    name: str, data: st.DataObject, value: Any
) -> None:
    decode, needed, newer = CASES[name]
    key = data.draw(st.sampled_from(sorted(needed | newer)))
    try:
        sent = decode(needed | newer | {key: value})
    except DialectError:
        return
    assert sent is not None
    assert sent["do_remote_prefill"] is True
    assert sent["do_remote_decode"] is False
    assert json.loads(json.dumps(sent, allow_nan=False)) == sent
    if name != "push":
        assert any(sent["remote_block_ids"])
        assert all(type(block) is int for group in sent["remote_block_ids"] for block in group)


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("pull", "remote_host", "10.6.6.6"),
        ("pull", "remote_host", "0.0.0.0"),
        ("pull", "remote_port", 5601),
        ("pull", "remote_engine_id", "engine-q"),
        ("pull", "transfer_mode", "push"),
        ("push", "remote_host", "10.6.6.6"),
        ("push", "transfer_mode", "pull"),
        ("moriio", "remote_host", "10.6.6.6"),
        ("moriio", "remote_handshake_port", 1),
        ("moriio", "remote_notify_port", 1),
        ("moriio", "transfer_id", "xfer-another"),
    ],
)
def test_an_instance_cannot_point_decode_elsewhere(name: str, key: str, value: Any) -> None:
    decode, needed, newer = CASES[name]
    with pytest.raises(DialectError, match=key):
        decode(needed | newer | {key: value})


@pytest.mark.parametrize(
    "key",
    [
        "disagg_spec",
        "prompt_token_ids",
        "remote_bootstrap_addr",
        "remote_decoder",
        "remote_hosts",
        "remote_kv_source",
        "remote_prefiller",
    ],
)
@pytest.mark.parametrize("name", CASES)
def test_an_instance_cannot_speak_to_another_connector(name: str, key: str) -> None:
    decode, needed, newer = CASES[name]
    with pytest.raises(DialectError, match=key):
        decode(needed | newer | {key: {}})


def test_data_parallel_ranks_are_their_instance() -> None:
    ranks = Instance("http://p", NIXL_FACTS | {"dp_size": 4})
    answer = NIXL | {"remote_port": 5603, "remote_engine_id": "engine-p_dp3"}
    leg = NixlPull().decode(HANDOFF, ranks, Instance("http://d"), answer)
    assert leg.params == answer
    with pytest.raises(DialectError, match="remote_port"):
        NixlPull().decode(HANDOFF, ranks, Instance("http://d"), NIXL | {"remote_port": 5604})


def test_an_unknown_place_is_taken_as_told() -> None:
    answer = NIXL | {"remote_host": "fe80::1%eth0", "remote_port": 1}
    leg = NixlPull().decode(HANDOFF, Instance("http://p"), Instance("http://d"), answer)
    assert leg.params == answer


@pytest.mark.parametrize("dialect", [NixlPull(), MoriioRead()], ids=lambda d: d.name)
@pytest.mark.parametrize(
    "returned",
    [None, {}, NIXL | {"remote_block_ids": [[]]}, NIXL | {"remote_host": "a b"}],
    ids=["nothing", "empty", "no-blocks", "unsound"],
)
def test_nothing_is_released_that_is_not_held_or_not_sound(dialect: Any, returned: Any) -> None:
    assert dialect.release(returned) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]"])
def test_an_address_that_means_anywhere_is_refused(host: str) -> None:
    with pytest.raises(DialectError, match="a host that decode can connect to"):
        NixlPull().decode(
            HANDOFF, Instance("http://p"), Instance("http://d"), NIXL | {"remote_host": host}
        )


def test_a_release_cannot_point_decode_elsewhere() -> None:
    elsewhere = NIXL | {"remote_host": "10.6.6.6"}
    assert NixlPull().release(elsewhere, Instance("http://p", NIXL_FACTS)) is None


def test_moriio_releases_only_with_an_address() -> None:
    dialect = MoriioRead()
    assert dialect.release(MORIIO) is None
    assert dialect.release(MORIIO | {"remote_block_ids": []}) is None
    assert dialect.release(MORIIO | MORIIO_NEWER | {"tp_size": 0}) is None
    assert dialect.release(MORIIO | MORIIO_NEWER) == MORIIO | MORIIO_NEWER


@given(st.sampled_from(sorted(MORIIO | MORIIO_NEWER)), junk)
def test_a_mutilated_answer_releases_nothing(key: str, value: Any) -> None:
    assert MoriioRead().release(MORIIO | MORIIO_NEWER | {key: value}) is None


@pytest.mark.parametrize("dialect", [NixlPush(), MoriioWrite()], ids=lambda d: d.name)
def test_where_prefill_writes_only_time_releases(dialect: Any) -> None:
    assert dialect.release(NIXL) is None
    assert dialect.release(MORIIO | MORIIO_NEWER) is None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"0": {}},
        {"0": None},
        {"x": {"engine_id": "e"}},
        {"-1": {"engine_id": "e"}},
        {"0": {"engine_id": "a b"}},
        {"0": {"engine_id": ""}},
    ],
    ids=repr,
)
def test_a_bootstrap_answer_without_engines_is_refused(answer: object) -> None:
    with pytest.raises(DialectError):
        engine_ids(answer, "http://p:8998")
