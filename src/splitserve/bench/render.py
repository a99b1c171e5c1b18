"""Chats to token ids, beside transformers' own template and tokenizer."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from splitserve.bench.quantile import quantile
from splitserve.errors import UnavailableError
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.pipeline import Renderer
from splitserve.loading import load
from splitserve.modelstore.folder import ModelFolder

_WORDS: Final = (
    "the quick brown fox jumps over a lazy dog while rain falls on old stones and people talk "
    "about prices of bread in towns near the sea"
)

Render = Callable[[bytes], Sequence[int]]


@dataclass(frozen=True, slots=True)
class RenderReading:
    """One core. ``to_transformers`` is time over transformers' time for the same chats, median of
    the rounds with its least and most; ``same_ids`` that both gave the same tokens."""

    way: str
    chats: int
    tokens: int
    chats_per_s: float
    tokens_per_s: float
    to_transformers: float
    to_transformers_min: float
    to_transformers_max: float
    same_ids: bool


def measure_render(
    folder: ModelFolder, model: ServedModel, words: int, chats: int, rounds: int
) -> list[RenderReading]:
    """From the request's body, JSON and checks included; transformers gets the parsed messages of
    the same body. Raises UnavailableError when transformers is not installed."""
    bodies = [_body(model, number, words) for number in range(chats)]
    ways = {"transformers": _transformers(folder), "splitserve": _ours(model)}
    ids = {way: [list(render(body)) for body in bodies] for way, render in ways.items()}
    same = ids["transformers"] == ids["splitserve"]
    tokens = sum(map(len, ids["splitserve"]))
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, render in ways.items():
            times[way].append(_time(render, bodies))
    return [_reading(way, chats, tokens, times[way], times["transformers"], same) for way in ways]


def _body(model: ServedModel, seed: int, words: int) -> bytes:
    drawn = random.Random(seed)
    text = " ".join(drawn.choices(_WORDS.split(" "), k=words))
    messages = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": text},
    ]
    return json.dumps({"model": model.name, "messages": messages}).encode()


def _ours(model: ServedModel) -> Render:
    renderer = Renderer(model, FrontendConfig())
    return lambda body: renderer.chat(body).prompts[0].token_ids


def _transformers(folder: ModelFolder) -> Render:
    try:
        kind = load("transformers:AutoTokenizer")
    except ImportError as error:
        raise UnavailableError("transformers is not installed: pip install transformers") from error
    tokenizer: Any = kind.from_pretrained(str(folder.path))

    def render(body: bytes) -> Sequence[int]:
        encoded = tokenizer.apply_chat_template(
            json.loads(body)["messages"], add_generation_prompt=True, return_dict=True
        )
        return cast(Sequence[int], encoded["input_ids"])

    return render


def _time(render: Render, bodies: Sequence[bytes]) -> float:
    began = time.perf_counter()
    for body in bodies:
        render(body)
    return time.perf_counter() - began


def _reading(
    way: str, chats: int, tokens: int, times: list[float], base: list[float], same: bool
) -> RenderReading:
    median = quantile(times, 0.5)
    ratios = [mine / theirs for mine, theirs in zip(times, base, strict=True)]
    return RenderReading(
        way=way,
        chats=chats,
        tokens=tokens,
        chats_per_s=chats / median,
        tokens_per_s=tokens / median,
        to_transformers=quantile(ratios, 0.5),
        to_transformers_min=min(ratios),
        to_transformers_max=max(ratios),
        same_ids=same,
    )
