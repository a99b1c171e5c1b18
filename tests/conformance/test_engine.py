"""What every engine promises, run over each of them.

The truth is the same engine left alone: one request, one chunk, no cache, all the room it wants.
"""

import ctypes
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from small_tokenizer import WITHOUT_SPACES, text_of, write_tokenizer
from splitserve.engine.api import Engine, PushSpan, Reservation, SeqOutput
from splitserve.engine.config import EngineConfig, SchedulerConfig
from splitserve.engine.fake import FakeConfig
from splitserve.engine.registry import RUNNERS, create_engine
from splitserve.errors import CallerError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.memory import KVLayout
from splitserve.protocol.sampling import SamplingParams, StructuredOutputs

BLOCK = 4
VOCAB = 96
MAX_LEN = 256
EOS = 2
MAX_STEPS = 5_000
H = HandoffId("r#0")
WRITER = WorkerId("prefill-0")
LENGTHS = [1, 3, 4, 5, 15, 16, 17, 53]


@dataclass(frozen=True)
class Room:
    """How an engine is laid out; the defaults disturb nobody."""

    num_blocks: int = 128
    budget: int = 512
    caching: bool = True
    seqs: int = 16

    @property
    def scheduler(self) -> SchedulerConfig:
        return SchedulerConfig(self.seqs, self.budget, self.caching)


Make = Callable[[Room], Engine]


def make_fake(room: Room, model: Path, depth: int = 1, shards: int = 1) -> Engine:
    config = FakeConfig(
        vocab_size=VOCAB,
        token_low=3,
        eos_token_ids=(EOS,),
        eos_after=0,
        max_model_len=MAX_LEN,
        block_size=BLOCK,
        num_blocks=room.num_blocks,
        num_kv_heads=_MODEL["num_key_value_heads"],
        tensor_parallel_size=shards,
        tokenizer=model / "tokenizer.json",
        depth=depth,
        scheduler=room.scheduler,
    )
    return create_engine("fake", config)


def make_fake_ahead(room: Room, model: Path) -> Engine:
    """Schedules one step ahead."""
    return make_fake(room, model, depth=2)


def make_fake_shards(room: Room, model: Path) -> Engine:
    """Has two pools, each of one head."""
    return make_fake(room, model, shards=2)


def make_native(room: Room, model: Path, shards: int = 1) -> Engine:
    config = EngineConfig(
        str(model),
        dtype="float32",
        block_size=BLOCK,
        kv_cache_memory_bytes=room.num_blocks * BLOCK * _TOKEN_BYTES,
        max_model_len=MAX_LEN,
        tensor_parallel_size=shards,
        scheduler=room.scheduler,
    )
    return create_engine("native", config)


def make_native_shards(room: Room, model: Path) -> Engine:
    return make_native(room, model, shards=2)


MAKERS = {
    "fake": make_fake,
    "fake ahead": make_fake_ahead,
    "native": make_native,
    "fake shards": make_fake_shards,
    "native shards": make_native_shards,
}
HERE = [name for name in MAKERS if find_spec("torch") is not None or "native" not in name]

whatever_the_shards = pytest.mark.parametrize("make", HERE, indirect=True)
"""Of what has to do with memory. All else is the same code over one pool or several."""

_MODEL: dict[str, int] = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 32,
}
_HEAD_DIM = _MODEL["hidden_size"] // _MODEL["num_attention_heads"]
_TOKEN_BYTES = _MODEL["num_hidden_layers"] * 2 * _MODEL["num_key_value_heads"] * _HEAD_DIM * 4


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers, as transformers saves it."""
    import torch
    import transformers

    torch.manual_seed(11)
    config = transformers.LlamaConfig(
        vocab_size=VOCAB,
        intermediate_size=64,
        max_position_embeddings=MAX_LEN,
        initializer_range=0.3,
        bos_token_id=1,
        eos_token_id=EOS,
        **_MODEL,
    )
    path = tmp_path_factory.mktemp("tiny-llama")
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    write_tokenizer(path, WITHOUT_SPACES)
    return path


@pytest.fixture(scope="session")
def tokenizer_only(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer-only")
    write_tokenizer(path, WITHOUT_SPACES)
    return path


@pytest.fixture(params=[name for name in HERE if "shards" not in name])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    made: list[Engine] = []
    native = request.param.startswith("native")
    model = request.getfixturevalue("tiny_llama" if native else "tokenizer_only")

    def one(room: Room) -> Engine:
        made.append(MAKERS[request.param](room, model))
        return made[-1]

    yield one
    for engine in made:
        engine.close()


def prompt(length: int, first: int = 5) -> tuple[int, ...]:
    return (
        first,
        *(3 + (7 * number + number * number) % (VOCAB - 3) for number in range(1, length)),
    )


def ask(name: str, tokens: Sequence[int], max_tokens: int = 8, **sampling: Any) -> GenerateRequest:
    params: dict[str, Any] = {"seed": 0, "temperature": 0.0, "ignore_eos": True, **sampling}
    return GenerateRequest(
        RequestId(name), tuple(tokens), SamplingParams(max_tokens=max_tokens, **params)
    )


def drain(engine: Engine, sink: "Copier | None" = None) -> dict[str, list[SeqOutput]]:
    """Steps until there is nothing to do; outputs by request, their indices without a gap."""
    found: dict[str, list[SeqOutput]] = {}
    for _ in range(MAX_STEPS):
        if not engine.has_work():
            break
        for output in engine.step(sink):
            mine = found.setdefault(output.request_id, [])
            assert not mine or output.index == mine[-1].index + 1
            mine.append(output)
    assert not engine.has_work()
    return found


def tokens(outputs: Sequence[SeqOutput]) -> list[int]:
    return [output.token_id for output in outputs]


def alone(make: Make, request: GenerateRequest) -> list[SeqOutput]:
    engine = make(Room(caching=False))
    engine.add(request)
    return drain(engine)[request.request_id]


def pools(engine: Engine) -> list[tuple[int, KVLayout]]:
    """Address and layout of each shard's."""
    regions = engine.regions()
    shards = engine.describe().layout.shards(len(regions))
    return [(region.address, shard) for region, shard in zip(regions, shards, strict=True)]


@dataclass
class Copier:
    """A KVSink that copies each layer's new blocks as soon as it is told of them."""

    source: Engine
    target: Engine
    reservation: Reservation
    spans: Sequence[PushSpan] = ()
    copied: int = 0

    def begin(self, spans: Sequence[PushSpan]) -> None:
        self.spans = spans

    def on_layer(self, layer: int) -> None:
        for span in self.spans:
            for number, block in enumerate(span.blocks, start=span.first):
                if number >= self.reservation.skip_blocks:
                    wanted = self.reservation.blocks[number - self.reservation.skip_blocks]
                    self._copy(layer, block, wanted)

    def _copy(self, layer: int, from_block: int, to_block: int) -> None:
        self.copied += layer == 0
        both = zip(pools(self.source), pools(self.target), strict=True)
        for (address, layout), (target_address, target_layout) in both:
            ctypes.memmove(
                target_address + target_layout.offset(layer, to_block),
                address + layout.offset(layer, from_block),
                layout.block_bytes,
            )


def split(
    source: Engine, target: Engine, request: GenerateRequest
) -> tuple[list[SeqOutput], Copier]:
    """The whole answer, its first token from ``source`` and the rest from ``target``."""
    reservation = target.reserve(H, request, WRITER)
    assert reservation is not None
    copier = Copier(source, target, reservation)
    source.add(request, push=True)
    (first,) = drain(source, copier)[request.request_id]
    assert first.handed_off
    source.release(request.request_id)
    assert target.activate(H, reservation.epoch, first.token_id)
    return [first, *drain(target)[request.request_id]], copier


def test_every_engine_there_is_is_covered() -> None:
    assert {name.split()[0] for name in MAKERS} == set(RUNNERS)


@whatever_the_shards
def test_an_engine_describes_what_it_has(make: Make) -> None:
    engine = make(Room(num_blocks=128))
    info = engine.describe()
    assert (info.vocab_size, info.max_model_len, info.eos_token_ids) == (VOCAB, MAX_LEN, (EOS,))
    assert (info.layout.block_size, info.layout.num_blocks) == (BLOCK, 128)
    assert [region.nbytes for region in engine.regions()] == [
        shard.pool_bytes for _, shard in pools(engine)
    ]
    assert sum(region.nbytes for region in engine.regions()) == info.layout.pool_bytes
    assert engine.counts().free == engine.counts().total == 128
    assert not engine.has_work()
    assert engine.step() == []
    assert make(Room()).describe().content_hash == info.content_hash


@pytest.mark.parametrize("budget", [BLOCK + 1, 9, 16, 64])
@pytest.mark.parametrize("seed", [None, 3])
def test_chunks_and_company_do_not_change_an_answer(
    make: Make, budget: int, seed: int | None
) -> None:
    how = {} if seed is None else {"seed": seed, "temperature": 0.7}
    requests = [ask(f"r{length}", prompt(length, length), **how) for length in LENGTHS]
    engine = make(Room(budget=budget))
    for request in requests:
        engine.add(request)
    found = drain(engine)
    for request in requests:
        assert tokens(found[request.request_id]) == tokens(alone(make, request))
    assert engine.counts().idle


@whatever_the_shards
def test_a_cached_prefix_does_not_change_an_answer(make: Make) -> None:
    engine = make(Room())
    first = ask("first", prompt(21))
    engine.add(first)
    answer = drain(engine)["first"]
    again = ask("again", prompt(21))
    fork = ask("fork", [*prompt(21)[:13], 90, 91, 92])
    turn = ask("turn", [*prompt(21), *tokens(answer), 80, 81, 82])
    for request, cached in ((again, 20), (fork, 12), (turn, 28)):
        engine.add(request)
        outputs = drain(engine)[request.request_id]
        assert outputs[0].cached_tokens == cached
        assert tokens(outputs) == tokens(alone(make, request))


@whatever_the_shards
def test_of_a_prompt_of_whole_blocks_the_last_is_computed_again(make: Make) -> None:
    engine = make(Room())
    for cached in (0, 12):
        request = ask("r", prompt(16))
        engine.add(request)
        outputs = drain(engine)["r"]
        assert outputs[0].cached_tokens == cached
        assert tokens(outputs) == tokens(alone(make, request))


@whatever_the_shards
@pytest.mark.parametrize("caching", [True, False])
def test_preemption_does_not_change_an_answer(make: Make, caching: bool) -> None:
    requests = [ask(f"r{n}", prompt(6 + n, n + 3), 20, presence_penalty=0.3) for n in range(3)]
    engine = make(Room(num_blocks=9, caching=caching))
    for request in requests:
        engine.add(request)
    found = drain(engine)
    assert engine.stats().preemptions > 0
    for request in requests:
        assert tokens(found[request.request_id]) == tokens(alone(make, request))
    assert engine.counts().idle


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("budget", [9, 512])
def test_a_split_answer_equals_the_unsplit_one(make: Make, length: int, budget: int) -> None:
    request = ask("r", prompt(length), 12)
    source, target = make(Room(budget=budget)), make(Room())
    outputs, _ = split(source, target, request)
    assert tokens(outputs) == tokens(alone(make, request))
    assert [output.index for output in outputs] == list(range(12))
    assert outputs[-1].finish_reason == "length"
    assert source.counts().idle
    assert target.counts().idle


@whatever_the_shards
@pytest.mark.parametrize(
    "sampling",
    [
        {"seed": 1, "temperature": 1.0},
        {"seed": 2, "temperature": 0.6, "top_p": 0.8, "top_k": 20, "min_p": 0.01},
        {"frequency_penalty": 0.9, "repetition_penalty": 1.3},
        {"logit_bias": {7: 3.0}, "ignore_eos": False, "min_tokens": 5},
    ],
)
def test_a_split_answer_draws_the_same_stream(make: Make, sampling: dict[str, Any]) -> None:
    request = ask("r", prompt(18), 16, logprobs=3, **sampling)
    outputs, _ = split(make(Room()), make(Room()), request)
    truth = alone(make, request)
    assert tokens(outputs) == tokens(truth)
    for mine, theirs in zip(outputs, truth, strict=True):
        assert mine.logprob is not None
        assert theirs.logprob is not None
        assert mine.logprob.logprob == pytest.approx(theirs.logprob.logprob, abs=1e-4)


@whatever_the_shards
def test_what_the_target_has_is_not_pushed_and_what_the_source_has_is(make: Make) -> None:
    source, target = make(Room()), make(Room())
    request = ask("r", prompt(30), 9)
    truth = tokens(alone(make, request))
    target.add(ask("seen", prompt(30)[:10], 1))
    drain(target)
    source.add(ask("seen", prompt(30)[:22], 1))
    drain(source)
    outputs, copier = split(source, target, request)
    assert (copier.reservation.cached_tokens, copier.copied) == (8, 6)
    assert outputs[0].cached_tokens == 20
    assert tokens(outputs) == truth
    outputs, copier = split(source, target, request)
    assert (copier.reservation.cached_tokens, copier.copied) == (28, 1)
    assert tokens(outputs) == truth


@whatever_the_shards
def test_a_handed_over_sequence_survives_preemption(make: Make) -> None:
    source, target = make(Room()), make(Room(num_blocks=9))
    first, request = ask("first", prompt(5, 9), 24), ask("r", prompt(11), 20)
    target.add(first)
    early = target.step()
    reservation = target.reserve(H, request, WRITER)
    assert reservation is not None
    source.add(request, push=True)
    (begin,) = drain(source, Copier(source, target, reservation))["r"]
    assert target.activate(H, reservation.epoch, begin.token_id)
    found = drain(target)
    assert target.stats().preemptions > 0
    assert tokens([begin, *found["r"]]) == tokens(alone(make, request))
    assert tokens([*early, *found["first"]]) == tokens(alone(make, first))


@whatever_the_shards
def test_late_writes_into_a_voided_grant_harm_nobody(make: Make) -> None:
    engine = make(Room(num_blocks=12))
    reservation = engine.reserve(H, ask("r", prompt(15)), WRITER)
    assert reservation is not None
    assert engine.cancel(H) == reservation.epoch
    request = ask("other", prompt(10, 9), 12)
    engine.add(request)
    outputs = []
    while engine.has_work():
        for address, layout in pools(engine):
            for block, layer in product(reservation.blocks, range(layout.num_layers)):
                ctypes.memset(address + layout.offset(layer, block), 0x7F, layout.block_bytes)
        outputs += engine.step()
    assert tokens(outputs) == tokens(alone(make, request))
    engine.fence(H, reservation.epoch)
    assert engine.counts().idle


@pytest.mark.parametrize("emitted", [1, 4, 11])
def test_a_replay_continues_the_same_stream(make: Make, emitted: int) -> None:
    request = ask("r", prompt(9), 12, seed=4, temperature=0.9, presence_penalty=0.4)
    truth = tokens(alone(make, request))
    engine = make(Room())
    engine.add(request, emitted=truth[:emitted])
    outputs = drain(engine)["r"]
    assert outputs[0].index == emitted
    assert tokens(outputs) == truth[emitted:]


def test_a_stop_token_ends_the_answer(make: Make) -> None:
    truth = tokens(alone(make, ask("r", prompt(9), 12)))
    stop = truth[5]
    request = ask("r", prompt(9), 12, stop_token_ids=(stop,))
    outputs = alone(make, request)
    assert tokens(outputs) == truth[: truth.index(stop) + 1]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", stop)
    later = alone(make, ask("r", prompt(9), 12, stop_token_ids=(stop,), min_tokens=12))
    assert stop not in tokens(later)
    assert later[-1].finish_reason == "length"


def test_end_of_sequence_ends_the_answer_but_not_before_min_tokens(make: Make) -> None:
    """Both engines would choose it at once: one is biased so, the other is made so."""
    request = ask("r", prompt(9), 12, ignore_eos=False, min_tokens=4, logit_bias={EOS: 100.0})
    outputs = alone(make, request)
    assert EOS not in tokens(outputs)[:4]
    assert tokens(outputs)[4:] == [EOS]
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", None)


@pytest.mark.parametrize("count", [0, 1, 20])
def test_log_probabilities_name_the_chosen_token_and_the_likeliest(make: Make, count: int) -> None:
    for output in alone(make, ask("r", prompt(9), 6, logprobs=count, temperature=1.0, seed=5)):
        found = output.logprob
        assert found is not None
        assert found.token_id == output.token_id
        assert len(found.top) == count
        values = [value for _, value in found.top]
        assert values == sorted(values, reverse=True)
        assert sum(math.exp(value) for value in values) <= 1.0 + 1e-5
        if found.rank <= count:
            assert found.top[found.rank - 1][1] == pytest.approx(found.logprob)


def test_an_answer_ends_at_the_models_length(make: Make) -> None:
    outputs = alone(make, ask("r", prompt(MAX_LEN - 3), 100))
    assert len(outputs) == 3
    assert outputs[-1].finish_reason == "length"


def test_what_can_never_run_is_refused(make: Make) -> None:
    engine = make(Room(num_blocks=8))
    for request in (ask("r", prompt(33), 1), ask("r", prompt(20), 20), ask("r", [VOCAB], 1)):
        with pytest.raises(CallerError):
            engine.add(request)
        with pytest.raises(CallerError):
            engine.reserve(H, request, WRITER)
    assert engine.counts().idle


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("push", [True, False])
def test_an_abort_leaves_nothing_and_disturbs_nobody(make: Make, steps: int, push: bool) -> None:
    engine = make(Room(budget=9))
    other = ask("other", prompt(12, 9), 9)
    engine.add(ask("r", prompt(30), 9), push=push)
    engine.add(other)
    seen = [output for _ in range(steps) for output in engine.step()]
    engine.abort(RequestId("r"))
    seen += drain(engine).get("other", [])
    assert tokens([o for o in seen if o.request_id == "other"]) == tokens(alone(make, other))
    assert engine.counts().idle


# Structured outputs

POINT = {
    "type": "object",
    "properties": {
        "a": {"type": "integer", "minimum": 0, "maximum": 999},
        "b": {"enum": ["bc", "x", "yz"]},
        "c": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    },
    "required": ["a", "b", "c"],
    "additionalProperties": False,
}
SCHEMA = StructuredOutputs(json=json.dumps(POINT))


def held(
    name: str,
    length: int = 9,
    max_tokens: int = 200,
    structured: StructuredOutputs = SCHEMA,
    **sampling: Any,
) -> GenerateRequest:
    how: dict[str, Any] = {"seed": 3, "temperature": 1.0, "ignore_eos": False, **sampling}
    return ask(name, prompt(length), max_tokens, structured_outputs=structured, **how)


def assert_conforms(outputs: Sequence[SeqOutput]) -> None:
    assert (outputs[-1].token_id, outputs[-1].finish_reason) == (EOS, "stop")
    assert outputs[-1].stop_reason is None
    point = json.loads(text_of(tokens(outputs)))
    assert list(point) == ["a", "b", "c"]
    assert 0 <= point["a"] <= 999
    assert point["b"] in ("bc", "x", "yz")
    assert 1 <= len(point["c"]) <= 3
    assert set(map(type, point["c"])) == {bool}


SAMPLINGS: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {"seed": 1},
    {"seed": 2, "temperature": 0.7, "top_p": 0.9, "top_k": 3, "min_p": 0.01, "logprobs": 2},
    {"seed": 3, "presence_penalty": 1.5, "repetition_penalty": 1.2},
    {"seed": 4, "logit_bias": {EOS: 100.0, 40: 100.0}},
    {"seed": 5, "ignore_eos": True},
    {"seed": 6, "min_tokens": 150},
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_an_answer_under_a_schema_conforms_to_it(make: Make, sampling: dict[str, Any]) -> None:
    assert_conforms(alone(make, held("r", **sampling)))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_under_a_schema_a_split_answer_is_the_unsplit_one(
    make: Make, sampling: dict[str, Any]
) -> None:
    request = held("r", **sampling)
    source, target = make(Room(budget=9)), make(Room())
    outputs, _ = split(source, target, request)
    assert tokens(outputs) == tokens(alone(make, request))
    assert_conforms(outputs)
    assert source.counts().idle
    assert target.counts().idle


def test_under_a_schema_preemption_does_not_change_an_answer(make: Make) -> None:
    requests = [held(f"r{n}", 6 + n, 60, seed=n) for n in range(4)]
    engine = make(Room(num_blocks=24))
    for request in requests:
        engine.add(request)
    found = drain(engine)
    assert engine.stats().preemptions > 0
    for request in requests:
        assert tokens(found[request.request_id]) == tokens(alone(make, request))
        assert_conforms(found[request.request_id])


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
def test_under_a_schema_a_replay_continues_the_same_stream(make: Make, part: float) -> None:
    request = held("r")
    truth = tokens(alone(make, request))
    emitted = truth[: 1 + int(part * (len(truth) - 2))]
    engine = make(Room())
    engine.add(request, emitted=emitted)
    assert tokens(drain(engine)["r"]) == truth[len(emitted) :]


def test_answers_with_and_without_a_schema_do_not_disturb_each_other(make: Make) -> None:
    requests = [held("held", 9), ask("free", prompt(9), 30), held("other", 9, seed=8)]
    engine = make(Room())
    for request in requests:
        engine.add(request)
    found = drain(engine)
    for request in requests:
        assert tokens(found[request.request_id]) == tokens(alone(make, request))


def test_an_answer_cut_at_its_length_is_the_start_of_the_whole_one(make: Make) -> None:
    whole = tokens(alone(make, held("r")))
    cut = alone(make, held("r", max_tokens=5))
    assert tokens(cut) == whole[:5]
    assert cut[-1].finish_reason == "length"


def test_a_stop_token_may_end_what_is_complete(make: Make) -> None:
    """Where the grammar could go on it is avoided until ``min_tokens``."""
    letters = StructuredOutputs(regex="[a-z]{2,100}")
    request = held(
        "r", structured=letters, stop_token_ids=(1,), min_tokens=6, logit_bias={1: 100.0, EOS: -100}
    )
    outputs = alone(make, request)
    assert len(outputs) == 7
    assert outputs[-1].finish_reason == "stop"
    assert outputs[-1].token_id in (1, EOS)
    assert outputs[-1].stop_reason == (1 if outputs[-1].token_id == 1 else None)


def test_log_probabilities_stay_those_of_the_free_model(make: Make) -> None:
    free = alone(make, ask("r", prompt(9), 1, logprobs=20))[0].logprob
    bound = alone(make, held("r", structured=StructuredOutputs(choice=("x", "y")), logprobs=20))
    assert free is not None
    assert bound[0].logprob is not None
    assert bound[0].logprob.top == free.top


def test_thoughts_are_free_and_the_answer_after_them_is_not(make: Make) -> None:
    unbound = tokens(alone(make, ask("r", prompt(9), 40, seed=3, temperature=1.0)))
    end = tuple(unbound[10:12])
    first = next(n for n in range(len(unbound)) if tuple(unbound[n : n + 2]) == end)
    thinking = StructuredOutputs(json=SCHEMA.json, think_end=end, think_open=True)
    request = held("r", structured=thinking, ignore_eos=True)
    outputs = alone(make, request)
    assert tokens(outputs)[: first + 2] == unbound[: first + 2]
    assert_conforms(outputs[first + 2 :])
    source, target = make(Room()), make(Room())
    assert tokens(split(source, target, request)[0]) == tokens(outputs)


@pytest.mark.parametrize(
    "structured",
    [
        StructuredOutputs(json='{"type":"something"}'),
        StructuredOutputs(regex="(["),
        StructuredOutputs(json="[" * 10_000),
        StructuredOutputs(json='{"$ref":"#"}'),
        StructuredOutputs(),
        StructuredOutputs(regex="a", think_end=(VOCAB,)),
    ],
)
def test_a_constraint_that_cannot_be_built_is_refused(
    make: Make, structured: StructuredOutputs
) -> None:
    engine, request = make(Room()), held("r", structured=structured)
    with pytest.raises(CallerError, match="structured_outputs"):
        engine.add(request)
    with pytest.raises(CallerError, match="structured_outputs"):
        engine.reserve(H, request, WRITER)
    assert engine.counts().idle


@pytest.mark.parametrize("push", [True, False])
def test_an_answer_that_cannot_go_on_ends_alone(make: Make, push: bool) -> None:
    """Its tokens, from elsewhere, are not what its grammar allows."""
    engine = make(Room())
    other = held("other", seed=8)
    engine.add(other)
    seen = engine.step()
    engine.add(held("r"), emitted=[50, 51], push=push)
    seen += drain(engine)["other"]
    assert tokens(seen) == tokens(alone(make, other))
    (failure,) = engine.failures()
    assert failure.request_id == "r"
    assert "grammar" in failure.reason
    assert engine.failures() == []
    assert engine.counts().idle
    engine.add(held("r"))
    assert_conforms(drain(engine)["r"])


@whatever_the_shards
def test_an_engine_may_be_closed_twice(make: Make) -> None:
    engine = make(Room())
    engine.close()
    engine.close()
