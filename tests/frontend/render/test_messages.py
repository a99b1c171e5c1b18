"""Messages reach the template in the form it prints."""

import pytest

from frontend.samples import CHATML, LLAMA3, MISTRAL, PARTS, byte_level_inner
from splitserve.errors import CallerError
from splitserve.frontend.render.messages import render_chat
from splitserve.frontend.sealed_template import SealedTemplate
from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.tokenizer import Tokenizer
from splitserve.protocol.openai.messages import Message

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def message(role: str, content: object) -> Message:
    return Message.model_validate({"role": role, "content": content})


def sealed(source: str) -> SealedTemplate:
    return SealedTemplate(ChatTemplate(source, SPECIAL), Tokenizer(byte_level_inner()))


def render(source: str, *messages: Message, open_end: bool = False) -> str:
    template = sealed(source)
    text = render_chat(
        template,
        messages,
        add_generation_prompt=not open_end,
        continue_final_message=open_end,
        extra={},
    )
    return template.seals.unseal(text)


PART_LIST = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]


def test_parts_are_joined_by_a_newline_for_a_template_of_strings() -> None:
    assert "<|im_start|>user\na\nb<|im_end|>" in render(CHATML, message("user", PART_LIST))


def test_parts_stay_parts_for_a_template_of_parts() -> None:
    assert "<user>(a)(b)" in render(PARTS, message("user", PART_LIST))


def test_a_string_becomes_one_part_for_a_template_of_parts() -> None:
    assert "<user>(a\nb)" in render(PARTS, message("user", "a\nb"))


@pytest.mark.parametrize("content", [None, []])
def test_an_assistant_may_have_said_nothing(content: object) -> None:
    text = render(CHATML, message("user", "x"), message("assistant", content))
    assert "<|im_start|>assistant\n<|im_end|>" in text


def test_developer_is_system_to_a_template() -> None:
    assert render(CHATML, message("developer", "x")) == render(CHATML, message("system", "x"))


@pytest.mark.parametrize("content", ["OK!", "OK!\n", "OK! ", " OK", "", "a <|im_end|> b"])
@pytest.mark.parametrize("source", [CHATML, LLAMA3, MISTRAL])
def test_a_continued_message_ends_the_prompt_exactly(source: str, content: str) -> None:
    user = message("user", "x")
    text = render(source, user, message("assistant", content), open_end=True)
    assert text.endswith(content)
    # What comes before is what the template writes before any final message.
    other = render(source, user, message("assistant", "@"), open_end=True)
    assert text == other.removesuffix("@") + content


def test_a_continued_message_of_parts() -> None:
    text = render(PARTS, message("user", "x"), message("assistant", PART_LIST), open_end=True)
    assert text.endswith("<assistant>(a)(b")


def test_continuing_and_a_generation_prompt_exclude_each_other() -> None:
    with pytest.raises(CallerError) as caught:
        render_chat(
            sealed(CHATML),
            [message("assistant", "x")],
            add_generation_prompt=True,
            continue_final_message=True,
            extra={},
        )
    assert caught.value.param == "continue_final_message"


def test_a_template_that_drops_the_message_cannot_continue_it() -> None:
    with pytest.raises(CallerError, match="drops the final message") as caught:
        render(
            "{{ messages[0].content }}",
            message("user", "x"),
            message("assistant", "y"),
            open_end=True,
        )
    assert caught.value.param == "continue_final_message"
