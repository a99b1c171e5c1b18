"""What passed a tap, as requests and their answers' times. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import httptools

from splitserve.bench.clients.tap import Tapped
from splitserve.lab.load.wire.answer import Answer
from splitserve.lab.load.wire.sse import SseParser

ASKED = "/completions"
"""How the paths end that count; clients also ask for models and health."""


@dataclass(frozen=True, slots=True)
class Heard:
    """One streamed answer. ``asked_s``: the first byte of its request; ``tokens_s``: each event
    with text, in order."""

    asked_s: float
    tokens_s: tuple[float, ...]

    @property
    def ttft_s(self) -> float:
        return self.tokens_s[0] - self.asked_s

    @property
    def gaps_s(self) -> tuple[float, ...]:
        return tuple(later - earlier for earlier, later in pairwise(self.tokens_s))


def heard_in(connections: Sequence[Tapped]) -> list[Heard]:
    """The answers with text, in the order in which they were asked for."""
    found = [one for tapped in connections for one in _of_one(tapped)]
    return sorted(found, key=lambda one: one.asked_s)


def _of_one(tapped: Tapped) -> list[Heard]:
    asked, answered = _Requests(), _Responses()
    up, down = httptools.HttpRequestParser(asked), httptools.HttpResponseParser(answered)
    for asked.now_s, data in tapped.up:
        up.feed_data(data)
    for answered.now_s, data in tapped.down:
        down.feed_data(data)
    return [
        Heard(asked_s, tokens_s)
        for (asked_s, path), tokens_s in zip(asked.requests, answered.tokens_s, strict=False)
        if path.endswith(ASKED) and tokens_s
    ]


@dataclass(slots=True)
class _Requests:
    """httptools calls it."""

    now_s: float = 0.0
    requests: list[tuple[float, str]] = field(default_factory=list)
    _began_s: float = 0.0

    def on_message_begin(self) -> None:
        self._began_s = self.now_s

    def on_url(self, url: bytes) -> None:
        self.requests.append((self._began_s, url.decode("latin-1").partition("?")[0]))


@dataclass(slots=True)
class _Responses:
    """httptools calls it. One entry per response, empty for one that is no stream of tokens."""

    now_s: float = 0.0
    tokens_s: list[tuple[float, ...]] = field(default_factory=list)
    _parser: SseParser = field(default_factory=SseParser)
    _answer: Answer = field(default_factory=Answer)

    def on_message_begin(self) -> None:
        self._parser, self._answer = SseParser(), Answer()

    def on_body(self, body: bytes) -> None:
        for event in self._parser.feed(self.now_s, body):
            self._answer.read(event)

    def on_message_complete(self) -> None:
        self.tokens_s.append(tuple(t_s for t_s, count in self._answer.events if count))
