"""What a client carries between the calls of a streamed derender: opaque to it, signed by us.

``{"v": 1, "payload": base64url, "mac": hex}``. The MAC (HMAC-SHA256) covers version, model and
settings, and the payload: what we did not write, or wrote under other settings, is refused.
"""

import base64
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec

from splitserve.errors import CallerError
from splitserve.frontend.derender.context import ParseContext
from splitserve.frontend.derender.options import AnswerOptions
from splitserve.frontend.fingerprint import STREAM_STATE_VERSION as VERSION
from splitserve.secret_files import secret_of

KEY_VARIABLE: Final = "SPLITSERVE_STATE_KEY"
MIN_KEY_BYTES: Final = 32
MAX_PAYLOAD_BYTES: Final = 1024 * 1024
"""Of one state. Most of a large one are the request's tools."""

_MAX_TEXT_BYTES: Final = MAX_PAYLOAD_BYTES * 4 // 3 + 1024
_PURPOSE: Final = b"splitserve stream_state"


class StreamState(msgspec.Struct, frozen=True, array_like=True):
    """One choice of one answer, between two chunks.

    ``prompt_tokens`` is None where the caller did not say, ``prompt_length`` 0. ``call_seed`` names
    the answer's tool calls. ``choice`` is the index, None until a chunk has had one.
    ``derenderer`` is what Derenderer.state gave, None once the answer has ended.
    """

    kind: Literal["chat", "completion"]
    answer_id: str
    created: int
    prompt_tokens: int | None
    prompt_length: int
    options: AnswerOptions
    context: ParseContext
    return_token_ids: bool
    call_seed: str
    choice: int | None
    derenderer: Any


class SealedState(msgspec.Struct, frozen=True):
    """As the client has it."""

    v: int
    payload: str
    mac: str


class StateSeal:
    """Signs states and opens those it signed. ``settings`` are what both ends must agree in."""

    def __init__(self, key: bytes, settings: Mapping[str, str]) -> None:
        self._key = key
        self._settings = msgspec.json.encode(sorted(settings.items()))
        self._decoder = msgspec.json.Decoder(StreamState)

    def seal(self, state: StreamState) -> SealedState:
        """Raises CallerError when the request's tools make it larger than MAX_PAYLOAD_BYTES."""
        # Whether tokens bring log-probabilities is seen anew with each chunk.
        plain = msgspec.structs.replace(state, options=replace(state.options, logprobs=False))
        payload = msgspec.json.encode(plain)
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise CallerError(
                f"the stream's state would be larger than {MAX_PAYLOAD_BYTES} bytes: the request's "
                "tools are too long for one call a chunk",
                param="chat_request",
                code="request_too_large",
            )
        text = base64.urlsafe_b64encode(payload)
        return SealedState(VERSION, text.decode(), self._mac(text))

    def open(self, raw: msgspec.Raw) -> StreamState:
        """Raises CallerError (invalid_stream_state) for what this key and these settings did not
        sign."""
        if len(memoryview(raw)) > _MAX_TEXT_BYTES:
            refuse_state("it is too long")
        try:
            sealed = msgspec.json.decode(raw, type=SealedState)
        except (msgspec.DecodeError, RecursionError):
            refuse_state("it is not what this endpoint gave")
        if sealed.v != VERSION:
            refuse_state(f"it has version {sealed.v}, this server writes {VERSION}")
        text = sealed.payload.encode()
        if not hmac.compare_digest(sealed.mac.encode(), self._mac(text).encode()):
            refuse_state("it was changed, or given by a server with another key, model or settings")
        return self._decoder.decode(base64.urlsafe_b64decode(text))

    def _mac(self, text: bytes) -> str:
        """Over the payload as it is written: two spellings of the same bytes are not the same."""
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in (_PURPOSE, str(VERSION).encode(), self._settings, text):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.hexdigest()


def refuse_state(why: str) -> NoReturn:
    """Raises the CallerError for a ``stream_state`` that cannot be gone on from."""
    raise CallerError(
        f"'stream_state' cannot be used: {why}", param="stream_state", code="invalid_stream_state"
    )


def state_key(file: Path | None, environment: Mapping[str, str]) -> bytes:
    """The key to sign with: from ``file``, else from SPLITSERVE_STATE_KEY, else a new one that
    ends with this process. Replicas that serve one stream need the same.

    Raises ConfigError when the file cannot be read, is open to others, or the key is too short.
    """
    given = secret_of("--state-key-file", file, KEY_VARIABLE, environment, min_bytes=MIN_KEY_BYTES)
    return given or secrets.token_bytes(MIN_KEY_BYTES)
