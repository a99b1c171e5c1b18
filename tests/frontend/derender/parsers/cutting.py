"""Feeds a parser a text in pieces, through a checkpoint between any two."""

import json
import random
from collections.abc import Callable, Iterable, Iterator

from frontend.derender.parsers.sample import Read, Sample, read
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import Event
from splitserve.frontend.derender.parsers.base import Parser, ToolParser

MakeParser = Callable[[], Parser]


def maker(kind: type[ToolParser], sample: Sample) -> MakeParser:
    """Parsers of one answer: each gives a call the same id."""
    return lambda: kind(sample.tools, new_call_ids("seed"))


def parse(make: MakeParser, pieces: Iterable[str], *, checkpoints: bool = False) -> list[Event]:
    parser, events = make(), list[Event]()
    for piece in pieces:
        if checkpoints:
            state = json.loads(json.dumps(parser.state()))
            parser = make()
            parser.restore(state)
        events += parser.feed(piece)
    return [*events, *parser.finish()]


def joined(make: MakeParser, pieces: Iterable[str], *, checkpoints: bool = False) -> Read:
    return read(parse(make, pieces, checkpoints=checkpoints))


def cuts(text: str, *, seed: int, count: int) -> Iterator[list[str]]:
    """``count`` random ways to cut ``text`` into pieces."""
    drawn = random.Random(seed)
    for _ in range(count):
        many = drawn.randint(0, min(len(text), 12))
        ends = sorted(drawn.sample(range(len(text) + 1), many))
        yield [text[a:b] for a, b in zip([0, *ends], [*ends, len(text)], strict=True)]
