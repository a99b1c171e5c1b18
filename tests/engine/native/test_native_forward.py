"""Our forward pass gives transformers' scores, however the work is cut into steps."""

import pytest
import torch
from native_rig import Saved, Sequence_, open_runner, reference, scores, sequences

from splitserve.engine.layers import linear
from splitserve.engine.native import NativeRunner

CLOSE = {"rtol": 0.0, "atol": 5e-5}


def assert_scores(found: torch.Tensor, model: object, sequence: Sequence_) -> None:
    expected = reference(model, sequence.tokens[: sequence.computed])[-1]
    torch.testing.assert_close(found, expected, **CLOSE)


def run_to_end(runner: NativeRunner, sequence: Sequence_, chunk: int, model: object) -> None:
    """Computes the sequence in chunks and compares the scores after each."""
    while sequence.computed < len(sequence.tokens):
        count = min(chunk, len(sequence.tokens) - sequence.computed)
        [found] = scores(runner, [sequence.row(count)])
        assert_scores(found, model, sequence)


@pytest.mark.parametrize("chunk", [40, 7, 16, 1])
def test_a_prompt_in_any_chunks_gives_the_scores_of_transformers(family: Saved, chunk: int) -> None:
    path, model = family
    runner = open_runner(path)
    [sequence] = sequences(runner, [40])
    run_to_end(runner, sequence, chunk, model)
    runner.close()


def test_a_mixed_batch_gives_each_row_its_own_scores(family: Saved) -> None:
    path, model = family
    runner = open_runner(path)
    batch = sequences(runner, [30, 1, 45, 9, 17])
    steps = [
        [30, 1, 20, 0, 5],  # whole prompts beside first chunks
        [0, 0, 24, 9, 11],  # a second chunk beside a whole prompt
        [0, 0, 1, 0, 1],  # the last token of both
    ]
    for counts in steps:
        active = [(s, count) for s, count in zip(batch, counts, strict=True) if count]
        found = scores(runner, [sequence.row(count) for sequence, count in active])
        for values, (sequence, _) in zip(found, active, strict=True):
            assert_scores(values, model, sequence)
    for token in (5, 77, 3):  # all decode; then one of them joins a new prompt's chunk
        for sequence in batch:
            sequence.tokens.append(token)
        found = scores(runner, [sequence.row(1) for sequence in batch])
        for values, sequence in zip(found, batch, strict=True):
            assert_scores(values, model, sequence)
    runner.close()


def test_decodes_beside_a_chunk_come_back_in_row_order(llama: Saved) -> None:
    path, model = llama
    runner = open_runner(path)
    long, prompt, short = sequences(runner, [33, 21, 6])
    scores(runner, [long.row(32), short.row(5)])
    # Short sequences are computed first, chunks last; the answer keeps the caller's order.
    found = scores(runner, [long.row(1), prompt.row(21), short.row(1)])
    for values, sequence in zip(found, (long, prompt, short), strict=True):
        assert_scores(values, model, sequence)
    runner.close()


def test_rows_without_sample_give_no_token_but_leave_their_kv(llama: Saved) -> None:
    path, model = llama
    runner = open_runner(path)
    first, second = sequences(runner, [12, 8])
    assert scores(runner, [first.row(11, None), second.row(4, None)]) == []
    [found] = scores(runner, [second.row(3, None), first.row(1)])
    assert_scores(found, model, first)
    runner.close()


def test_sequences_of_very_different_lengths_decode_together(llama: Saved) -> None:
    path, model = llama
    runner = open_runner(path)
    batch = sequences(runner, [400, 3, 390, 60, 1, 150])
    for sequence in batch:
        if len(sequence.tokens) > 1:
            scores(runner, [sequence.row(len(sequence.tokens) - 1, None)])
    found = scores(runner, [sequence.row(1) for sequence in batch])
    for values, sequence in zip(found, batch, strict=True):
        assert_scores(values, model, sequence)
    runner.close()


def test_long_chunks_see_what_lies_before_them_and_nothing_after(llama: Saved) -> None:
    path, model = llama
    runner = open_runner(path)
    first, second = sequences(runner, [390, 200])
    # Chunks of more than one attention step, together and after one another.
    for counts in ((128, 199), (257, 1), (5, 0)):
        active = [(s, count) for s, count in zip((first, second), counts, strict=True) if count]
        found = scores(runner, [sequence.row(count) for sequence, count in active])
        for values, (sequence, _) in zip(found, active, strict=True):
            assert_scores(values, model, sequence)
    runner.close()


def test_plain_linears_give_the_same_scores_where_onednn_is_missing(
    family: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = family
    monkeypatch.setattr(linear, "_can_pack", lambda dtype: False)
    runner = open_runner(path)
    [sequence] = sequences(runner, [20])
    run_to_end(runner, sequence, 9, model)
    runner.close()


@pytest.mark.parametrize("packed", [True, False])
def test_bfloat16_stays_close_to_float32(
    family: Saved, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, model = family
    if not packed:
        monkeypatch.setattr(linear, "_can_pack", lambda dtype: False)
    runner = open_runner(path, dtype="bfloat16")
    [sequence] = sequences(runner, [40])
    [after_prompt] = scores(runner, [sequence.row(33)])
    [after_token] = scores(runner, [sequence.row(1)])
    expected = reference(model, sequence.tokens)
    # transformers' own bfloat16 is up to 0.07 and 0.27 away; the scores spread over about 8.
    for found, position in ((after_prompt, 32), (after_token, 33)):
        error = (found - expected[position]).abs()
        assert error.mean() < 0.1
        assert error.max() < 0.4
    runner.close()
