"""The one model a frontend serves."""

import time
from dataclasses import dataclass
from typing import Self

from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.modelstore.folder import ModelFolder


@dataclass(frozen=True, slots=True)
class ServedModel:
    """``max_model_len`` is the most tokens of prompt and answer together.

    ``template`` is None for a model without chat. ``created`` is Unix seconds, for /v1/models.
    """

    name: str
    tokenizer: Tokenizer
    template: ChatTemplate | None
    max_model_len: int
    created: int

    @classmethod
    def load(
        cls, folder: ModelFolder, *, name: str | None = None, max_model_len: int | None = None
    ) -> Self:
        """Reads tokenizer and template. Raises ConfigError when one cannot be used."""
        special = folder.special_tokens()
        source = folder.chat_template()
        tokenizer = Tokenizer.load(
            folder.tokenizer_path,
            bos_token=special.get("bos_token"),
            add_bos=folder.add_bos_token() is True,
        )
        return cls(
            name=name or folder.served_name,
            tokenizer=tokenizer,
            template=None if source is None else ChatTemplate(source, special),
            max_model_len=max_model_len or folder.max_model_len(),
            created=int(time.time()),
        )
