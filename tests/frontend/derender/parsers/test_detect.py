"""A chat template tells which parsers read its model's answers."""

import pytest

from splitserve.frontend.derender.parsers import detect as module
from splitserve.frontend.derender.parsers.detect import ParserNames, detect
from splitserve.frontend.derender.parsers.registry import REASONING_PARSERS, TOOL_PARSERS

B, U = "\uff5c", "\u2581"
QWEN_TOOLS = """
For each function call, return a json object with function name and arguments within <tool_call>
</tool_call> XML tags:\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args>}
{{- '<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' }}
{{- tool_call.arguments | tojson }}{{- '}\\n</tool_call>' }}"""
QWEN_THINK = "{%- if '</think>' in content %}{%- endif %}{{- '<think>\\n\\n</think>\\n\\n' }}"

# The lines that tell, as they stand in the models' public templates.
TEMPLATES = {
    "Qwen2.5": (QWEN_TOOLS, None, "hermes"),
    "Qwen3": (QWEN_TOOLS + QWEN_THINK, "qwen3", "hermes"),
    "Qwen3-Coder": (
        "{{- '\\n<tool_call>\\n<function=' + tool_call.name + '>\\n' }}"
        "{{- '<parameter=' + args_name + '>\\n' }}{{- '</function>\\n</tool_call>' }}",
        None,
        "qwen3_coder",
    ),
    "Qwen3.5": (
        QWEN_THINK + "{{- '<tool_call>\\n<function=' }}{{- '<parameter=' + name + '>\\n' }}",
        "qwen3",
        "qwen3_coder",
    ),
    "QwQ": (QWEN_TOOLS + "{{- '<|im_start|>assistant\\n<think>\\n' }}", "qwen3", "hermes"),
    "GLM-4.5": (
        "[gMASK]<sop>{{- '<|assistant|>' }}{{ '\\n<think></think>' }}"
        "{{ '\\n<tool_call>' + tc.name }}<arg_key>{{ k }}</arg_key>"
        "<arg_value>{{ v }}</arg_value>",
        "glm45",
        "glm45",
    ),
    "Kimi-K2-Instruct": (
        "<|im_middle|>{{ c }}<|tool_calls_section_begin|><|tool_call_begin|>{{ id }}"
        "<|tool_call_argument_begin|>",
        None,
        "kimi_k2",
    ),
    "Kimi-K2-Thinking": (
        "<|im_middle|><think>{{ r }}</think><|tool_calls_section_begin|><|tool_call_begin|>",
        "kimi_k2",
        "kimi_k2",
    ),
    "DeepSeek-R1": (
        f"{{{{'<{B}Assistant{B}>'}}}}{{% set c = c.split('</think>')[-1] %}}"
        f"<{B}tool{U}calls{U}begin{B}><{B}tool{U}call{U}begin{B}>' + tool['type'] + "
        f"'<{B}tool{U}sep{B}>' + tool['function']['name'] + '\\n' + '```json'",
        "deepseek_r1",
        "deepseek_v3",
    ),
    "DeepSeek-V3.1": (
        f"<{B}Assistant{B}></think>{{{{'<{B}tool{U}calls{U}begin{B}>"
        f"<{B}tool{U}call{U}begin{B}>' + tool['function']['name'] + '<{B}tool{U}sep{B}>'}}}}",
        "deepseek_r1",
        "deepseek_v31",
    ),
    "DeepSeek-V3.2": (
        f"<{B}Assistant{B}></think><{B}DSML{B}function_calls><{B}DSML{B}invoke",
        "deepseek_r1",
        "deepseek_v32",
    ),
    "Mistral-Small": ("{{- '[INST] ' }}{{- '[TOOL_CALLS][' }}", None, "mistral"),
    "Magistral": (
        "{{- '[THINK]' + block['thinking'] + '[/THINK]' }}{{- '[TOOL_CALLS]' }}",
        "mistral",
        "mistral",
    ),
    "Llama-3.1": (
        "{{- 'Environment: ipython\\n' }}{{- '<|python_tag|>' + tool_call.name + '.call(' }}"
        "{{- '{\"name\": \"' + tool_call.name + '\", ' }}{{- '\"parameters\": ' }}",
        None,
        "llama3_json",
    ),
    "Llama-3.2": (
        "{{- 'Environment: ipython\\n' }}{{- '{\"name\": \"' }}{{- '\"parameters\": ' }}",
        None,
        "llama3_json",
    ),
    "Llama-3.2, pythonic": (
        "{{- 'Environment: ipython\\n' }}[func_name1(params_name1=params_value1)]'parameters'",
        None,
        "pythonic",
    ),
    "Llama-4": ("{{- '<|python_start|>' }}{{- '\"parameters\": ' }}", None, "llama4_pythonic"),
    "gpt-oss": (
        '{{- "<|start|>assistant<|channel|>analysis<|message|>" }}'
        "commentary to=functions.{{ name }} <|constrain|>json<|message|>",
        "openai_gptoss",
        "openai",
    ),
    "Llama-2": ("{{ '[INST] ' + message['content'] + ' [/INST]' }}", None, None),
    "ChatML": ("{{'<|im_start|>' + message['role'] + '\\n'}}", None, None),
    "none": ("", None, None),
}  # fmt: skip


@pytest.mark.parametrize("model", TEMPLATES)
def test_a_template_tells_its_parsers(model: str) -> None:
    template, reasoning, tools = TEMPLATES[model]
    assert detect(template) == ParserNames(reasoning, tools)


def test_every_parser_that_a_row_names_is_there_and_told_by_some_template() -> None:
    rows = {sign.parser for sign in module._TOOLS}
    assert rows == {tools for _, _, tools in TEMPLATES.values()} - {None}
    assert rows == TOOL_PARSERS.keys()
    rows = {sign.parser for sign in module._REASONING}
    assert rows == {reasoning for _, reasoning, _ in TEMPLATES.values()} - {None}
    assert rows == REASONING_PARSERS.keys()
