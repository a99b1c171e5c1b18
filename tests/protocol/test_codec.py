"""Frames: any cut of the byte stream gives the same messages; bad bytes are refused."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splitserve.errors import ProtocolMismatch
from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.codec import FrameDecoder, Message, encode
from splitserve.protocol.control import (
    PROTOCOL_VERSION,
    Abort,
    Began,
    Drain,
    Failed,
    Hello,
    Holding,
    Inventory,
    Pair,
    RoleSet,
    SetRole,
    StepTokens,
    Submit,
    Welcome,
)
from splitserve.protocol.generate import GenerateRequest, TokenChunk, TokenLogprob
from splitserve.protocol.handoff import (
    Attach,
    Attached,
    Fence,
    FenceRequest,
    Grant,
    GrantTarget,
    KVReady,
    Prefill,
    PrefillDone,
    Refuse,
    Renew,
    Reserve,
)
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.telemetry import KVCounts, Load
from splitserve.protocol.whereabouts import Whereabouts

REQUEST = GenerateRequest(
    RequestId("r"), (1, 2, 3), SamplingParams(seed=2**63, max_tokens=5, logit_bias={7: -1.5})
)
TARGET = GrantTarget(HandoffId("r#0"), 4, WorkerId("d0"), "a>b", 1, (9, 8))
FINGERPRINT = {"model": "abc"}
EVERY_MESSAGE: list[Message] = [
    Hello("g"),
    Welcome(
        WorkerId("w"),
        Incarnation("i"),
        "decode",
        "unix:/x",
        1,
        "m",
        "shm",
        2048,
        100,
        16,
        64,
        FINGERPRINT,
    ),
    Pair(WorkerId("d0"), "unix:/x"),
    Submit(REQUEST, (4, 5)),
    Abort(RequestId("r")),
    StepTokens(
        (
            TokenChunk(RequestId("r"), 0, (1,)),
            TokenChunk(
                RequestId("q"),
                3,
                (2,),
                "stop",
                2,
                (TokenLogprob(2, -0.5, 1, ((2, -0.5), (3, -1.0))),),
                16,
            ),
        )
    ),
    StepTokens(
        (TokenChunk(RequestId("r"), 0, (1,)),),
        (Began(RequestId("r"), 0.1, 0.2), Began(RequestId("q"), call_s=0.3)),
    ),
    Failed(RequestId("r"), "engine", "no"),
    Failed(RequestId("r"), "invalid", "no", "structured_outputs"),
    Drain(),
    Drain(0.5),
    SetRole("prefill", 1.0),
    RoleSet("decode", "too soon"),
    Inventory(3),
    Holding(3, (RequestId("r"), RequestId("q"))),
    Reserve(HandoffId("r#0"), REQUEST, WorkerId("p0"), 5.0),
    Grant(TARGET, 16),
    Refuse(HandoffId("r#0"), "no_blocks", "full", True),
    Refuse(HandoffId("r#0"), "invalid", "no", False, "prompt"),
    Prefill(REQUEST, TARGET, 5.0),
    PrefillDone(RequestId("r"), HandoffId("r#0"), 1, 0.1, 0.2, 0.3),
    PrefillDone(RequestId("r"), HandoffId("r#0"), 0, 0.1, 0.2, 0.3, True, True),
    KVReady(HandoffId("r#0"), 4, 17),
    FenceRequest(HandoffId("r#0"), 4),
    Fence(HandoffId("r#0"), 4),
    Renew((HandoffId("r#0"),)),
    Attach(WorkerId("p0"), Incarnation("i"), 7, FINGERPRINT, "shm"),
    Attached(WorkerId("d0"), Incarnation("i"), "a>b", FINGERPRINT, b"\x00\xff"),
    Attached(
        WorkerId("d0"), Incarnation("i"), "a>b", FINGERPRINT, b"", Whereabouts("h", "r", True)
    ),
    Load(KVCounts(1, 2, 3, 4, 5, 6), 1, 2, 3, 4, 5, 6, 7, ("p0",), True, "decode", 2, 0.5),
]


def test_what_a_frame_of_tokens_may_tell_beside_them_costs_nothing_where_it_does_not() -> None:
    plain = StepTokens((TokenChunk(RequestId("r"), 1, (2,)),))
    fields = msgspec.msgpack.decode(encode(plain)[5:])
    assert fields.keys() == {"type", "chunks"}


def test_every_kind_of_message_is_covered_here() -> None:
    assert {type(message) for message in EVERY_MESSAGE} == set(Message.__args__)


@given(st.lists(st.sampled_from(EVERY_MESSAGE), max_size=6), st.data())
def test_any_cut_of_the_stream_gives_the_same_messages(
    messages: list[Message], data: st.DataObject
) -> None:
    stream = b"".join(encode(message) for message in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    decoder = FrameDecoder()
    received: list[Message] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == messages


def test_another_version_is_refused_by_number() -> None:
    with pytest.raises(ProtocolMismatch, match="version 9"):
        FrameDecoder().feed(struct.pack(">IB", 2, 9) + b"\x00")


def test_an_oversized_frame_is_refused_before_it_is_read() -> None:
    with pytest.raises(ProtocolMismatch, match="limit 100"):
        FrameDecoder(max_frame_bytes=100).feed(struct.pack(">IB", 101, PROTOCOL_VERSION))


def test_an_empty_frame_is_refused() -> None:
    with pytest.raises(ProtocolMismatch):
        FrameDecoder().feed(struct.pack(">IB", 0, PROTOCOL_VERSION))


@given(st.binary(max_size=200))
def test_random_bodies_are_refused_and_never_crash(body: bytes) -> None:
    frame = struct.pack(">IB", len(body) + 1, PROTOCOL_VERSION) + body
    try:
        FrameDecoder().feed(frame)
    except ProtocolMismatch:
        return
    # What was accepted is one of ours: msgpack of a tagged map.
    assert body[:1] >= b"\x80"


@given(st.binary(max_size=300))
def test_random_streams_are_refused_or_wait_for_more(data: bytes) -> None:
    decoder = FrameDecoder(max_frame_bytes=1000)
    try:
        messages = decoder.feed(data)
    except ProtocolMismatch:
        return
    assert messages == [] or len(data) > 5


def test_load_totals_are_the_sum_of_all_states() -> None:
    counts = KVCounts(1, 2, 3, 4, 5, 6)
    assert counts.total == 21
    assert not counts.idle
    assert KVCounts(4, 2, 0, 0, 0, 0).idle
