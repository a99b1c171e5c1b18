"""The GPU's runner against transformers, and against itself by other ways."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from gpu_rig import (
    ALL_SCORES,
    FAMILIES,
    GREEDY,
    answer,
    lines,
    open_runner,
    reference,
    save_model,
    scores,
    step,
)

from splitserve.engine.config import SchedulerConfig
from splitserve.errors import BugError, ConfigError
from splitserve.protocol.sampling import SamplingParams

if TYPE_CHECKING:
    from splitserve.engine.cuda.runner import CudaRunner

pytestmark = pytest.mark.gpu

WORSE_THAN_TRANSFORMERS = 1.25
"""Our error against float32 may be this much of what transformers' own bf16 has there."""

NOISE = 0.05
"""Root mean square between log-probabilities whose sums were rounded in another order."""


@pytest.fixture(scope="module")
def qwen2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("qwen2")
    save_model("Qwen2", path)
    return path


@pytest.fixture(scope="module")
def runner(qwen2: Path) -> Iterator["CudaRunner"]:
    made = open_runner(qwen2)
    yield made
    made.close()


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found - exact).square().mean().sqrt())


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_scores_are_as_near_to_float32_as_those_of_transformers(
    family: str, tmp_path: Path
) -> None:
    save_model(family, tmp_path)
    made = open_runner(tmp_path)
    [line] = lines(made, [300])
    first = scores(step(made, [line.prompt_row(300, ALL_SCORES)])[0])
    line.output.append(int(first.argmax()))
    second = scores(step(made, [line.next_row(ALL_SCORES)])[0])
    made.close()
    tokens = [*line.prompt, line.output[0]]
    exact = reference(tmp_path, tokens, torch.float32)[-2:]
    theirs = reference(tmp_path, tokens, torch.bfloat16)[-2:]
    ours = torch.stack((first, second))
    assert error(ours, exact) < WORSE_THAN_TRANSFORMERS * error(theirs, exact)


@pytest.mark.parametrize("chunk", [16, 112, 400])
def test_a_prompt_in_chunks_gives_the_scores_of_a_whole_one(
    runner: "CudaRunner", chunk: int
) -> None:
    whole, cut = (lines(runner, [400], seed=1)[0] for _ in range(2))
    [expected] = step(runner, [whole.prompt_row(400, ALL_SCORES)])
    while cut.computed < 400:
        found = step(runner, [cut.prompt_row(min(chunk, 400 - cut.computed), ALL_SCORES)])
    assert error(scores(found[0]), scores(expected)) < NOISE


def test_a_mixed_step_gives_each_row_its_own_scores(qwen2: Path, runner: "CudaRunner") -> None:
    a, b, c, d, extra = lines(runner, [40, 300, 77, 5, 33], seed=2)
    batch = (a, b, c, d)
    step(runner, [b.prompt_row(128), a.prompt_row(40)])
    step(runner, [b.prompt_row(128), d.prompt_row(5)])
    step(runner, [c.prompt_row(77), b.prompt_row(44)])
    for line in batch:
        line.output.append(7 + len(line.prompt))
    rows = [d.next_row(ALL_SCORES), extra.prompt_row(33), a.next_row(ALL_SCORES)]
    of_d, _, of_a = step(runner, rows)
    of_b, of_c = step(runner, [b.next_row(ALL_SCORES), c.next_row(ALL_SCORES)])
    for line, sampled in ((a, of_a), (b, of_b), (c, of_c), (d, of_d)):
        tokens = [*line.prompt, *line.output]
        exact = reference(qwen2, tokens, torch.float32)[-1]
        theirs = reference(qwen2, tokens, torch.bfloat16)[-1]
        assert error(scores(sampled), exact) < WORSE_THAN_TRANSFORMERS * error(theirs, exact)


def test_a_launch_goes_on_from_tokens_that_the_host_does_not_know(runner: "CudaRunner") -> None:
    expected = [answer(runner, line, 20) for line in lines(runner, [30, 200], seed=4)]
    first, second = lines(runner, [30, 200], seed=4)
    for line in (first, second):
        line.output.append(step(runner, [line.prompt_row(len(line.prompt))])[0].token_id)
    runner.launch([first.next_row(), second.next_row()], None)
    for _ in range(18):
        # The order of the rows changes from launch to launch.
        runner.launch([second.next_row(follows=1), first.next_row(follows=0)], None)
        for line, found in zip((first, second), runner.collect(), strict=True):
            line.output.append(found.token_id)
        first, second = second, first
    for line, found in zip((first, second), runner.collect(), strict=True):
        line.output.append(found.token_id)
    assert sorted([first.output, second.output]) == sorted(expected)


def test_graphs_of_every_rung_choose_what_the_plain_pass_chooses(runner: "CudaRunner") -> None:
    for rows in (1, 2, 3, 5, 8, 11, 15):
        lengths = [20 + 7 * r for r in range(rows)]
        graph = lines(runner, lengths, seed=5)
        *plain, spare = lines(runner, [*lengths, 9], seed=5)
        for batch in (graph, plain):
            for line in batch:
                line.output.append(step(runner, [line.prompt_row(len(line.prompt))])[0].token_id)
        captured = step(runner, [line.next_row(ALL_SCORES) for line in graph])
        # A row of a prompt keeps the step from being a graph's.
        eager = step(runner, [*(p.next_row(ALL_SCORES) for p in plain), spare.prompt_row(9)])
        for one, other in zip(captured, eager, strict=False):
            assert error(scores(one), scores(other)) < NOISE


def test_rows_are_further_apart_than_noise(runner: "CudaRunner") -> None:
    first, second = lines(runner, [50, 60], seed=11)
    one, other = step(runner, [first.prompt_row(50, ALL_SCORES), second.prompt_row(60, ALL_SCORES)])
    assert error(scores(one), scores(other)) > 5 * NOISE


def test_a_drawn_token_depends_on_seed_and_position_only(runner: "CudaRunner") -> None:
    params = SamplingParams(seed=9, max_tokens=64, temperature=1.0, top_p=0.9, top_k=50)
    alone, other = lines(runner, [50, 70], seed=7)
    beside = replace(alone, name="beside", computed=0)
    [first] = step(runner, [alone.prompt_row(50, params)])
    found = step(runner, [other.prompt_row(70, GREEDY), beside.prompt_row(50, params)])
    assert found[1].token_id == first.token_id


def test_more_than_depth_launches_are_refused(runner: "CudaRunner") -> None:
    batch = lines(runner, [8, 8, 8], seed=9)
    for line in batch[:2]:
        runner.launch([line.prompt_row(8)], None)
    with pytest.raises(BugError, match="2 launches are open"):
        runner.launch([batch[2].prompt_row(8)], None)
    assert len(runner.collect()) == len(runner.collect()) == 1
    assert runner.ready()
    with pytest.raises(BugError, match="without launch"):
        runner.collect()


def test_a_pool_that_does_not_fit_is_a_clear_error(qwen2: Path) -> None:
    with pytest.raises(ConfigError, match=r"KV pool of .* does not fit"):
        open_runner(qwen2, kv_cache_memory_bytes=1 << 42)


def test_a_gpu_that_is_not_there_is_a_clear_error(qwen2: Path) -> None:
    with pytest.raises(ConfigError, match="cuda:99"):
        open_runner(qwen2, device="cuda:99")


def test_made_up_weights_are_those_of_the_seed(qwen2: Path) -> None:
    small = SchedulerConfig(max_num_seqs=2, max_num_batched_tokens=256)
    answers = []
    for seed in (1, 1, 2):
        made = open_runner(qwen2, load_format="dummy", seed=seed, scheduler=small)
        [line] = lines(made, [60], seed=10)
        answers.append(answer(made, line, 12))
        made.close()
    assert answers[0] == answers[1] != answers[2]
