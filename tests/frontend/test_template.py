"""Templates render as transformers renders them, and cannot do anything else."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from frontend.samples import CHATML, LLAMA3, MISTRAL, PARTS, byte_level_inner
from splitserve.errors import CallerError, ConfigError
from splitserve.frontend.template import ChatTemplate

SPECIAL = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
CHAT = [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": "Hi 한국 <b>&'\"\\ "},
    {"role": "assistant", "content": "Hello\r\n\x00!"},
    {"role": "user", "content": "\u2028bye"},
]


@pytest.fixture(scope="module")
def reference() -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=byte_level_inner(), **SPECIAL)


def as_parts(chat: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [{**turn, "content": [{"type": "text", "text": turn["content"]}]} for turn in chat]


@pytest.mark.parametrize("add_generation_prompt", [False, True])
@pytest.mark.parametrize(
    ("source", "chat", "extra"),
    [
        (CHATML, CHAT, {}),
        (LLAMA3, CHAT, {}),
        (LLAMA3, CHAT[1:], {"date_string": "26 Jul 2024"}),
        (MISTRAL, CHAT, {}),
        (PARTS, as_parts(CHAT), {}),
    ],
    ids=["chatml", "llama3", "llama3-date", "mistral", "parts"],
)
def test_equals_transformers(
    reference: PreTrainedTokenizerFast,
    source: str,
    chat: list[dict[str, Any]],
    extra: dict[str, Any],
    add_generation_prompt: bool,
) -> None:
    ours = ChatTemplate(source, SPECIAL).render(
        chat, add_generation_prompt=add_generation_prompt, extra=extra
    )
    theirs = reference.apply_chat_template(
        chat,
        chat_template=source,
        tokenize=False,
        add_generation_prompt=add_generation_prompt,
        **extra,
    )
    assert ours == theirs


@pytest.mark.parametrize(
    ("source", "text", "parts"),
    [(CHATML, True, False), (LLAMA3, True, False), (MISTRAL, True, False), (PARTS, False, True)],
    ids=["chatml", "llama3", "mistral", "parts"],
)
def test_knows_which_form_of_content_a_template_prints(
    source: str, text: bool, parts: bool
) -> None:
    template = ChatTemplate(source, SPECIAL)
    assert (template.habits.text, template.habits.parts) == (text, parts)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ self.__init__.__globals__ }}",
        "{% set ns = namespace(__class__='x') %}",
        "{% set ns = namespace(a=1) %}{% set ns._secret = 1 %}",
        "{{ messages.append('x') }}",
        "{{ 'x' * 100000000 }}",
        "{{ [1] * 100000000 }}",
        "{{ 9 ** 9 ** 9 }}",
        "{% for a in range(1000000) %}x{% endfor %}",
        "{% for a in range(9000) %}{{ 'x' * 90000 }}{% endfor %}",
        "{% include '/etc/passwd' %}",
    ],
)
def test_a_template_cannot_leave_the_sandbox(source: str) -> None:
    template = ChatTemplate(source, SPECIAL)
    with pytest.raises(CallerError, match="chat template") as caught:
        template.render([{"role": "user", "content": "x"}], add_generation_prompt=False, extra={})
    assert caught.value.param == "messages"


def test_format_strings_reach_no_internals() -> None:
    template = ChatTemplate("{{ '{0.__class__}|{0}'.format('x') }}", SPECIAL)
    assert template.render(CHAT, add_generation_prompt=False, extra={}) == "|x"


@pytest.mark.parametrize(
    "source", ["{{ messages[0].nothing.more }}", "{{ 1 + 'a' }}", "{{ 1 / 0 }}", "{{ none + 1 }}"]
)
def test_a_template_that_fails_on_the_messages_is_the_callers_error(source: str) -> None:
    with pytest.raises(CallerError, match="refused the messages"):
        ChatTemplate(source, SPECIAL).render([{}], add_generation_prompt=False, extra={})


def test_a_template_can_say_why_it_refuses() -> None:
    template = ChatTemplate(MISTRAL, SPECIAL)
    chat = [{"role": "assistant", "content": "x"}]
    with pytest.raises(CallerError, match="roles must alternate"):
        template.render(chat, add_generation_prompt=False, extra={})


@pytest.mark.parametrize(
    "name",
    [
        "tokenize",
        "add_generation_prompt",
        "chat_template",
        "tools",
        "conversation",
        "return_tensors",
        "__class__",
        "messages",
        "bos_token",
        "documents",
        "continue_final_message",
        "raise_exception",
        "range",
        "not a name",
    ],
)
def test_reserved_arguments_are_refused(name: str) -> None:
    template = ChatTemplate(CHATML, SPECIAL)
    with pytest.raises(CallerError, match="must not set") as caught:
        template.render(CHAT, add_generation_prompt=True, extra={name: True})
    assert caught.value.param == "chat_template_kwargs"


def test_tools_and_documents_equal_transformers(reference: PreTrainedTokenizerFast) -> None:
    source = "{{ tools | tojson }}{{ documents | tojson }}{{ messages[0].content }}"
    tools = [{"type": "function", "function": {"name": "f", "description": "é <b>"}}]
    documents = [{"title": "a", "text": "b"}]
    ours = ChatTemplate(source, SPECIAL).render(
        CHAT, add_generation_prompt=False, extra={}, tools=tools, documents=documents
    )
    theirs = reference.apply_chat_template(
        CHAT, chat_template=source, tokenize=False, tools=tools, documents=documents
    )
    assert ours == theirs


PRINTS_TOOLS = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
PRINTS_CALLS = "{% for call in m.tool_calls or [] %}{{ call.function.name }}{{ ARGS }}{% endfor %}"


def messages_of(inner: str) -> str:
    return "{% for m in messages %}" + inner + "{% endfor %}"


@pytest.mark.parametrize(
    ("source", "tools", "null_content", "argument_text"),
    [
        (CHATML, False, False, False),
        (PRINTS_TOOLS + CHATML, True, False, False),
        (
            "{% if messages[0].role == 'system' %}" + PRINTS_TOOLS + "{% endif %}",
            True,
            False,
            False,
        ),
        (
            messages_of("{{ m.content or '' }}" + PRINTS_CALLS).replace(
                "ARGS", "call.function.arguments | tojson"
            ),
            False,
            True,
            False,
        ),
        (
            messages_of("{{ m.content }}" + PRINTS_CALLS).replace(
                "ARGS", "call.function.arguments | tojson"
            ),
            False,
            False,
            False,
        ),
        (
            messages_of("{{ m.content ~ '' if m.content }}" + PRINTS_CALLS).replace(
                "ARGS", "'' + call.function.arguments"
            ),
            False,
            True,
            True,
        ),
        (
            messages_of("{{ m.content + '' }}" + PRINTS_CALLS).replace(
                "ARGS", "call.function.arguments"
            ),
            False,
            False,
            True,
        ),
    ],
    ids=["no tools", "tools", "system", "mapping", "no null", "text", "text by name"],
)
def test_knows_how_a_template_takes_tools_and_calls(
    source: str, tools: bool, null_content: bool, argument_text: bool
) -> None:
    habits = ChatTemplate(source, SPECIAL).habits
    assert (habits.tools, habits.null_content, habits.argument_text) == (
        tools,
        null_content,
        argument_text,
    )


def test_a_broken_template_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="chat template"):
        ChatTemplate("{% if %}", SPECIAL)
