"""Which answers a constraint allows."""

import json
from typing import Any

import pytest
from byte_walk import accepts
from hypothesis import given, settings
from hypothesis import strategies as st

from splitserve.protocol.sampling import StructuredOutputs
from splitserve.structured.schemas import MAX_WHITESPACE


def schema(value: Any) -> StructuredOutputs:
    return StructuredOutputs(json=json.dumps(value))


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("text", "conforms"),
    [
        ('{"name":"Ada","age":36}', True),
        ('{\n  "name": "Ada",\n  "age": 36\n}', True),
        ('{"name":"\u00e9","age":-1}', True),
        ('{"name":"Ada Lovelace","age":36}', False),
        ('{"age":36,"name":"Ada"}', False),
        ('{"name":"Ada"}', False),
        ('{"name":"Ada","age":"36"}', False),
        ('{"name":"Ada","age":36,"x":1}', False),
        ('{"name":"Ada","age":36} and so on', False),
        ('{"name":"Ada","age":3', False),
        ("", False),
    ],
)
def test_json_conforms_to_its_schema(text: str, conforms: bool) -> None:
    assert accepts(schema(PERSON), text) is conforms


def test_white_space_within_json_is_bounded() -> None:
    array = schema({"type": "array", "items": {"type": "integer"}})
    assert accepts(array, f"[{' ' * MAX_WHITESPACE}1]")
    assert not accepts(array, f"[{' ' * (MAX_WHITESPACE + 1)}1]")


def test_options_for_the_library_within_a_schema_have_no_effect() -> None:
    odd = {**PERSON, "x-guidance": {"item_separator": ";", "whitespace_pattern": "x"}}
    assert accepts(schema(odd), '{"name":"Ada","age":36}')
    assert not accepts(schema(odd), '{"name":"Ada";"age":36}')


def test_one_of_is_read_as_any_of() -> None:
    either = schema({"oneOf": [{"type": "integer"}, {"type": "boolean"}]})
    assert [accepts(either, text) for text in ("12", "true", '"a"')] == [True, True, False]


def test_a_schema_may_refer_to_itself_where_it_can_end() -> None:
    node = {"properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}}
    node |= {"type": "object", "required": ["next"], "additionalProperties": False}
    lists = schema({"$defs": {"node": node}, "$ref": "#/$defs/node"})
    assert accepts(lists, '{"next":{"next":null}}')
    assert not accepts(lists, '{"next":{}}')


def test_a_json_object_is_any_object() -> None:
    free = StructuredOutputs(json_object=True)
    assert accepts(free, '{"a":[1,{"b":null}]}')
    assert not accepts(free, "[1]")


@pytest.mark.parametrize(
    ("regex", "text", "matches"),
    [
        (r"[a-z]+@x\.com", "ab@x.com", True),
        (r"[a-z]+@x\.com", "ab@xxcom", False),
        ("^ab$", "ab", True),
        ("a/b|//", "//", True),
        ("a\nb", "a\nb", True),
        ("(a+)+$", "aaaa", True),
        ("a{10000}", "aaa", False),
        (".", "é", True),
        (".", "\n", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_a_regular_expression_matches_the_whole_answer(
    regex: str, text: str, matches: bool
) -> None:
    assert accepts(StructuredOutputs(regex=regex), text) is matches


def test_a_choice_is_one_of_its_texts() -> None:
    texts = ("yes", "yes and no", 'with "quotes" \\ / \n', "é\u2028😀", "")
    choice = StructuredOutputs(choice=texts)
    assert all(accepts(choice, text) for text in texts)
    assert not any(accepts(choice, text) for text in ("ye", "yes and", "no"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1))
def test_any_text_can_be_a_choice(texts: list[str]) -> None:
    choice = StructuredOutputs(choice=tuple(texts))
    assert all(accepts(choice, text) for text in texts[:5])


GBNF = r"""
# a comment
root    ::= greeting (", " fooBar)* foo-bar{1,2} end?
greeting ::= "hi" | "h\x69gh" |
             "\u0068o"
fooBar  ::= [^,!\n"] | "\"" [a-c]+ "c\""
foo-bar ::= "!"
end     ::= [\\/\]-] start
start   ::= .
"""


@pytest.mark.parametrize(
    ("text", "conforms"),
    [
        ("hi!", True),
        ("high!!", True),
        ("ho, é!", True),
        ('hi, "abcc"!', True),
        ("hi!]x", True),
        ("hi!-\n", True),
        ("hi!!!", False),
        ('hi, "ab"!', False),
        ("hi, ,!", False),
        ("hi", False),
    ],
)
def test_gbnf_means_what_llama_cpp_says(text: str, conforms: bool) -> None:
    assert accepts(StructuredOutputs(grammar=GBNF), text) is conforms


def test_gbnf_has_no_lexer_that_takes_too_much() -> None:
    """A lexer that takes the longest lexeme could never end the word."""
    words = StructuredOutputs(grammar='root ::= word "x"\nword ::= [a-z]+')
    assert accepts(words, "abx")
    either = StructuredOutputs(grammar='root ::= "a" "bd" | "ab" "c"')
    assert accepts(either, "abd")
    assert accepts(either, "abc")


def test_lark_is_taken_as_it_is() -> None:
    lark = StructuredOutputs(
        grammar='%llguidance {}\nstart: NAME "=" NUMBER\nNAME: /[a-z]+/\n'
        "%import common.NUMBER\n%ignore / +/"
    )
    assert accepts(lark, "a = 12")
    assert not accepts(lark, "a = b")


TAGS = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<f=a>", "schema": {"type": "integer"}, "end": "</f>"},
        {"begin": "<f=b>", "schema": {"type": "boolean"}, "end": "</f>"},
        {"begin": "[go", "end": "]"},
    ],
    "triggers": ["<f=", "[go"],
}


@pytest.mark.parametrize(
    ("text", "conforms"),
    [
        ("just text <b> [g", True),
        ("", True),
        ("one <f=a>12</f> two <f=b>true</f> [go7] end", True),
        ("<f=a>true</f>", False),
        ("<f=c>1</f>", False),
        ("<f=a>12", False),
    ],
)
def test_a_structural_tag_binds_only_what_follows_its_triggers(text: str, conforms: bool) -> None:
    assert accepts(StructuredOutputs(structural_tag=json.dumps(TAGS)), text) is conforms
