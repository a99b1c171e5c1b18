"""``[THINK]...[/THINK]`` before the answer: Magistral and later models of Mistral.

Format: Mistral's tokenizer v13, where both are control tokens.
"""

from typing import ClassVar

from splitserve.frontend.derender.parsers.reasoning.think import ThinkTags


class MistralThink(ThinkTags):
    """As ThinkTags, with Mistral's markers."""

    begin: ClassVar[str] = "[THINK]"
    end: ClassVar[str] = "[/THINK]"
    markers: ClassVar[tuple[str, ...]] = ("[THINK]", "[/THINK]")
