"""One request as the orchestrator holds it, and its name at the workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from splitserve.errors import OverloadError
from splitserve.ids import HandoffId, RequestId, WorkerId
from splitserve.protocol.course import Course
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.router.admission.views import Candidate
from splitserve.router.handoff.states import Progress
from splitserve.router.handoff.stream import TokenStream
from splitserve.router.policy.base import RequestView
from splitserve.router.policy.chunks import CHUNK, Chunks

_MARK: Final = "~"


def wire_id(request_id: RequestId, attempt: int) -> RequestId:
    """The request's id at the workers. A later attempt has another one, so that what a worker
    still says of an earlier attempt cannot be taken for news of this one."""
    return RequestId(f"{request_id}{_MARK}{attempt}") if attempt > 0 else request_id


def asked_id(wire: RequestId) -> RequestId:
    """The id the request came with."""
    return RequestId(wire.rpartition(_MARK)[0] or wire)


@dataclass(slots=True, eq=False)
class Generation:
    """``candidate`` is the request as it waits for room. ``handoff`` names the current attempt's,
    None for whole ones. ``course`` is for whoever asked. ``placed`` is when workers were last found
    for it, None before that; ``waited``: there was no room when it came, or where it was sent.
    ``refusal`` is why it will not run. ``chunks`` are of the prompt, at the end of the answer too.
    ``cached_tokens`` of the prompt did not have to be computed in this attempt; None while nobody
    has said so."""

    request: GenerateRequest
    view: RequestView
    candidate: Candidate
    stream: TokenStream
    progress: Progress
    course: Course
    chunks: Chunks
    handoff: HandoffId | None = None
    placed: float | None = None
    waited: bool = False
    refusal: OverloadError | None = None
    cached_tokens: int | None = None

    @property
    def arrived(self) -> float:
        return self.candidate.arrived

    def starts(self) -> Sequence[bytes]:
        """Names of those starts of the prompt that a worker may have already. The last token is
        always computed: it gives the first one of the answer."""
        return self.chunks.names[: (self.view.prompt_tokens - 1) // CHUNK]

    def wire_request(self) -> GenerateRequest:
        """The request under the current attempt's id."""
        name = self.wire_id()
        if name is self.request.request_id:
            return self.request
        return msgspec.structs.replace(self.request, request_id=name)

    def wire_id(self) -> RequestId:
        return wire_id(self.request.request_id, self.progress.attempt)

    def as_asked(self, chunk: TokenChunk) -> TokenChunk:
        """``chunk`` under the id the request came with. Cached tokens belong to the prompt: what a
        later worker found of them, the answer so far included, is no news for the client."""
        return msgspec.structs.replace(
            chunk,
            request_id=self.request.request_id,
            cached_tokens=chunk.cached_tokens if chunk.index == 0 else None,
        )


@dataclass(slots=True, eq=False)
class Assignment:
    """One worker's part in one attempt: what the ledger keeps. ``plain``: it has spoken, so its
    next tokens change nothing but the stream."""

    generation: Generation
    worker: WorkerId
    request_id: RequestId
    attempt: int
    stream: TokenStream
    plain: bool = False
