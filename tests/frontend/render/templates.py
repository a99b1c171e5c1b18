"""Small chat templates in the public forms, and a tokenizer that has their control tokens."""

from functools import cache

from tokenizers import AddedToken, normalizers, pre_tokenizers
from tokenizers import Tokenizer as Inner
from tokenizers import models as inner_models

from frontend.samples import byte_level_inner
from splitserve.frontend.config import FrontendConfig
from splitserve.frontend.derender.parsers.detect import detect
from splitserve.frontend.model import ServedModel
from splitserve.frontend.render.pipeline import Renderer
from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.tokenizer import Tokenizer

CONTEXT = 2048
SPECIAL = {"bos_token": "<s>", "eos_token": "<|im_end|>"}

CONTROLS = (
    "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|python_tag|>",
    "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
    "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "</s>",
    "<|user|>", "<|assistant|>", "<|system|>", "<|tool|>", "<|end|>",
)  # fmt: skip
STRUCTURE = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip
WORDS = ("<b>", "   ", "\n\n", "covid19")
"""Added tokens that are words like any other."""

QWEN = (
    "{%- if tools %}"
    "{{- '<|im_start|>system\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\n\n' }}{%- endif %}"
    "{{- '# Tools\n\nYou are given functions within <tools></tools> XML tags:\n<tools>' }}"
    "{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}"
    "{{- '\n</tools>\n\nReturn a json object within <tool_call></tool_call> XML tags:\n"
    '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call><|im_end|>\n' }}"
    "{%- elif messages[0].role == 'system' %}"
    "{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
    "{%- endif %}"
    "{%- for message in messages %}"
    "{%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}"
    "{{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{%- elif message.role == 'assistant' %}"
    "{%- set content = message.content if message.content is string else '' %}"
    "{%- set thoughts = '' %}"
    "{%- if message.reasoning_content is string %}{%- set thoughts = message.reasoning_content %}"
    "{%- elif '</think>' in content %}"
    "{%- set thoughts = content.split('</think>')[0].rstrip('\n').split('<think>')[-1] %}"
    "{%- set content = content.split('</think>')[-1].lstrip('\n') %}"
    "{%- endif %}"
    "{{- '<|im_start|>assistant\n' }}"
    "{%- if thoughts and loop.last %}"
    "{{- '<think>\n' + thoughts.strip('\n') + '\n</think>\n\n' }}{%- endif %}"
    "{{- content }}"
    "{%- for call in message.tool_calls or [] %}"
    "{%- if (loop.first and content) or not loop.first %}{{- '\n' }}{%- endif %}"
    '{{- \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' }}'
    "{%- if call.function.arguments is string %}{{- call.function.arguments }}"
    "{%- else %}{{- call.function.arguments | tojson }}{%- endif %}"
    "{{- '}\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\n' }}"
    "{%- elif message.role == 'tool' %}"
    "{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}"
    "{{- '<|im_start|>user' }}{%- endif %}"
    "{{- '\n<tool_response>\n' + message.content + '\n</tool_response>' }}"
    "{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}"
    "{{- '<|im_end|>\n' }}{%- endif %}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\n\n</think>\n\n' }}{%- endif %}"
    "{%- endif %}"
)
"""ChatML with Hermes' tool calls and Qwen3's thoughts."""

LLAMA = (
    "{{- bos_token }}"
    "{%- if messages[0].role == 'system' %}"
    "{%- set system = messages[0].content | trim %}{%- set messages = messages[1:] %}"
    "{%- else %}{%- set system = '' %}{%- endif %}"
    "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}"
    "{%- if tools %}{{- 'Environment: ipython\nRespond with "
    '{"name": function name, "parameters": dictionary}.\n\' }}'
    "{%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{%- endif %}"
    "{{- system + '<|eot_id|>' }}"
    "{%- for message in messages %}"
    "{%- if 'tool_calls' in message %}"
    "{%- if message.tool_calls | length != 1 %}"
    "{{- raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}"
    "{%- set call = message.tool_calls[0].function %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    '{{- \'{"name": "\' + call.name + \'", "parameters": \' }}'
    "{{- call.arguments | tojson }}{{- '}<|eot_id|>' }}"
    "{%- elif message.role == 'tool' %}"
    "{{- '<|start_header_id|>ipython<|end_header_id|>\n\n' }}"
    "{%- if message.content is mapping %}{{- message.content | tojson }}"
    "{%- else %}{{- message.content }}{%- endif %}{{- '<|eot_id|>' }}"
    "{%- else %}"
    "{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}"
    "{{- message.content | trim + '<|eot_id|>' }}"
    "{%- endif %}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}"
    "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
)
"""Llama 3.1 with its JSON calls."""

MISTRAL = (
    "{%- if messages[0]['role'] == 'system' %}"
    "{%- set system = messages[0]['content'] %}{%- set loop_messages = messages[1:] %}"
    "{%- else %}{%- set loop_messages = messages %}{%- endif %}"
    "{{- bos_token }}"
    "{%- for message in loop_messages %}"
    "{%- if message['role'] == 'user' %}"
    "{%- if tools and loop.last %}"
    "{{- '[AVAILABLE_TOOLS] ' }}{{- tools | tojson }}{{- '[/AVAILABLE_TOOLS]' }}{%- endif %}"
    "{%- if loop.last and system is defined %}"
    "{{- '[INST] ' + system + '\n\n' + message['content'] + '[/INST]' }}"
    "{%- else %}{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}"
    "{%- elif message['tool_calls'] is defined and message['tool_calls'] is not none %}"
    "{{- '[TOOL_CALLS] [' }}"
    "{%- for call in message['tool_calls'] %}"
    "{%- if call['id'] | length != 9 %}"
    "{{- raise_exception('Tool call IDs should be alphanumeric strings with length 9!') }}"
    "{%- endif %}"
    "{{- '{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{- call['function']['arguments'] | tojson }}{{- ', \"id\": \"' + call['id'] + '\"}' }}"
    "{%- if not loop.last %}{{- ', ' }}{%- else %}{{- ']' + '</s>' }}{%- endif %}"
    "{%- endfor %}"
    "{%- elif message['role'] == 'assistant' %}{{- ' ' + message['content'] + '</s>' }}"
    "{%- elif message['role'] == 'tool' %}"
    "{{- '[TOOL_RESULTS] {\"content\": ' }}{{- message['content'] | tojson }}"
    "{{- ', \"call_id\": \"' + message['tool_call_id'] + '\"}[/TOOL_RESULTS]' }}"
    "{%- else %}{{- raise_exception('Only user and assistant roles are supported!') }}"
    "{%- endif %}"
    "{%- endfor %}"
)
"""Mistral 7B v0.3."""

CODER = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' }}"
    "{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}"
    "{{ '\n<tool_call>\n<function=' + call.function.name + '>\n' }}"
    "{% for name, value in call.function.arguments | items %}"
    "{{ '<parameter=' + name + '>\n' }}"
    "{{ value if value is string else value | tojson }}{{ '\n</parameter>\n' }}"
    "{% endfor %}{{ '</function>\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if tools %}{% for tool in tools %}{{ tool.function.name }}"
    "{% for name, value in tool.function.parameters | items %}"
    "{{ '\n<' ~ name ~ '>' ~ value ~ '</' ~ name ~ '>' }}{% endfor %}{% endfor %}{% endif %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Qwen3-Coder's XML."""

PYTHONIC = (
    "{% for message in messages %}{{ '<|start_header_id|>' + message.role"
    " + '<|end_header_id|>\n\n' }}"
    "{% if message.tool_calls %}{{ '[' }}{% for call in message.tool_calls %}"
    "{{ call.function.name + '(' }}{% for name in call.function.arguments %}"
    "{{ name + '=' + call.function.arguments[name] | tojson }}"
    "{{ ', ' if not loop.last }}{% endfor %}{{ ')' }}{{ ', ' if not loop.last }}{% endfor %}"
    "{{ ']' }}{% else %}{{ message.content }}{% endif %}{{ '<|eot_id|>' }}{% endfor %}"
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{{ '[func_name1(param=value)]' if tools }}"
)
"""Llama 3.2's and 4's calls."""

PHI = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + '\n'"
    " + message['content'] + '<|end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|' ~ 'assistant' ~ '|>\n' }}{% endif %}"
)
"""Phi-3 and GLM-4: control tokens put together from pieces."""

DEEPSEEK = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] == 'assistant' and message['content'] is none %}"
    "{% for call in message['tool_calls'] %}"
    "{{ '<|assistant|>' + call['function']['name'] + '\n```json\n'"
    " + call['function']['arguments'] + '\n```' }}{% endfor %}"
    "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|><think>\n' }}{% endif %}"
)
"""DeepSeek R1: wants a call's arguments as text, null content beside it, and opens a thought."""


@cache
def tokenizer() -> Tokenizer:
    return Tokenizer(inner(), bos_token="<s>")


def inner() -> Inner:
    made = byte_level_inner()
    made.add_special_tokens(
        [AddedToken(t, special=True, normalized=False, rstrip=t == "<|end|>") for t in CONTROLS]
    )
    made.add_tokens([AddedToken(text, normalized=False) for text in (*STRUCTURE, *WORDS)])
    return made


def metaspace_inner() -> Inner:
    """SentencePiece's shape: a sign for a space, also before the first word; controls in the
    model's own vocabulary."""
    pieces = [*"▁abcdefghijklmnopqrstuvwxyz<>|_[]/\n.", "▁a", "he", "llo", "▁hello"]
    names = ["<unk>", "<s>", "</s>", *pieces, *(f"<0x{byte:02X}>" for byte in range(256))]
    made = Inner(
        inner_models.BPE(
            {name: place for place, name in enumerate(names)},
            [("▁", "a"), ("h", "e")],
            unk_token="<unk>",
            byte_fallback=True,
        )
    )
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    made.add_special_tokens(
        [AddedToken(t, special=True, normalized=False) for t in ("<s>", "</s>", "<|im_start|>")]
    )
    made.add_special_tokens([AddedToken("<|im_end|>", special=True, normalized=True)])
    return made


@cache
def model_of(source: str) -> ServedModel:
    return ServedModel(
        name="tiny",
        tokenizer=tokenizer(),
        template=ChatTemplate(source, SPECIAL),
        max_model_len=CONTEXT,
        created=1_700_000_000,
        parsers=detect(source),
    )


@cache
def renderer_of(source: str) -> Renderer:
    return Renderer(model_of(source), FrontendConfig())
