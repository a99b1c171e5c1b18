"""A small model to test with: byte-level BPE trained on a few lines, special tokens, templates."""

from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Inner

from splitserve.frontend.derender.parsers.detect import ParserNames, detect
from splitserve.frontend.model import ServedModel
from splitserve.frontend.template import ChatTemplate
from splitserve.frontend.tokenizer import Tokenizer

SPECIAL = ("<|im_start|>", "<|im_end|>", "<s>")
LINES = (
    "The quick brown fox jumps over the lazy dog, alpha beta gamma delta.",
    "user assistant system hello world, what is the answer to the question?",
    "한국어 문장과 日本語の文章 and 中文的句子 are text too.",
)
CONTEXT = 512

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HERMES = (
    "{% if tools %}{{ '<|im_start|>system\n# Tools\n<tools>' }}{% for tool in tools %}"
    "{{ '\n' }}{{ tool | tojson }}{% endfor %}{{ '\n</tools>\n' }}"
    '{{ \'Answer with <tool_call>\n{"name": <name>, "arguments": <args>}\n</tool_call>\' }}'
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' }}"
    "{% if message['reasoning_content'] %}"
    "{{ '<think>' + message['reasoning_content'] + '</think>' }}{% endif %}"
    "{{ message['content'] or '' }}{% for call in message['tool_calls'] or [] %}"
    "{{ '\n<tool_call>\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}{{ '}\n</tool_call>' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""Hermes' and Qwen's form: tools, calls in tags, thoughts in tags."""
LLAMA3 = (
    "{{- bos_token }}\n"
    "{%- if messages[0]['role'] == 'system' %}\n"
    "    {%- set system_message = messages[0]['content']|trim %}\n"
    "    {%- set messages = messages[1:] %}\n"
    "{%- else %}\n"
    '    {%- set system_message = "" %}\n'
    "{%- endif %}\n"
    '{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}\n'
    "{%- if date_string is defined %}\n"
    '    {{- "Today Date: " + date_string + "\\n\\n" }}\n'
    "{%- endif %}\n"
    "{{- system_message }}\n"
    '{{- "<|eot_id|>" }}\n'
    "{%- for message in messages %}\n"
    "    {%- generation %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'"
    " + message['content'] | trim + '<|eot_id|>' }}\n"
    "    {%- endgeneration %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n"
    "    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n"
    "{%- endif %}\n"
)
MISTRAL = (
    "{{ bos_token }}{% set ns = namespace(turn=0) %}{% for message in messages %}"
    "{% if message['role'] == 'system' %}{% continue %}{% endif %}"
    "{% if (message['role'] == 'user') != (ns.turn % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}"
    "{% endif %}{% set ns.turn = ns.turn + 1 %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}"
)
PARTS = (
    "{% for message in messages %}<{{ message['role'] }}>"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}({{ part['text'] }})"
    "{% endif %}{% endfor %}{{ {'é': '<'} | tojson }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def byte_level_inner() -> Inner:
    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        show_progress=False,
        special_tokens=[AddedToken(text, special=True, normalized=False) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    inner.train_from_iterator(LINES, trainer)
    return inner


def byte_fallback_inner() -> Inner:
    """SentencePiece's shape: a word boundary sign, bytes for what has no token."""
    words = ["▁", "▁alpha", "▁beta", "▁ga", "mma", "▁the", "é"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    inner = Inner(models.WordLevel({token: place for place, token in enumerate(tokens)}, "<unk>"))
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return inner


def served(
    tokenizer: Tokenizer, template: str | None = CHATML, *, max_model_len: int = CONTEXT
) -> ServedModel:
    special = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
    return ServedModel(
        name="tiny",
        tokenizer=tokenizer,
        template=None if template is None else ChatTemplate(template, special),
        max_model_len=max_model_len,
        created=1_700_000_000,
        parsers=ParserNames(None, None) if template is None else detect(template),
    )
