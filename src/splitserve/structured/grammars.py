"""From StructuredOutputs to the text of a grammar, and whether it can be built."""

import functools
from collections.abc import Mapping
from typing import Final

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from splitserve.errors import CallerError
from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.choices import choice_rules
from splitserve.structured.ebnf import grammar_rules
from splitserve.structured.limits import LIMITS, Limits, parser_limits
from splitserve.structured.regexes import regex_terminal
from splitserve.structured.schemas import schema_rule
from splitserve.structured.tags import tag_rules

_HEAD: Final = '%llguidance {"no_forcing": true}\n'
"""Without it the library works out the longest text that must follow, to force how it is split
into tokens. For some grammars that takes minutes."""

_ANY_OBJECT: Final = '{"type": "object"}'
_MAX_REASON: Final = 300

MAX_CHECKED: Final = 64
"""Constraints whose check is remembered."""


def grammar_of(
    structured: StructuredOutputs, special: Mapping[str, int] = {}, limits: Limits = LIMITS
) -> str:
    """The grammar as llguidance reads it. ``special`` are a tokenizer's control tokens and ids.

    Raises CallerError for a constraint that is none, is more than one, or is too large.
    """
    rules: list[str] = []
    if structured.json is not None:
        rules.append(f"start: {schema_rule(structured.json, limits)}")
    if structured.json_object:
        rules.append(f"start: {schema_rule(_ANY_OBJECT, limits)}")
    if structured.regex is not None:
        rules.append(f"start: {regex_terminal(structured.regex, limits)}")
    if structured.choice is not None:
        rules.append(choice_rules(structured.choice, limits))
    if structured.grammar is not None:
        rules.append(grammar_rules(structured.grammar, limits))
    if structured.structural_tag is not None:
        rules.append(tag_rules(structured.structural_tag, special, limits))
    if len(rules) != 1:
        raise CallerError(f"must hold exactly one kind of constraint, not {len(rules)}")
    return _HEAD + rules[0]


def check(structured: StructuredOutputs, param: str) -> None:
    """Raises CallerError, naming ``param``, for a constraint that no worker could serve.

    Takes at most about a tenth of a second, whatever the constraint.
    """
    reason = _what_is_wrong(structured)
    if reason:
        raise CallerError(f"'{param}': {reason}", param=param, code="invalid_value")


# Clients ask again and again with the same schema.
@functools.lru_cache(maxsize=MAX_CHECKED)
def _what_is_wrong(structured: StructuredOutputs) -> str:
    try:
        build(_bytes_tokenizer(), grammar_of(structured))
    except CallerError as error:
        return error.message
    return ""


def build(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """Raises CallerError when the library refuses it, or no text at all conforms to it."""
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
    if not matcher.is_error():
        # A copy: it shares what the lexer learns, and leaves the original at its start.
        first = matcher.deep_copy()
        first.compute_bitmask()
        if not first.is_error():
            return matcher
        raise CallerError(_first_token_reason(first))
    raise CallerError(reason_of(matcher.get_error()))


def _first_token_reason(matcher: LLMatcher) -> str:
    error = matcher.get_error()
    if error.startswith("NoExtension"):
        return "allows no answer at all"
    return f"is too complex to begin an answer with: {reason_of(error)}"


def reason_of(error: str) -> str:
    """The library's message in one line: without where in our grammar it is, and its echo of it."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    first = lines[0] if lines else "unknown"
    place, separator, rest = first.partition("): ")
    if separator and place.removeprefix("at ").replace("(", "").isdecimal():
        first = rest
    first = first.removeprefix("failed to compile JSON schema: ")
    causes = [line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: ")]
    return ": ".join([first.rstrip(":"), *causes])[:_MAX_REASON]


class _Bytes:
    """A tokenizer of single bytes, as the library asks for one: enough to check a grammar."""

    eos_token_id = 256
    bos_token_id = None
    tokens: Final = [*(bytes([byte]) for byte in range(256)), b"\xff<eos>"]
    special_token_ids: Final = [256]

    def __call__(self, text: str | bytes) -> list[int]:
        return list(text if isinstance(text, bytes) else text.encode())


@functools.cache
def _bytes_tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes()))
