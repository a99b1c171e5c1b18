"""Identities that cross packages and process borders."""

import secrets
from typing import NewType

RequestId = NewType("RequestId", str)
"""One generation: one prompt, one answer. The same in gateway, prefill and decode worker."""

HandoffId = NewType("HandoffId", str)
"""One attempt to move one request's KV. A retry is a new handoff of the same request."""

WorkerId = NewType("WorkerId", str)
"""A worker's name in its topology, unique per deployment (``prefill-0``)."""

Incarnation = NewType("Incarnation", str)
"""One life of a worker process. A restarted worker has the same WorkerId and a new Incarnation."""


def new_request_id(prefix: str) -> RequestId:
    """``prefix`` is the endpoint's (``cmpl``, ``chatcmpl``), as OpenAI and vLLM write it."""
    return RequestId(f"{prefix}-{secrets.token_hex(12)}")


def handoff_id(request: RequestId, attempt: int) -> HandoffId:
    """Names attempt number ``attempt`` (from 0) at handing ``request`` over."""
    return HandoffId(f"{request}#{attempt}")


def new_incarnation() -> Incarnation:
    """Call once per process life."""
    return Incarnation(secrets.token_hex(8))
