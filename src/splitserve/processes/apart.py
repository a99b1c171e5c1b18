"""Ids that workers can tell apart when several gateways use them."""

import secrets
from collections.abc import AsyncGenerator

import msgspec

from splitserve.ids import RequestId
from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.protocol.generator import Generator


class NamedApart:
    """Implements Generator. Clients choose ids, and two may choose the same through two gateways:
    behind this one every id ends with ``@`` and a word that no other gateway has. Clients cannot
    ask for an id with ``@`` in it, so that what stands before it is the id that they know.
    """

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._word = secrets.token_hex(4)

    def generate(
        self, request: GenerateRequest, course: Course | None = None
    ) -> AsyncGenerator[TokenChunk, None]:
        name = RequestId(f"{request.request_id}@{self._word}")
        return self._generator.generate(msgspec.structs.replace(request, request_id=name), course)
