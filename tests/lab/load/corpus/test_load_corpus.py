"""What is asked: the same everywhere, with the shared prefixes that were meant and no others."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.load.corpus.conversations import Talk, read_messages, read_sharegpt
from splitserve.lab.load.corpus.synthetic import (
    FIRST_ORDINARY_ID,
    SessionShape,
    Shape,
    Vocabulary,
    corpus_hash,
    synthetic,
    synthetic_sessions,
)
from splitserve.lab.load.corpus.traces import Fit, read_trace
from splitserve.lab.load.request import Asking, body_of, prompt_lengths

VOCAB = Vocabulary(1000)
FIT = Fit(VOCAB, max_model_len=10_000)
TRACES = Path(__file__).parents[4] / ".." / "shared" / "traces"


def test_ids_come_from_the_name_alone_and_stay_in_the_vocabulary() -> None:
    assert VOCAB.ids("a", 3) == (203, 148, 513)
    assert VOCAB.ids("a", 1000)[:3] == VOCAB.ids("a", 3)
    assert all(FIRST_ORDINARY_ID <= one < 1000 for one in VOCAB.ids("b", 1000))
    assert VOCAB.ids("a", 0) == ()
    with pytest.raises(ConfigError):
        Vocabulary(FIRST_ORDINARY_ID)


def test_a_corpus_is_the_same_for_the_same_seed_only() -> None:
    def made(seed: int) -> str:
        return corpus_hash(synthetic("measured", seed, 20, Shape(50, 8), VOCAB))

    assert made(1) == made(1) != made(2)


def test_prompts_share_what_was_asked_and_nothing_else() -> None:
    shape = Shape(64, 8, shared_prefix=32, groups=2)
    prompts = [request.prompt for request in synthetic("measured", 1, 40, shape, VOCAB)]
    assert {len(prompt) for prompt in prompts} == {64}
    assert len({prompt[:32] for prompt in prompts}) == 2
    assert len({prompt[32:40] for prompt in prompts}) == 40
    with pytest.raises(ConfigError, match="prefix"):
        synthetic("measured", 1, 1, Shape(8, 8, shared_prefix=9), VOCAB)


def test_warm_up_and_measured_shards_share_no_prefix() -> None:
    shape = Shape(64, 8, shared_prefix=32)
    warmup, measured = (synthetic(name, 1, 1, shape, VOCAB)[0] for name in ("warmup", "measured"))
    assert warmup.prompt[:4] != measured.prompt[:4]


def test_a_later_turn_is_what_is_new_and_follows_what_was_said() -> None:
    shape = SessionShape(turns=3, first_tokens=20, turn_tokens=5, max_tokens=4, think_s=2.0)
    first, second, third = synthetic_sessions("measured", 1, 1, shape, VOCAB)
    assert [len(turn.prompt) for turn in (first, second, third)] == [20, 5, 5]
    assert prompt_lengths((first, second, third)) == [20, 29, 38]
    assert [turn.follows for turn in (first, second, third)] == [False, True, True]
    assert [len(turn.instead) for turn in (first, second, third)] == [0, 4, 4]
    assert len({second.prompt[:4], third.prompt[:4], second.instead, third.instead}) == 4
    assert [turn.turn for turn in (first, second, third)] == [0, 1, 2]
    assert [turn.think_s for turn in (first, second, third)] == [0.0, 2.0, 2.0]


def test_azure_rows_become_requests_at_their_times(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:27:06.2560490,12,3\n"
        "2023-11-16 18:27:06.5060490,9,0\n"
        "2023-11-16 18:27:07.2560490,9999,2\n"
        "2023-11-16 18:28:06.7560490,5,2\n"
    )
    imported = read_trace(path, "azure", FIT)
    first, second = imported.requests
    assert (len(first.prompt), first.max_tokens, first.offset_s) == (12, 3, 0.0)
    assert (len(second.prompt), second.offset_s) == (5, pytest.approx(60.5, abs=1e-6))
    assert (imported.without_answer, imported.too_long) == (1, 1)


OLD = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,GPT-4,7,8,15,API log\n"
)
NEW = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,x,1.5,GPT-4,7,8,15,API log\n"
)


@pytest.mark.parametrize("text", [OLD, NEW], ids=["old", "new"])
def test_burstgpt_columns_are_found_by_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    path.write_text(text)
    (request,) = read_trace(path, "burstgpt", FIT).requests
    assert (len(request.prompt), request.max_tokens) == (7, 8)


def test_burstgpt_sessions_become_turns_of_the_traces_lengths(tmp_path: Path) -> None:
    path = tmp_path / "burst.csv"
    rows = [
        (5, "x", 1.5, 7, 8),
        (6, "y", 1.0, 9, 2),
        (6, "", 1.0, 4, 2),
        (10, "x", 3.0, 20, 6),
        (12, "x", 1.0, 11, 3),
    ]
    lines = [
        f"{at},{name},{took},GPT-4,{asked},{got},0,Conversation"
        for at, name, took, asked, got in rows
    ]
    path.write_text("\n".join([NEW.splitlines()[0], *lines]) + "\n")
    first, second, third, alone, nameless = read_trace(path, "burstgpt", FIT).requests
    assert len({first.session, second.session, third.session}) == 1
    assert (alone.session, nameless.session) == (None, None)
    assert prompt_lengths((first, second, third)) == [7, 20, 11]
    # 15 tokens were said when the second came with 20; the third has 11: a new beginning.
    assert [turn.follows for turn in (first, second, third)] == [False, True, False]
    assert [len(turn.prompt) for turn in (first, second, third)] == [7, 5, 11]
    assert [turn.turn for turn in (first, second, third)] == [0, 1, 2]
    # Answered at 6.5 and asked again at 10; answered at 13, and asked before that.
    assert [turn.think_s for turn in (first, second, third)] == [0.0, 3.5, 0.0]
    assert (len(alone.prompt), alone.offset_s) == (9, 1.0)


def mooncake(path: Path, *rows: tuple[int, int, list[int]]) -> Path:
    names = ("timestamp", "input_length", "hash_ids")
    lines = [json.dumps({**dict(zip(names, row, strict=True)), "output_length": 4}) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_equal_hash_ids_are_equal_blocks(tmp_path: Path) -> None:
    path = mooncake(
        tmp_path / "m.jsonl", (0, 600, [0, 1]), (1000, 1024, [0, 1]), (2500, 520, [0, 2])
    )
    first, second, third = read_trace(path, "mooncake", FIT).requests
    assert [len(one.prompt) for one in (first, second, third)] == [600, 1024, 520]
    assert second.prompt[:600] == first.prompt
    assert third.prompt[:512] == first.prompt[:512]
    assert third.prompt[512:] != first.prompt[512:520]
    assert [one.offset_s for one in (first, second, third)] == [0.0, 1.0, 2.5]


def test_a_slice_of_a_trace_is_its_start(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "m.jsonl", *((at, 10, [at]) for at in range(5)))
    imported = read_trace(path, "mooncake", replace(FIT, limit=2))
    assert [one.offset_s for one in imported.requests] == [0.0, 0.001]


def test_a_file_of_another_form_is_refused_by_name(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "m.jsonl", (0, 600, [0]))
    with pytest.raises(ConfigError, match="600 tokens"):
        read_trace(path, "mooncake", FIT)
    for form in ("azure", "burstgpt"):
        with pytest.raises(ConfigError, match=form):
            read_trace(path, form, FIT)
    with pytest.raises(ConfigError, match="no trace form"):
        read_trace(path, "csv", FIT)
    with pytest.raises(UnavailableError, match="nowhere"):
        read_trace(tmp_path / "nowhere", "azure", FIT)


@pytest.mark.parametrize(
    ("name", "form", "rows"),
    [
        ("azure23_code_10min.csv", "azure", 2146),
        ("azure23_conv_10min.csv", "azure", 3118),
        ("mooncake_conversation_5min.jsonl", "mooncake", 978),
    ],
    ids=["code", "conversation", "mooncake"],
)
def test_real_traces_are_read_to_the_last_row(name: str, form: str, rows: int) -> None:
    if not (TRACES / name).exists():
        pytest.skip("the real traces are not here")
    imported = read_trace(TRACES / name, form, replace(FIT, max_model_len=2000))
    kept = len(imported.requests)
    assert kept > 100
    assert kept + imported.without_answer + imported.too_long == rows


def test_a_conversation_with_a_tools_result_goes_as_recorded(tmp_path: Path) -> None:
    path = tmp_path / "talks.jsonl"
    roles = ("user", "assistant", "tool", "assistant", "user")
    path.write_text(json.dumps({"messages": [{"role": role, "content": role} for role in roles]}))
    requests = read_messages(path, Talk(8))
    assert [len(one.prompt) for one in requests] == [1, 3, 5]
    assert not any(one.follows for one in requests)


def test_a_shared_conversation_becomes_a_session(tmp_path: Path) -> None:
    path = tmp_path / "share.json"
    said = [("system", "s"), ("human", "a"), ("gpt", "b"), ("human", "c"), ("gpt", "d")]
    talk = [{"from": who, "value": text} for who, text in said]
    path.write_text(json.dumps([{"id": "x", "conversations": talk}]))
    first, second = read_sharegpt(path, Talk(8, think_s=3.0))
    assert [message["content"] for message in first.prompt] == ["s", "a"]
    assert [message["content"] for message in second.prompt] == ["c"]
    assert (first.follows, second.follows) == (False, True)
    assert (first.session, first.turn, first.think_s) == ("talk-0", 0, 0.0)
    assert (second.session, second.turn, second.think_s) == ("talk-0", 1, 3.0)
    path.write_text(json.dumps([{"conversations": [{"from": "bard", "value": "x"}]}]))
    with pytest.raises(ConfigError, match="bard"):
        read_sharegpt(path, Talk(8))


def test_openai_messages_are_sent_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "messages.jsonl"
    asked = {"role": "user", "content": [{"type": "text", "text": "a"}]}
    path.write_text(json.dumps({"messages": [asked], "max_tokens": 5}) + "\n\n")
    (request,) = read_messages(path, Talk(8))
    assert (request.prompt, request.max_tokens) == ((asked,), 5)
    assert request.path == "/v1/chat/completions"
    assert json.loads(body_of(request, Asking("m")))["messages"] == [asked]
    path.write_text('{"prompt": "a"}\n')
    with pytest.raises(ConfigError, match="line 1"):
        read_messages(path, Talk(8))


def test_a_body_asks_for_exact_counts_and_a_forced_length() -> None:
    (request,) = synthetic("measured", 1, 1, Shape(4, 8), VOCAB)
    body = json.loads(body_of(request, Asking("m", extra={"top_k": 1})))
    assert body == {
        "model": "m",
        "prompt": list(request.prompt),
        "max_tokens": 8,
        "temperature": 0.0,
        "seed": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
        "top_k": 1,
    }
    free = json.loads(
        body_of(replace(request, forced=False), Asking("m", seed=None, with_token_ids=False))
    )
    assert {"seed", "ignore_eos", "return_token_ids"}.isdisjoint(free)
