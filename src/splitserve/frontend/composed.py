"""Control tokens that a template puts together from pieces, as in ``'<|' + message.role + '|>'``.

Sealing the template's source does not find them, so it is done the other way round: what a client
typed is hidden before rendering, and what is spelled out afterwards is the template's.
"""

import re
import secrets
from collections.abc import Iterable
from typing import Any, Final

from splitserve.frontend.seals import Seals


class ComposedControls:
    """``controls`` are the texts of those tokens; usually there are none."""

    def __init__(self, seals: Seals, controls: Iterable[str]) -> None:
        self._seals = seals
        ordered = sorted(controls, key=len, reverse=True)
        secret = f"y{secrets.token_hex(8)}"
        self._hidden: Final = {text: f"{secret}{n:04x}y" for n, text in enumerate(ordered)}
        self._texts: Final = {word: text for text, word in self._hidden.items()}
        self._spelled: Final = re.compile("|".join(map(re.escape, ordered)) or r"(?!)")
        self._words: Final = re.compile(f"{secret}[0-9a-f]{{4}}y")

    def __bool__(self) -> bool:
        return bool(self._hidden)

    def hide(self, value: Any) -> Any:
        """A copy of a JSON value whose strings, keys included, spell none of them."""
        if isinstance(value, str):
            return self._spelled.sub(lambda found: self._hidden[found[0]], value)
        if isinstance(value, dict):
            return {self.hide(key): self.hide(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.hide(one) for one in value]
        return value

    def settle(self, text: str) -> str:
        """Seals those that the template made, and shows the hidden ones again."""
        sealed = self._spelled.sub(lambda found: self._seals.word(found[0]), text)
        return self.show(sealed)

    def show(self, text: str) -> str:
        """Undoes ``hide`` in a string."""
        return self._words.sub(lambda found: self._texts.get(found[0], found[0]), text)
