"""How the next token is chosen. Field names are vLLM's ``SamplingParams``."""

from typing import Final

import msgspec

MAX_LOGPROBS: Final = 20


class StructuredOutputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the answer must conform to: exactly one of the first six. Names are vLLM's.

    ``json`` is a JSON schema and ``structural_tag`` vLLM's structural tag, both as JSON text;
    ``grammar`` is EBNF (GBNF or Lark). A model that reasons first does so freely: with
    ``think_end`` set, the constraint begins after these tokens; ``think_begin`` are the tokens that
    may open a block of reasoning as the first thing of the answer, or empty when the prompt has
    opened one already (``think_open``).
    """

    json: str | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    grammar: str | None = None
    json_object: bool = False
    structural_tag: str | None = None
    think_begin: tuple[int, ...] = ()
    think_end: tuple[int, ...] = ()
    think_open: bool = False


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
    structured_outputs: StructuredOutputs | None = None

    @property
    def needs_history(self) -> bool:
        """Whether a penalty makes the choice depend on the tokens before it."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )
