"""A Hugging Face ``tokenizer.json`` and ``tokenizer_config.json`` from a GGUF file's metadata.

Two kinds of vocabulary are read: byte-level BPE (GGUF calls it ``gpt2``) and sentencepiece BPE with
byte fallback (``llama``). Token types are numbered as in the GGUF specification.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from splitserve.errors import ConfigError
from splitserve.modelstore.gguf_header import GGUFHeader
from splitserve.modelstore.gguf_split import CUTS, Cut

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_TEXT: Final = (_NORMAL, _USER_DEFINED)
_SPACE: Final = "\u2581"  # how sentencepiece writes a space
_ROLES: Final = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
# Ends of a turn or a document. Published generation_config.json files list them beside the one
# end-of-sequence id that GGUF has room for; llama.cpp finds them by their text too.
_ENDS: Final = frozenset(
    ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>")
)


def build_tokenizer(header: GGUFHeader) -> "Tokenizer":
    """The tokenizer the file describes, ready to be saved as ``tokenizer.json``.

    Raises ConfigError for a vocabulary or a way to cut text that is not known here.
    """
    from tokenizers import AddedToken

    tokens = _tokens(header)
    kind = header.text("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(header, tokens, _cut(header))
    elif kind == "llama":
        tokenizer = _sentencepiece(header, tokens)
    else:
        raise ConfigError(
            f"{header.path}: tokenizer {kind!r} is not supported: give a Hugging Face folder"
        )
    types = _types(header, tokens)
    tokenizer.add_special_tokens(
        [
            AddedToken(text, normalized=False, special=True)
            for text, type_ in zip(tokens, types, strict=True)
            if type_ in (_UNKNOWN, _CONTROL)
        ]
    )
    tokenizer.add_tokens(
        [
            AddedToken(text, normalized=False, special=False)
            for text, type_ in zip(tokens, types, strict=True)
            if type_ == _USER_DEFINED
        ]
    )
    _add_ends(header, tokenizer)
    return tokenizer


def build_tokenizer_config(header: GGUFHeader) -> dict[str, Any]:
    """The contents of ``tokenizer_config.json``: special tokens as text and the chat template."""
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": adds_bos(header),
        "add_eos_token": header.flag("tokenizer.ggml.add_eos_token") or False,
    }
    for role in _ROLES:
        text = _special_text(header, role)
        if text is not None:
            config[f"{role}_token"] = text
    template = _chat_template(header)
    if template is not None:
        config["chat_template"] = template
    return config


def end_token_ids(header: GGUFHeader) -> list[int]:
    """Every id that ends an answer, the file's end-of-sequence id first."""
    named = [header.integer(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    tokens = _tokens(header)
    types = _types(header, tokens)
    found = [
        index
        for index, (text, type_) in enumerate(zip(tokens, types, strict=True))
        if text in _ENDS and type_ in (_CONTROL, _USER_DEFINED)
    ]
    return list(dict.fromkeys([token for token in named if token is not None] + found))


def adds_bos(header: GGUFHeader) -> bool:
    """Whether a prompt starts with the beginning-of-sequence token when the template has none."""
    said = header.flag("tokenizer.ggml.add_bos_token")
    if said is not None:
        return said
    if header.text("tokenizer.ggml.model") == "llama":
        return True
    return _cut(header).add_bos


def merges_from_scores(
    tokens: Sequence[str], scores: Sequence[float], types: Sequence[float]
) -> list[tuple[str, str]]:
    """The merges a sentencepiece vocabulary implies, best first.

    Every token of text that is two other tokens side by side is a merge of them, as good as its
    score. Control and byte tokens never come of merging.
    """
    index_of = {text: index for index, text in enumerate(tokens)}
    ranked: list[tuple[float, int, int, tuple[str, str]]] = []
    for text, score, type_ in zip(tokens, scores, types, strict=True):
        for border in range(1, len(text) if type_ in _TEXT else 0):
            left, right = index_of.get(text[:border]), index_of.get(text[border:])
            if left is not None and right is not None:
                ranked.append((-score, left, right, (text[:border], text[border:])))
    ranked.sort()
    return [pair for _, _, _, pair in ranked]


def _tokens(header: GGUFHeader) -> list[str]:
    tokens = header.strings("tokenizer.ggml.tokens")
    if not tokens:
        raise ConfigError(f"{header.path} holds no tokenizer: give a Hugging Face folder")
    if len(set(tokens)) != len(tokens):
        raise ConfigError(f"{header.path}: two tokens have the same text: convert the model again")
    return tokens


def _types(header: GGUFHeader, tokens: Sequence[str]) -> list[float]:
    types = header.numbers("tokenizer.ggml.token_type")
    if len(types) != len(tokens):
        raise ConfigError(f"{header.path} lacks the types of its tokens: convert the model again")
    return types


def _cut(header: GGUFHeader) -> Cut:
    name = header.text("tokenizer.ggml.pre")
    cut = CUTS.get(name or "")
    if cut is None:
        raise ConfigError(
            f"{header.path}: pre-tokenizer {name!r} is not supported: give a Hugging Face folder"
        )
    return cut


def _byte_level(header: GGUFHeader, tokens: Sequence[str], cut: Cut) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers

    vocab = {text: index for index, text in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(header, vocab),
            fuse_unk=False,
            byte_fallback=False,
            ignore_merges=cut.ignore_merges,
        )
    )
    if cut.nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = _pre_tokenizer(cut)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(cut: Cut) -> "PreTokenizer":
    from tokenizers import Regex, pre_tokenizers

    steps: list[PreTokenizer] = []
    if cut.digits_apart:
        steps.append(pre_tokenizers.Digits(individual_digits=True))
    steps += [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in cut.patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(steps)


def _merges(header: GGUFHeader, vocab: dict[str, int]) -> list[tuple[str, str]]:
    merges = []
    for line in header.strings("tokenizer.ggml.merges"):
        left, _, right = line.partition(" ")
        if not {left, right, left + right} <= vocab.keys():
            raise ConfigError(
                f"{header.path}: merge {line!r} is not made of tokens: convert the model again"
            )
        merges.append((left, right))
    return merges


def _sentencepiece(header: GGUFHeader, tokens: Sequence[str]) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = header.numbers("tokenizer.ggml.scores")
    if len(scores) != len(tokens):
        raise ConfigError(f"{header.path} lacks the scores of its tokens: convert the model again")
    tokenizer = Tokenizer(
        models.BPE(
            vocab={text: index for index, text in enumerate(tokens)},
            merges=merges_from_scores(tokens, scores, _types(header, tokens)),
            unk_token=_special_text(header, "unk"),
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    # A space is put before the text, and before what follows a special token, as the original
    # Llama and Mistral tokenizer.json files have it ("legacy").
    prefix = header.flag("tokenizer.ggml.add_space_prefix") is not False
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(_SPACE)] if prefix else []
    steps.append(normalizers.Replace(" ", _SPACE))
    tokenizer.normalizer = normalizers.Sequence(steps)
    back: list[decoders.Decoder] = [
        decoders.Replace(_SPACE, " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
    ]
    if prefix:
        back.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(back)
    return tokenizer


def _add_ends(header: GGUFHeader, tokenizer: "Tokenizer") -> None:
    """Begin- and end-of-sequence tokens around a prompt, where the file asks for them."""
    from tokenizers import processors

    bos = _special_text(header, "bos") if adds_bos(header) else None
    adds_eos = header.flag("tokenizer.ggml.add_eos_token") is True
    eos = _special_text(header, "eos") if adds_eos else None
    if bos is None and eos is None:
        return
    present = [text for text in (bos, eos) if text is not None]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=_template(bos, "$A", eos),
        pair=_template(bos, "$A", eos) + _template(bos, "$B", eos),
        special_tokens=[(text, _id_of(tokenizer, text)) for text in dict.fromkeys(present)],
    )


def _template(bos: str | None, body: str, eos: str | None) -> list[str]:
    return [part for part in (bos, body, eos) if part is not None]


def _id_of(tokenizer: "Tokenizer", text: str) -> int:
    found = tokenizer.token_to_id(text)
    if found is None:
        raise ConfigError(f"special token {text!r} is not in the vocabulary")
    return found


def _special_text(header: GGUFHeader, role: str) -> str | None:
    index = header.integer(f"tokenizer.ggml.{_ROLES[role]}_token_id")
    if index is None:
        return None
    tokens = _tokens(header)
    if not 0 <= index < len(tokens):
        raise ConfigError(f"{header.path}: {role} token {index} is not in the vocabulary")
    return tokens[index]


def _chat_template(header: GGUFHeader) -> str | list[dict[str, str]] | None:
    default = header.text("tokenizer.chat_template")
    named = dict(_named_templates(header, header.strings("tokenizer.chat_templates")))
    if not named:
        return default
    if default is not None:
        named = {"default": default} | named
    return [{"name": name, "template": template} for name, template in named.items()]


def _named_templates(header: GGUFHeader, names: Iterable[str]) -> Iterable[tuple[str, str]]:
    for name in names:
        template = header.text(f"tokenizer.chat_template.{name}")
        if template is not None:
            yield name, template
