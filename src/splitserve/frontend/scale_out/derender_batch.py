"""Whole answers of token ids to OpenAI's whole answers."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from splitserve.errors import CallerError
from splitserve.frontend.derender import chat, completions
from splitserve.frontend.derender.answer import Answer, usage
from splitserve.frontend.derender.call_ids import new_call_ids
from splitserve.frontend.derender.head import Head, encode_json
from splitserve.frontend.render.checks import check_model
from splitserve.frontend.scale_out.asked import Asked, asked_chat, asked_completion
from splitserve.frontend.scale_out.choice_reader import (
    ChoiceReader,
    check_choice,
    with_logprobs_of,
)
from splitserve.frontend.scale_out.requests import ChatAnswer, CompletionAnswer, decode
from splitserve.frontend.scale_out.tier import (
    ANSWER_PREFIX,
    TextTier,
    check_prompt,
)
from splitserve.ids import new_request_id
from splitserve.protocol.scale_out import AnswerChoice, GenerateAnswer, TokenIds

_CHAT: Final = "generate_response"
_COMPLETIONS: Final = "generate_responses"


class BatchDerender:
    """Both endpoints' bodies without ``stream``. All methods raise CallerError and nothing else.

    Token counts are the answer's: tokens after a stop string are not counted.
    """

    def __init__(self, tier: TextTier) -> None:
        self._tier = tier

    def chat(self, body: bytes) -> bytes:
        """The body of POST /v1/chat/completions/derender."""
        call = decode(ChatAnswer, body)
        model = self._tier.model
        check_model(call.model, model.name)
        answer = call.generate_response
        ids = answer.prompt_token_ids if call.prompt_token_ids is None else call.prompt_token_ids
        prompt_length = check_prompt(model, ids, "prompt_token_ids")
        asked = asked_chat(model, call.request, ids)
        self._check_choices(answer, _CHAT, prompt_length)
        folded = [self._fold(choice, asked) for choice in answer.choices]
        choices = [
            chat.chat_choice(model.tokenizer, choice.index, one, asked.shown_ids(ids))
            for choice, (one, _) in zip(answer.choices, folded, strict=True)
        ]
        counts = usage(
            _prompt_tokens(call.prompt_tokens, ids, answer),
            sum(tokens for _, tokens in folded),
            [_cached(answer)],
        )
        return encode_json(
            {
                **self._head("chat", answer).fields(chat.KIND),
                "choices": choices,
                "usage": counts,
                "prompt_logprobs": answer.prompt_logprobs,
                **_passed_through(answer),
            }
        )

    def completion(self, body: bytes) -> bytes:
        """The body of POST /v1/completions/derender."""
        call = decode(CompletionAnswer, body)
        model, answers = self._tier.model, call.generate_responses
        check_model(call.model, model.name)
        self._check_answers(call)
        prompts = [_prompt_ids(call, place) for place in range(len(answers))]
        choices: list[dict[str, Any]] = []
        total = 0
        for place, (answer, ids) in enumerate(zip(answers, prompts, strict=True)):
            prompt_length = check_prompt(model, ids, f"prompt_token_ids[{place}]")
            asked = asked_completion(model, call.request, ids, place)
            self._check_choices(answer, f"{_COMPLETIONS}[{place}]", prompt_length)
            for choice in answer.choices:
                folded, tokens = self._fold(choice, asked)
                fields = completions.completion_choice(
                    model.tokenizer, len(choices), folded, asked.shown_ids(ids)
                )
                choices.append({**fields, "prompt_logprobs": answer.prompt_logprobs})
                total += tokens
        prompt_tokens = [
            _prompt_tokens(call.prompt_tokens[place] if call.prompt_tokens else None, ids, answer)
            for place, (answer, ids) in enumerate(zip(answers, prompts, strict=True))
        ]
        counts = usage(sum(prompt_tokens), total, [_cached(answer) for answer in answers])
        head = self._head("completion", answers[0])
        passed = _passed_through(answers[0]) if len(answers) == 1 else {}
        return encode_json(
            {**head.fields(completions.KIND), "choices": choices, "usage": counts, **passed}
        )

    def _fold(self, choice: AnswerChoice, asked: Asked) -> tuple[Answer, int]:
        """The answer and how many tokens it has."""
        options = with_logprobs_of(asked.options, choice)
        if isinstance(choice.stop_reason, str) and choice.stop_reason and not options.stop:
            # Nobody sent the request, but the service says which string ended the answer.
            options = replace(options, stop=(choice.stop_reason,))
        reader = ChoiceReader(
            self._tier.model.tokenizer,
            options,
            context=asked.context,
            call_ids=new_call_ids(),
            echo=asked.echo,
            end_ids=self._tier.end_ids,
        )
        answer = Answer()
        answer.add(reader.feed(choice))
        if not reader.ended:
            answer.add(reader.close())
        return answer, reader.tokens

    def _head(self, kind: Any, answer: GenerateAnswer) -> Head:
        answer_id = answer.request_id or new_request_id(ANSWER_PREFIX[kind])
        return Head(answer_id, self._tier.model.name, int(time.time()))

    def _check_choices(self, answer: GenerateAnswer, param: str, prompt_length: int) -> None:
        if not 0 < len(answer.choices) <= self._tier.config.max_choices:
            raise CallerError(
                f"'{param}.choices' must have 1 to {self._tier.config.max_choices} entries",
                param=f"{param}.choices",
            )
        room = self._tier.model.max_model_len - prompt_length
        for place, choice in enumerate(answer.choices):
            name = f"{param}.choices[{place}]"
            if not choice.token_ids:
                raise CallerError(
                    f"'{name}.token_ids' must not be empty", param=f"{name}.token_ids"
                )
            check_choice(choice, room, name)

    def _check_answers(self, call: CompletionAnswer) -> None:
        count = len(call.generate_responses)
        if not 0 < count <= self._tier.config.max_choices:
            raise CallerError(
                f"'{_COMPLETIONS}' must have 1 to {self._tier.config.max_choices} entries",
                param=_COMPLETIONS,
            )
        lists: Mapping[str, Sequence[object] | None] = {
            "prompt_tokens": call.prompt_tokens,
            "prompt_token_ids": call.prompt_token_ids,
        }
        for name, entries in lists.items():
            if entries is not None and len(entries) != count:
                raise CallerError(
                    f"'{name}' has {len(entries)} entries, '{_COMPLETIONS}' {count}: they must be "
                    "as many",
                    param=name,
                )


def _prompt_ids(call: CompletionAnswer, place: int) -> TokenIds | None:
    given = None if call.prompt_token_ids is None else call.prompt_token_ids[place]
    return call.generate_responses[place].prompt_token_ids if given is None else given


def _prompt_tokens(said: int | None, ids: TokenIds | None, answer: GenerateAnswer) -> int:
    if said is not None:
        return said
    if ids is not None:
        return len(ids)
    return (answer.usage.prompt_tokens if answer.usage is not None else None) or 0


def _cached(answer: GenerateAnswer) -> int | None:
    return None if answer.usage is None else answer.usage.cached_tokens


def _passed_through(answer: GenerateAnswer) -> dict[str, Any]:
    """What is for the caller, not for us."""
    return {"kv_transfer_params": answer.kv_transfer_params, "metrics": answer.metrics}
