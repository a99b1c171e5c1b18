"""The text services as ASGI applications."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from starlette.types import Receive, Scope, Send

from splitserve.errors import CallerError
from splitserve.frontend.body import ClientGone, read_body
from splitserve.frontend.failures import failure_of
from splitserve.frontend.fingerprint import HEADER as FINGERPRINT
from splitserve.frontend.measures import Outcome
from splitserve.frontend.request_id import HEADER as REQUEST_ID
from splitserve.frontend.request_id import asked_id
from splitserve.frontend.scale_out.derender_session import Session
from splitserve.frontend.scale_out.lines import arriving_lines
from splitserve.frontend.scale_out.tier import Kind, TextTier
from splitserve.frontend.sse import Response
from splitserve.ids import new_request_id

_log: Final = logging.getLogger(__name__)

Serve = Callable[[bytes, str], bytes]
"""``(body, the X-Request-Id or "") -> body of the answer``. Raises CallerError; may take long."""


class TextEndpoint:
    """One JSON body in, one out. Long bodies go to a thread.

    ``service`` names it in metrics. With ``checks`` a call that says under which fingerprint its
    tokens were made is refused where ours is another.
    """

    def __init__(self, tier: TextTier, service: str, serve: Serve, *, checks: bool) -> None:
        self._tier = tier
        self._service = service
        self._serve = serve
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tier = self._tier
        asked = asked_id(scope)
        response = _response(tier, asked, send)
        outcome: Outcome = "cancelled"
        try:
            if self._checks:
                check_fingerprint(tier, scope)
            body = await read_body(scope, receive, tier.config.max_body_bytes)
            await response.whole(200, await self._answer(body, asked), [])
            outcome = "ok"
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - whatever went wrong becomes an answer
            outcome = await _report(response, error, asked)
        finally:
            tier.metrics.calls.add(self._service, outcome)

    async def _answer(self, body: bytes, asked: str) -> bytes:
        if len(body) <= self._tier.config.inline_bytes:
            return self._serve(body, asked)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tier.threads, self._serve, body, asked)


class SessionEndpoint:
    """Lines in, events out, both at once."""

    def __init__(self, tier: TextTier, service: str, kind: Kind) -> None:
        self._tier = tier
        self._service = service
        self._kind: Kind = kind

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tier = self._tier
        asked = asked_id(scope)
        response = _response(tier, asked, send)
        outcome: Outcome = "cancelled"
        try:
            check_fingerprint(tier, scope)
            await self._run(receive, response)
            outcome = "ok"
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001 - whatever went wrong becomes an answer
            outcome = await _report(response, error, asked)
        finally:
            tier.metrics.calls.add(self._service, outcome)

    async def _run(self, receive: Receive, response: Response) -> None:
        session: Session | None = None
        arriving = arriving_lines(receive, self._tier.config.max_body_bytes)
        async with aclosing(arriving):
            async for lines in arriving:
                if session is None and lines:
                    session = await self._open(lines.pop(0))
                if session is not None and lines:
                    await self._feed(session, lines, response)
                    if session.over:
                        break
        if session is None:
            raise CallerError("the body must begin with a JSON object in its first line")
        await response.end(session.finish())

    async def _open(self, line: bytes) -> Session:
        if len(line) <= self._tier.config.inline_bytes:
            return Session(self._tier, self._kind, line)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tier.threads, Session, self._tier, self._kind, line)

    async def _feed(self, session: Session, lines: list[bytes], response: Response) -> None:
        events: list[bytes] = []
        try:
            for line in lines:
                events.append(session.feed(line))
                if session.over:
                    break
        finally:
            # What good lines brought goes out before a bad one's error.
            if made := b"".join(events):
                await response.write(made)


def check_fingerprint(tier: TextTier, scope: Scope) -> None:
    """Raises CallerError (409) when the tokens were made under other settings than ours."""
    ours = tier.short_fingerprint
    for name, value in scope["headers"]:
        if name == FINGERPRINT and value.decode("latin-1").strip() != ours:
            tier.metrics.mismatches.add()
            raise CallerError(
                "these tokens were rendered under other settings (model, tokenizer, template or "
                f"parsers) than this server's, whose fingerprint is {ours}: compare GET "
                "/fingerprint of both",
                param="x-splitserve-fingerprint",
                status=409,
                code="fingerprint_mismatch",
            )


def _response(tier: TextTier, asked: str, send: Send) -> Response:
    headers = [(FINGERPRINT, tier.short_fingerprint.encode())]
    if asked:
        headers.append((REQUEST_ID, asked.encode()))
    return Response(send, headers)


async def _report(response: Response, error: Exception, asked: str) -> Outcome:
    call_id = asked or new_request_id("text")
    failure = failure_of(error, call_id)
    if failure.outcome == "error":
        _log.error("request %s: unexpected error", call_id, exc_info=error)
    await response.fail(failure)
    return failure.outcome
