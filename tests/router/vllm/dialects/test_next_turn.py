"""Decode's blocks serve the next turn only where that is exact."""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.router.workers.vllm.dialects.base import DialectError, Instance
from splitserve.router.workers.vllm.dialects.nixl_turns import (
    DECODER_TTL_S,
    MARGIN_S,
    TTL,
    Turn,
    bidirectional,
    continue_from,
    continues,
    turn_facts,
)

OLD: Final = list(range(1, 41))
KEPT: Final = {
    "do_remote_prefill": False,
    "do_remote_decode": True,
    "remote_block_ids": [[3, 4, 5]],
    "remote_engine_id": "engine-d",
    "remote_request_id": "cmpl-a#0-0-0a1b2c3d",
    "remote_host": "10.0.0.2",
    "remote_port": 5600,
    "tp_size": 1,
    "remote_num_tokens": 39,
    "remote_blocks_expiry_time": 900.5,
    "transfer_mode": "pull",
}
DECODE: Final = Instance("http://d", {"side_channel_host": "10.0.0.2", "side_channel_port": 5600})
PREFILL: Final = Instance("http://p", {"bidirectional": True})


def turn(**changes: Any) -> Turn:
    return Turn(KEPT | changes, OLD, DECODE, finished_s=1000.0)


def test_a_prompt_that_extends_the_last_turn_continues_from_it() -> None:
    noted = turn(_remote_blocks_processed=True)
    assert continue_from(noted, [*OLD, 50], PREFILL, 1001.0) == KEPT


@given(st.integers(0, len(OLD) - 1), st.integers(0, 60))
def test_an_edited_history_never_continues(at: int, token: int) -> None:
    edited = [*OLD[:at], token, *OLD[at + 1 :], 50]
    found = continue_from(turn(), edited, PREFILL, 1001.0)
    assert (found is None) == (token != OLD[at])


@given(st.integers(0, len(OLD)))
def test_a_prompt_no_longer_than_the_history_never_continues(length: int) -> None:
    assert continue_from(turn(), OLD[:length], PREFILL, 1001.0) is None


def test_a_stripped_reasoning_part_never_continues() -> None:
    assert continue_from(turn(), [*OLD[:20], *OLD[30:], *range(60, 90)], PREFILL, 1001.0) is None


def test_blocks_are_left_alone_before_decode_lets_them_go() -> None:
    last = 1000.0 + DECODER_TTL_S - MARGIN_S
    assert continue_from(turn(), [*OLD, 50], PREFILL, last - 0.1) is not None
    assert continue_from(turn(), [*OLD, 50], PREFILL, last) is None


def test_a_shorter_lease_is_kept_too() -> None:
    short = replace(turn(), decode=replace(DECODE, facts={**DECODE.facts, TTL: 30.0}))
    assert continue_from(short, [*OLD, 50], PREFILL, 1019.0) is not None
    assert continue_from(short, [*OLD, 50], PREFILL, 1025.0) is None


@pytest.mark.parametrize(
    "facts", [{}, {"bidirectional": False}, {"bidirectional": "yes"}], ids=["unknown", "no", "text"]
)
def test_prefill_that_would_wait_for_ever_is_not_asked(facts: dict[str, Any]) -> None:
    assert continue_from(turn(), [*OLD, 50], Instance("http://p", facts), 1001.0) is None


@pytest.mark.parametrize("kept", [None, 0, 41], ids=["untold", "none", "more-than-known"])
def test_blocks_of_tokens_that_are_not_known_are_not_used(kept: int | None) -> None:
    assert continue_from(turn(remote_num_tokens=kept), [*OLD, 50], PREFILL, 1001.0) is None
    assert not continues(turn(remote_num_tokens=kept))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("do_remote_decode", False),
        ("do_remote_prefill", True),
        ("remote_host", "10.6.6.6"),
        ("remote_block_ids", []),
        ("transfer_mode", "push"),
        ("remote_blocks_expiry_time", float("inf")),
    ],
)
def test_an_unsound_answer_is_refused(key: str, value: Any) -> None:
    with pytest.raises(DialectError, match=key):
        continue_from(turn(**{key: value}), [*OLD, 50], PREFILL, 1001.0)
    with pytest.raises(DialectError, match=key):
        continues(turn(**{key: value}))


@pytest.mark.parametrize(
    ("connector", "extra", "told", "able"),
    [
        ("NixlConnector", {"bidirectional_kv_xfer": True}, {}, True),
        ("NixlPullConnector", {"bidirectional_kv_xfer": True}, {}, True),
        ("NixlConnector", {}, {"bidirectional": True}, True),
        ("NixlConnector", {}, {"bidirectional": 1}, True),
        ("NixlConnector", {}, {"bidirectional": "true"}, True),
        ("NixlConnector", {}, {"bidirectional": "no"}, False),
        ("NixlConnector", {"bidirectional_kv_xfer": "true"}, {}, False),
        ("NixlConnector", {}, {}, False),
        ("NixlPushConnector", {"bidirectional_kv_xfer": True}, {"bidirectional": True}, False),
    ],
)
def test_only_who_pulls_and_is_started_for_it_goes_both_ways(
    connector: str, extra: dict[str, Any], told: dict[str, Any], able: bool
) -> None:
    config = {"kv_connector": connector, "kv_connector_extra_config": extra}
    assert bidirectional(Instance("http://p", {**told, **turn_facts(config, told)})) is able


def test_how_long_decode_keeps_a_turn_is_what_it_was_started_with() -> None:
    config = {"kv_connector": "NixlConnector", "kv_connector_extra_config": {TTL: 60}}
    assert turn_facts(config, {TTL: "never"})[TTL] == 60
    assert turn_facts({}, {TTL: "never"})[TTL] == DECODER_TTL_S
