"""Small GGUF files written with the gguf package, and vocabularies to put into them."""

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, LAYERS, CONTEXT = 32, 64, 4, 2, 8, 2, 512

_CORPUS = [
    Path(textwrap.__file__).read_text(encoding="utf-8"),
    "I'll don't WE'VE you're it's he'd I'm 12 345 6789 2024 3.14 naïve café Übergröße",
    "HelloWorld parseHTML camelCase snake_case x+=1; // path/to/file\r\n\r\n\t\tif (a && b) {",
    "日本語のテキスト 中文文本 한국어 русский язык العربية हिन्दी 🙂🚀",
] * 2


@dataclass(frozen=True)
class Vocabulary:
    """What a file's ``tokenizer.ggml.*`` keys hold."""

    model: str
    tokens: Sequence[str]
    types: Sequence[int]
    merges: Sequence[str] = ()
    scores: Sequence[float] = ()
    pre: str | None = None
    ids: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, bool] = field(default_factory=dict)


def byte_level_vocabulary(pre: str = "smollm", size: int = 700) -> Vocabulary:
    """A trained vocabulary with two control tokens and one that a user defined."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>", "<|im_end|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    found = tokenizer.get_vocab()
    tokens = [*sorted(found, key=found.__getitem__), "<think>"]
    return Vocabulary(
        model="gpt2",
        tokens=tokens,
        types=[CONTROL] * 2 + [NORMAL] * (len(tokens) - 3) + [USER_DEFINED],
        merges=_merges(tokenizer),
        pre=pre,
        ids={"bos": 0, "eos": 1, "padding": 0},
    )


def sentencepiece_vocabulary(size: int = 500, **flags: bool) -> Vocabulary:
    """A trained vocabulary with scores and byte tokens, as sentencepiece numbers them."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(
        _CORPUS, trainers.BpeTrainer(vocab_size=size, show_progress=False)
    )
    found = tokenizer.get_vocab()
    letters = [text for text in sorted(found, key=found.__getitem__) if len(text) == 1]
    merged = [text for text in sorted(found, key=found.__getitem__) if len(text) > 1]
    special = ["<unk>", "<s>", "</s>"]
    in_bytes = [f"<0x{value:02X}>" for value in range(256)]
    tokens = special + in_bytes + merged + letters
    text_tokens = len(merged) + len(letters)
    return Vocabulary(
        model="llama",
        tokens=tokens,
        types=[UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * text_tokens,
        scores=[0.0] * 259 + [-float(rank) for rank in range(text_tokens)],
        ids={"bos": 1, "eos": 2, "unknown": 0},
        flags=flags,
    )


def write_gguf(
    path: Path,
    *,
    arch: str = "llama",
    vocabulary: Vocabulary | None = None,
    tied: bool = True,
    dtype: type = np.float32,
    padded_rows: int = 0,
    change: Callable[[gguf.GGUFWriter], None] = lambda writer: None,
    leave_out: Sequence[str] = (),
) -> Path:
    """A model of two layers. ``change`` may add keys and tensors; ``leave_out`` names keys."""
    words = vocabulary or byte_level_vocabulary()
    writer = gguf.GGUFWriter(path, arch)
    numbers: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": HIDDEN,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD_DIM,
    }
    for key, value in numbers.items():
        if key not in leave_out:
            writer.add_uint32(f"{arch}.{key}", value)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{arch}.rope.freq_base", 50000.0)
    _add_vocabulary(writer, words)
    change(writer)
    _add_tensors(writer, len(words.tokens) + padded_rows, tied, dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _merges(tokenizer: Tokenizer) -> list[str]:
    merges = json.loads(tokenizer.to_str())["model"]["merges"]
    return [" ".join(pair) for pair in merges]


def _add_vocabulary(writer: gguf.GGUFWriter, words: Vocabulary) -> None:
    writer.add_tokenizer_model(words.model)
    writer.add_token_list(words.tokens)
    writer.add_token_types(words.types)
    if words.pre is not None:
        writer.add_tokenizer_pre(words.pre)
    if words.merges:
        writer.add_token_merges(words.merges)
    if words.scores:
        writer.add_token_scores(words.scores)
    for name, index in words.ids.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", index)
    for name, value in words.flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", value)


def _add_tensors(writer: gguf.GGUFWriter, vocab: int, tied: bool, dtype: type) -> None:
    def add(name: str, *shape: int) -> None:
        kind = dtype if len(shape) > 1 else np.float32
        writer.add_tensor(f"{name}.weight", np.zeros(shape, dtype=kind))

    add("token_embd", vocab, HIDDEN)
    add("output_norm", HIDDEN)
    if not tied:
        add("output", vocab, HIDDEN)
    for layer in range(LAYERS):
        add(f"blk.{layer}.attn_norm", HIDDEN)
        add(f"blk.{layer}.attn_q", HEADS * HEAD_DIM, HIDDEN)
        add(f"blk.{layer}.attn_k", KV_HEADS * HEAD_DIM, HIDDEN)
        add(f"blk.{layer}.attn_v", KV_HEADS * HEAD_DIM, HIDDEN)
        add(f"blk.{layer}.attn_output", HIDDEN, HEADS * HEAD_DIM)
        add(f"blk.{layer}.ffn_norm", HIDDEN)
        add(f"blk.{layer}.ffn_gate", FFN, HIDDEN)
        add(f"blk.{layer}.ffn_up", FFN, HIDDEN)
        add(f"blk.{layer}.ffn_down", HIDDEN, FFN)
