"""Whether a text is an answer that a constraint allows, byte by byte."""

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.grammars import build, grammar_of

EOS = 256


class Bytes:
    eos_token_id = EOS
    bos_token_id = None
    tokens = [*(bytes([byte]) for byte in range(256)), b"\xff<eos>"]
    special_token_ids = [EOS]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


TOKENIZER = LLTokenizer(TokenizerWrapper(Bytes()))


def begin(structured: StructuredOutputs) -> LLMatcher:
    return build(TOKENIZER, grammar_of(structured))


def allowed(matcher: LLMatcher) -> set[int]:
    mask = int.from_bytes(matcher.compute_bitmask(), "little")
    return {token for token in range(EOS + 1) if mask >> token & 1}


def accepts(structured: StructuredOutputs, text: str) -> bool:
    """True for a whole answer; each byte must be in the mask, and at the end the end."""
    matcher = begin(structured)
    for byte in text.encode():
        if byte not in allowed(matcher) or not matcher.consume_token(byte):
            return False
    return EOS in allowed(matcher)
