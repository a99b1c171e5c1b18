"""What the endpoints of a text tier share."""

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Literal

from splitserve.errors import CallerError
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.fingerprint import short_fingerprint
from splitserve.frontend.model import ServedModel
from splitserve.frontend.scale_out.measures import ScaleOutMetrics
from splitserve.frontend.scale_out.stream_state import StateSeal

Kind = Literal["chat", "completion"]

ANSWER_PREFIX: Mapping[Kind, str] = {"chat": "chatcmpl", "completion": "cmpl"}
"""Begins the ids of answers."""


@dataclass(frozen=True, slots=True)
class TextTier:
    """``fingerprint`` holds the parts of ``text_fingerprint``; ``end_ids`` are the model's
    end-of-sequence ids. ``threads`` work on long bodies."""

    model: ServedModel
    config: FrontendConfig
    fingerprint: Mapping[str, str]
    end_ids: frozenset[int]
    seal: StateSeal
    threads: Executor
    metrics: ScaleOutMetrics = field(default_factory=ScaleOutMetrics)

    @property
    def short_fingerprint(self) -> str:
        """What an answer's header says of the settings it was made under."""
        return short_fingerprint(self.fingerprint)


def check_prompt(model: ServedModel, ids: tuple[int, ...] | None, param: str) -> int:
    """The prompt's length, 0 where it was not given. Raises CallerError when it does not fit."""
    length = len(ids or ())
    if length > model.max_model_len:
        raise CallerError(
            f"'{param}' has {length} tokens; the model's context is {model.max_model_len}",
            param=param,
            code="context_length_exceeded",
        )
    return length
