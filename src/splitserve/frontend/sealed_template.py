"""A chat template whose control tokens are told from those that a client typed."""

from collections.abc import Mapping
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.composed import ComposedControls
from splitserve.frontend.seals import Seals
from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.template_habits import Habits, probes
from splitserve.frontend.tokenizer import Tokenizer


class SealedTemplate:
    """``plain``, rendered to sealed text, and sealed text to ids; safe to share.

    In text of the assistant the markers of reasoning and tool calls that the template knows are
    the model's own: templates take such text apart again.
    """

    def __init__(self, plain: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.seals: Final = Seals(tokenizer, plain.source)
        special = {name: self.seals.seal(text) for name, text in plain.special_tokens.items()}
        self._template = ChatTemplate(self.seals.seal(plain.source), special)
        self.habits: Final[Habits] = self._template.habits
        self._composed = ComposedControls(self.seals, self._spelled_out())

    def render(
        self,
        messages: list[dict[str, Any]],
        *,
        add_generation_prompt: bool,
        extra: Mapping[str, Any],
        tools: list[dict[str, Any]] | None = None,
        documents: list[dict[str, Any]] | None = None,
    ) -> str:
        """Sealed text, for ``seals.encode``. Raises CallerError as ChatTemplate.render does."""
        if self._composed:
            messages, extra, tools, documents = self._composed.hide(
                [messages, dict(extra), tools, documents]
            )
        try:
            text = self._template.render(
                messages,
                add_generation_prompt=add_generation_prompt,
                extra=extra,
                tools=tools,
                documents=documents,
            )
        except CallerError as error:
            raise CallerError(self._readable(error.message), param=error.param) from error
        return self._composed.settle(text) if self._composed else text

    def _readable(self, text: str) -> str:
        return self.seals.unseal(self._composed.show(text))

    def _spelled_out(self) -> frozenset[str]:
        """Control tokens without a seal in prompts of which no client has typed a word."""
        found: frozenset[str] = frozenset()
        for messages, tools in probes(self.habits):
            try:
                found |= self.seals.spelled(self._template.probe(messages, tools))
            except CallerError:
                continue
        return found
