"""How the next token is chosen. Field names are vLLM's ``SamplingParams``."""

from typing import Final

import msgspec

MAX_LOGPROBS: Final = 20


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """Resolved sampling settings of one request.

    ``seed`` is always set: the frontend draws one where the client gave none, so that a request
    which moves between workers keeps drawing the same stream. The draw for output position ``i``
    depends on ``(seed, i)`` only. ``temperature == 0`` is greedy. ``top_k == 0`` means off.
    ``logprobs`` is None (off) or the number of alternatives beside the chosen token (0 to 20).
    ``stop_token_ids`` end the answer like the model's own end-of-sequence ids;
    ``ignore_eos`` disregards the latter only.
    """

    seed: int
    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    logit_bias: dict[int, float] = {}

    @property
    def needs_history(self) -> bool:
        """Whether a penalty makes the choice depend on the tokens before it."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )
