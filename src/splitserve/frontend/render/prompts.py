"""Prompt text or ids to checked token ids that fit the model."""

from dataclasses import dataclass

from splitserve.errors import CallerError
from splitserve.frontend.seals import Seals
from splitserve.frontend.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Room:
    """``tokens`` is the model's context, for prompt and answer together. ``keep`` cuts a longer
    prompt down to its last so many tokens; None cuts nothing."""

    tokens: int
    keep: int | None = None

    def fitting(self, ids: tuple[int, ...], param: str) -> tuple[int, ...]:
        """Raises CallerError (context_length_exceeded) when no token of answer would have room,
        and for no ids at all."""
        if not ids:
            raise CallerError(f"'{param}' gives no tokens", param=param)
        if self.keep is not None:
            ids = ids[-self.keep :]
        if len(ids) >= self.tokens:
            raise self.too_long(str(len(ids)), param)
        return ids

    def too_long(self, tokens: str, param: str) -> CallerError:
        return CallerError(
            f"this model's context is {self.tokens} tokens for prompt and answer together; "
            f"'{param}' has {tokens} tokens",
            param=param,
            code="context_length_exceeded",
        )


def encode_text(
    tokenizer: Tokenizer, text: str, room: Room, *, add_special: bool
) -> tuple[int, ...]:
    """A plain prompt. Raises CallerError as ``Room.fitting`` does."""
    if room.keep is not None:
        text = tokenizer.end_of(text, room.keep)
    # A text that cannot fit is refused before its tokenising, which may take seconds.
    elif tokenizer.fewest_tokens(text) >= room.tokens:
        raise room.too_long(f"more than {room.tokens}", "prompt")
    return room.fitting(tokenizer.encode_prompt(text, add_special=add_special), "prompt")


def encode_chat(
    tokenizer: Tokenizer, seals: Seals, text: str, room: Room, *, add_special: bool
) -> tuple[int, ...]:
    """A sealed prompt. Raises CallerError as ``Room.fitting`` and ``Seals.encode`` do.

    ``add_special`` puts around it what a plain prompt has around it, BOS still once.
    """
    if room.keep is not None:
        text = seals.end_of(text, room.keep)
    elif seals.fewest_tokens(text) >= room.tokens:
        raise room.too_long(f"more than {room.tokens}", "messages")
    ids = seals.encode(text)
    return room.fitting(tokenizer.with_special(ids) if add_special else ids, "messages")


def check_ids(tokenizer: Tokenizer, ids: tuple[int, ...], param: str) -> None:
    """Raises CallerError for ids the model does not have."""
    if max(ids, default=0) >= tokenizer.vocab_size:
        raise CallerError(
            f"'{param}': token id {max(ids)} is outside the vocabulary of {tokenizer.vocab_size}",
            param=param,
        )
