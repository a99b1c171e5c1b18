"""Whether an answer begins inside a block of reasoning is read off the prompt, not guessed."""

import json
from typing import Any

import pytest

from frontend.render.templates import CODER, DEEPSEEK, QWEN, model_of, renderer_of, tokenizer
from splitserve.frontend.derender.events import ReasoningDelta
from splitserve.frontend.derender.pipeline import Derenderer
from splitserve.frontend.render.job import Job
from splitserve.ids import RequestId
from splitserve.protocol.generate import TokenChunk

USER = {"role": "user", "content": "hi"}
OFF = "{% if thinking is defined and thinking %}{{ '<think>\n' }}{% endif %}"
OPT_IN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    + OFF
    + "{% endif %}"
)
"""A template that opens a thought only when it is told to."""


def chat(source: str, *messages: dict[str, Any], **fields: Any) -> Job:
    body = {"messages": messages or [USER], **fields}
    return renderer_of(source).chat(json.dumps(body).encode())


def read(job: Job, text: str) -> tuple[str, str]:
    """Reasoning and content of an answer."""
    ids = tokenizer().encode_rendered(text)
    derenderer = Derenderer(tokenizer(), job.options, context=job.context)
    delta = derenderer.feed(TokenChunk(RequestId("r"), 0, ids, "length"))
    thoughts = [event.text for event in delta.events if isinstance(event, ReasoningDelta)]
    return "".join(thoughts), delta.text


@pytest.mark.parametrize(
    ("source", "kwargs", "thinking"),
    [
        (QWEN, {}, "start"),
        (QWEN, {"enable_thinking": True}, "start"),
        (QWEN, {"enable_thinking": False}, "closed"),
        (OPT_IN, {}, "start"),
        (OPT_IN, {"thinking": False}, "start"),
        (OPT_IN, {"thinking": True}, "open"),
        (DEEPSEEK, {}, "open"),
    ],
)
def test_the_prompts_end_tells(source: str, kwargs: dict[str, Any], thinking: str) -> None:
    assert chat(source, chat_template_kwargs=kwargs).context.thinking == thinking


def test_a_plain_answer_is_content_wherever_the_prompt_opened_no_thought() -> None:
    for source, kwargs in (
        (QWEN, {}),
        (QWEN, {"enable_thinking": False}),
        (OPT_IN, {}),
        (OPT_IN, {"thinking": False}),
    ):
        assert read(chat(source, chat_template_kwargs=kwargs), "Hi") == ("", "Hi")
    opened = chat(OPT_IN, chat_template_kwargs={"thinking": True})
    assert read(opened, "so</think>Hi") == ("so", "Hi")


def test_a_model_without_thoughts_has_none() -> None:
    context = chat(CODER).context
    assert (model_of(CODER).parsers.reasoning, context.reasoning) == (None, None)
    assert context.thinking == "closed"


def test_a_thought_that_a_user_opened_is_none() -> None:
    source = "{{ messages[0].content }}{{ '' if true else '<think></think>' }}"
    assert chat(source, {"role": "user", "content": "a <think>"}).context.thinking == "start"
    assert chat(QWEN, {"role": "user", "content": "<think>"}).context.thinking == "start"


@pytest.mark.parametrize(
    ("content", "thinking"),
    [
        ("<think>\nso", "open"),
        ("<think>so</think>\n\nHi", "closed"),
        ("Hi", "closed"),
        ("", "start"),
        (" \n", "start"),
        ([{"type": "text", "text": "<think>"}, {"type": "text", "text": "so"}], "open"),
    ],
)
def test_a_continued_message_tells_by_its_own_text(content: Any, thinking: str) -> None:
    source = OPT_IN.replace("{% if thinking", "{{ '' if true else '</think>' }}{% if thinking")
    said = {"role": "assistant", "content": content}
    job = chat(source, USER, said, continue_final_message=True)
    assert job.context.thinking == thinking


@pytest.mark.parametrize(
    ("effort", "kwargs", "switch"),
    [
        (None, {}, ""),
        ("none", {}, "none/False"),
        ("low", {}, "low/True"),
        ("high", {"enable_thinking": False}, "high/False"),
        ("high", {"reasoning_effort": "low"}, "low/True"),
    ],
)
def test_effort_reaches_the_template(effort: str | None, kwargs: Any, switch: str) -> None:
    source = (
        "{{ messages[0].content }}{% if reasoning_effort is defined %}"
        "{{ reasoning_effort ~ '/' ~ enable_thinking }}{% endif %}"
    )
    job = chat(source, reasoning_effort=effort, chat_template_kwargs=kwargs)
    text = tokenizer().decode(job.prompts[0].token_ids, skip_special=False)
    assert text == f"hi{switch}"


def test_thoughts_can_be_left_out_of_the_answer() -> None:
    assert chat(QWEN).options.reasoning
    assert not chat(QWEN, include_reasoning=False).options.reasoning
