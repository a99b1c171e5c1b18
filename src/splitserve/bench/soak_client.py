"""Clients of a soak: they ask, read, sometimes walk away, and know what they must be told."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import aiohttp
import msgspec

from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.lab.load.corpus.synthetic import FIRST_ORDINARY_ID
from splitserve.lab.load.request import Asking, LoadRequest, body_of

SILENCE_S: Final = 10.0
"""A stream that brings nothing for so long hangs."""

EARLY_S: Final = 0.1
"""Within this time those go who do not wait for the first token."""

PROMPT_TOKENS: Final = (1, 300)
ANSWER_TOKENS: Final = (1, 150)
LEAVING: Final = 0.1
"""Share of the requests whose client does not wait for the end."""


@dataclass(slots=True)
class Tally:
    """What became of the requests. ``whole`` + ``left`` + ``refused`` + ``lost`` + ``wrong`` +
    ``hung`` is ``requests``, once all have ended.

    ``left``: the client went. ``refused``: 429, before anything was begun. ``lost``: any other end
    without the whole answer. ``wrong``: a token that must not be there, or one missing in an answer
    that says that it is whole. ``errors`` counts what was said, by HTTP status and code.
    """

    requests: int = 0
    whole: int = 0
    left: int = 0
    refused: int = 0
    lost: int = 0
    wrong: int = 0
    hung: int = 0
    errors: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Ask:
    """``leave_after``: the client goes when it has so many tokens (0: at any moment before the
    first); None waits for the end."""

    prompt: tuple[int, ...]
    max_tokens: int
    leave_after: int | None


class Told(Exception):
    """The server said that the request failed."""


def draw(stream: random.Random, vocab_size: int) -> Ask:
    length, count = stream.randint(*PROMPT_TOKENS), stream.randint(*ANSWER_TOKENS)
    prompt = tuple(stream.randrange(FIRST_ORDINARY_ID, vocab_size) for _ in range(length))
    leave_after = stream.choice((0, stream.randrange(count)))
    return Ask(prompt, count, leave_after if stream.random() < LEAVING else None)


class Client:
    """One of the streams that run at a time: a request after the other, each checked."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        model: str,
        engine: FakeConfig,
        tally: Tally,
        seed: str,
    ) -> None:
        self._session = session
        self._url = f"{url}/v1/completions"
        self._model = model
        self._engine = engine
        self._tally = tally
        self._random = random.Random(seed)

    async def run(self, over: asyncio.Event) -> None:
        """Until ``over``; what has begun is read to its end."""
        while not over.is_set():
            await self._one(draw(self._random, self._engine.vocab_size))

    async def _one(self, ask: Ask) -> None:
        tally = self._tally
        tally.requests += 1
        tokens: list[int] = []
        try:
            whole = await self._read(ask, tokens)
        except TimeoutError:
            tally.hung += 1
        except Told as error:
            await self._told(str(error), bool(tokens))
        except aiohttp.ClientError as error:
            tally.errors[type(error).__name__] += 1
            tally.lost += 1
        else:
            self._judge(ask, tokens, whole)

    def _judge(self, ask: Ask, tokens: Sequence[int], whole: bool) -> None:
        right = fake_tokens(ask.prompt, ask.max_tokens, config=self._engine)
        if list(tokens) != (right if whole else right[: len(tokens)]):
            self._tally.wrong += 1
        elif whole:
            self._tally.whole += 1
        elif ask.leave_after is not None:
            self._tally.left += 1
        else:
            self._tally.errors["cut off"] += 1
            self._tally.lost += 1

    async def _told(self, error: str, answering: bool) -> None:
        self._tally.errors[error] += 1
        if error.startswith("429") and not answering:
            self._tally.refused += 1
            await asyncio.sleep(self._random.uniform(0.2, 1.0))
        else:
            self._tally.lost += 1

    async def _read(self, ask: Ask, tokens: list[int]) -> bool:
        """True when the stream ended as it should. Raises Told, TimeoutError, ClientError."""
        try:
            answer = await self._answer(ask)
        except TimeoutError:
            if ask.leave_after == 0:
                return False
            raise
        async with answer:
            if answer.status != 200:
                raise Told(f"{answer.status} {_code(await answer.json())}")
            while ask.leave_after is None or len(tokens) < ask.leave_after:
                async with asyncio.timeout(SILENCE_S):
                    line = await answer.content.readline()
                if not line or line == b"data: [DONE]\n":
                    return bool(line)
                if line.startswith(b"data:"):
                    tokens += _tokens(msgspec.json.decode(line[5:]))
            answer.close()
            return False

    async def _answer(self, ask: Ask) -> aiohttp.ClientResponse:
        """Once its head is there, which comes with the first token."""
        body = body_of(LoadRequest("", ask.prompt, ask.max_tokens), Asking(self._model))
        headers = {"Content-Type": "application/json"}
        patience = self._random.uniform(0, EARLY_S) if ask.leave_after == 0 else SILENCE_S
        async with asyncio.timeout(patience):
            return await self._session.post(self._url, data=body, headers=headers)


def _tokens(event: dict[str, list[dict[str, list[int] | None]]]) -> list[int]:
    if "error" in event:
        raise Told(f"200 {_code(event)}")
    return [token for choice in event["choices"] for token in choice.get("token_ids") or ()]


def _code(body: object) -> str:
    match body:
        case {"error": {"code": str() as code}}:
            return code
        case _:
            return "without a code"
