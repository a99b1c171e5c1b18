"""One chunk of token ids to one chunk of an OpenAI stream, with nothing kept here in between."""

import secrets
import time
from typing import Any, Final

import msgspec

from splitserve.errors import CallerError
from splitserve.frontend.derender.answer import usage
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.events import Delta
from splitserve.frontend.derender.head import Head, encode_json
from splitserve.frontend.render.checks import check_model
from splitserve.frontend.scale_out.asked import (
    Asked,
    asked_chat,
    asked_completion,
    require_prompt_ids,
)
from splitserve.frontend.scale_out.choice_reader import (
    ChoiceReader,
    check_choice,
    with_logprobs_of,
)
from splitserve.frontend.scale_out.chunk_bodies import (
    chat_chunk_choice,
    chunk_body,
    completion_chunk_choice,
)
from splitserve.frontend.scale_out.requests import Piece, decode, given
from splitserve.frontend.scale_out.stream_state import StreamState, refuse_state
from splitserve.frontend.scale_out.tier import (
    ANSWER_PREFIX,
    Kind,
    TextTier,
    check_prompt,
)
from splitserve.ids import new_request_id
from splitserve.protocol.scale_out import ChunkChoice, GenerateChunk, TokenIds, Usage

_CHOICE: Final = "generate_chunk.choices[0]"


class StreamDerender:
    """Both endpoints' bodies with ``stream``: ``{chunk, stream_state}`` for each chunk.

    The caller carries one state a choice. Token counts are those the generate service told. What
    comes after an answer's end (a stop string that the service did not see) gives chunks without a
    choice. All methods raise CallerError and nothing else.
    """

    def __init__(self, tier: TextTier, kind: Kind) -> None:
        self._tier = tier
        self._kind: Kind = kind

    def piece(self, body: bytes) -> bytes:
        """One call."""
        call = decode(Piece, body)
        chunk = call.generate_chunk
        check_model(call.model, self._tier.model.name)
        if len(chunk.choices) > 1:
            raise CallerError(
                "'generate_chunk.choices' must have at most one entry: each choice has a state of "
                "its own",
                param="generate_chunk.choices",
            )
        if given(call.stream_state):
            state = self._carried(call.stream_state, chunk)
        else:
            state = self._begin(call)
        choices: list[dict[str, Any]] = []
        if chunk.choices and state.derenderer is not None:
            fields, state = self._read(chunk.choices[0], state)
            choices.append(fields)
        head = Head(state.answer_id, self._tier.model.name, state.created)
        return encode_json(
            {
                "chunk": {
                    **chunk_body(self._kind, head, choices, _usage(state, chunk.usage)),
                    "metrics": chunk.metrics,
                },
                "stream_state": self._tier.seal.seal(state),
            }
        )

    def _begin(self, call: Piece) -> StreamState:
        chunk, model = call.generate_chunk, self._tier.model
        ids = chunk.prompt_token_ids
        if given(call.prompt_token_ids):
            ids = decode(TokenIds, call.prompt_token_ids)
        prompt_length = check_prompt(model, ids, "prompt_token_ids")
        asked = self._asked(call, ids)
        state = StreamState(
            kind=self._kind,
            answer_id=chunk.request_id or new_request_id(ANSWER_PREFIX[self._kind]),
            created=int(time.time()),
            prompt_tokens=prompt_length
            if call.prompt_tokens is None and ids
            else call.prompt_tokens,
            prompt_length=prompt_length,
            options=asked.options,
            context=asked.context,
            return_token_ids=asked.return_token_ids,
            call_seed=secrets.token_hex(8),
            choice=None,
            derenderer=None,
        )
        reader = self._reader(state, echo=asked.echo)
        return msgspec.structs.replace(state, derenderer=reader.state())

    def _asked(self, call: Piece, ids: TokenIds | None) -> Asked:
        model = self._tier.model
        if self._kind == "completion":
            return asked_completion(model, call.completion_request, ids, None)
        asked = asked_chat(model, call.chat_request, ids)
        require_prompt_ids(model, ids)
        return asked

    def _carried(self, raw: msgspec.Raw, chunk: GenerateChunk) -> StreamState:
        state = self._tier.seal.open(raw)
        if state.kind != self._kind:
            refuse_state("it belongs to the other endpoint")
        if chunk.request_id is not None and chunk.request_id != state.answer_id:
            refuse_state("it belongs to another request than the chunk")
        if chunk.choices and state.choice not in (None, chunk.choices[0].index):
            refuse_state("it belongs to another choice than the chunk's")
        return state

    def _read(self, choice: ChunkChoice, state: StreamState) -> tuple[dict[str, Any], StreamState]:
        """The choice of the answer's chunk, and what to go on from."""
        reader = self._reader(
            msgspec.structs.replace(state, options=with_logprobs_of(state.options, choice))
        )
        try:
            reader.restore(state.derenderer)
        except (ValueError, KeyError, TypeError):
            # It is signed, so another build of this version wrote it.
            refuse_state("it was given by another build of this server")
        room = self._tier.model.max_model_len - state.prompt_length - reader.tokens
        check_choice(choice, room, _CHOICE)
        first = state.choice is None
        fields = self._fields(choice.index, reader.feed(choice), state, first=first)
        return fields, msgspec.structs.replace(
            state,
            choice=choice.index,
            derenderer=None if reader.ended else reader.state(),
        )

    def _reader(self, state: StreamState, echo: str = "") -> ChoiceReader:
        return ChoiceReader(
            self._tier.model.tokenizer,
            state.options,
            context=state.context,
            call_ids=new_call_ids(f"{state.call_seed}"),
            echo=echo,
            end_ids=self._tier.end_ids,
        )

    def _fields(
        self, index: int, delta: Delta, state: StreamState, *, first: bool
    ) -> dict[str, Any]:
        tokenizer = self._tier.model.tokenizer
        if self._kind == "chat":
            fields = chat_chunk_choice(tokenizer, index, delta, first=first)
        else:
            fields = completion_chunk_choice(tokenizer, index, delta)
        if state.return_token_ids:
            fields["token_ids"] = delta.token_ids
        return fields


def _usage(state: StreamState, told: Usage | None) -> dict[str, Any] | None:
    if told is None:
        return None
    prompt_tokens = told.prompt_tokens if state.prompt_tokens is None else state.prompt_tokens
    return usage(prompt_tokens or 0, told.completion_tokens or 0, [told.cached_tokens])
