"""A request's sampling fields, resolved: defaults chosen, limits of the model applied."""

import secrets
from typing import Final

from splitserve.errors import CallerError
from splitserve.protocol.openai.sampling import SamplingFields
from splitserve.protocol.sampling import SamplingParams, StructuredOutputs

_SEED_MASK: Final = 2**63 - 1
# Below this, dividing by the temperature is no sampling any more; vLLM draws the line here too.
_GREEDY_BELOW: Final = 1e-5


def resolve_sampling(
    fields: SamplingFields,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    room: int,
    n: int,
    vocab_size: int,
    structured: StructuredOutputs | None = None,
) -> list[SamplingParams]:
    """One entry for each of ``n`` answers to one prompt; answer i draws with seed ``seed + i``.

    ``max_tokens`` None means all of ``room``, the tokens that the prompt leaves free;
    ``structured`` is what the answers are held to.
    Raises CallerError when fields contradict each other or name tokens the model does not have.
    """
    asked = max_tokens if max_tokens is not None else room
    min_tokens = fields.min_tokens or 0
    if min_tokens > asked:
        raise CallerError(
            f"'min_tokens' ({min_tokens}) is larger than the answer may be ({asked} tokens)",
            param="min_tokens",
        )
    limit = min(asked, room)
    stop_token_ids = tuple(fields.stop_token_ids or ())
    logit_bias = fields.logit_bias or {}
    _check_vocabulary(stop_token_ids, vocab_size, "stop_token_ids")
    _check_vocabulary(tuple(logit_bias), vocab_size, "logit_bias")
    temperature = 1.0 if fields.temperature is None else fields.temperature
    first_seed = secrets.randbits(63) if fields.seed is None else fields.seed
    return [
        SamplingParams(
            seed=(first_seed + number) & _SEED_MASK,
            max_tokens=limit,
            temperature=0.0 if temperature < _GREEDY_BELOW else temperature,
            top_p=1.0 if fields.top_p is None else fields.top_p,
            top_k=max(fields.top_k or 0, 0),
            min_p=fields.min_p or 0.0,
            presence_penalty=fields.presence_penalty or 0.0,
            frequency_penalty=fields.frequency_penalty or 0.0,
            repetition_penalty=(
                1.0 if fields.repetition_penalty is None else fields.repetition_penalty
            ),
            min_tokens=min(min_tokens, limit),
            stop_token_ids=stop_token_ids,
            ignore_eos=fields.ignore_eos or False,
            logprobs=logprobs,
            logit_bias=logit_bias,
            structured_outputs=structured,
        )
        for number in range(n)
    ]


def _check_vocabulary(ids: tuple[int, ...], vocab_size: int, param: str) -> None:
    if ids and max(ids) >= vocab_size:
        raise CallerError(
            f"'{param}': token id {max(ids)} is outside the vocabulary of {vocab_size}",
            param=param,
        )
