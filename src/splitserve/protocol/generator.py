"""Seam between the text work and everything behind it: who makes the tokens of an answer."""

from collections.abc import AsyncGenerator
from typing import Protocol

from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest, TokenChunk


class Generator(Protocol):
    """What the frontend needs of everything behind it. The router implements it."""

    def generate(
        self, request: GenerateRequest, course: Course | None = None
    ) -> AsyncGenerator[TokenChunk, None]:
        """Yields chunks in order, the last with a finish_reason. ``course`` is filled on the way.

        Closing it early (``aclose``) aborts the request everywhere. Raises CallerError (the engine
        refused the request), OverloadError (no room) or PeerError (failed and could not be saved);
        after the first chunk only PeerError.
        """
        ...
