"""A call's object is known to be a call as early as can be, and no earlier."""

import json

import pytest

from splitserve.frontend.derender.parsers.json_call import MOST_HELD, CallObject


def read(text: str, names: set[str] | None = None) -> tuple[CallObject, str, int]:
    """The call, its arguments and how far ``text`` was read."""
    call, arguments, end = CallObject(names), "", 0
    while end < len(text) and not (call.done or call.wrong):
        more, read_to = call.feed(text[end:])
        arguments, end = arguments + more, end + read_to
    return call, arguments, end


def begins_after(text: str, names: set[str] | None = None) -> str:
    """What was read when it became certain that ``text`` is a call."""
    call = CallObject(names)
    for end, char in enumerate(text, 1):
        call.feed(char)
        if call.begun:
            return text[:end]
    return ""


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ('{"name": "f", "arguments": {"a": 1}}', '{"name": "f", "arguments": {'),
        ('{"arguments": {"a": 1}, "name": "f"}', '{"arguments": {"a": 1}, "name": "f"'),
        ('{"name": "f"}', '{"name": "f"}'),
        ('{"name": "f", "parameters": null}', '{"name": "f", "parameters": null}'),
        ('{"name": "f", "arguments": "{}", "id": 1}', '{"name": "f", "arguments": "{}"'),
    ],
)
def test_a_call_begins_with_its_name_and_the_begin_of_its_arguments(text: str, until: str) -> None:
    assert begins_after(text) == until


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"name": "f", "arguments": { "a" : 1 } }', '{ "a" : 1 }'),
        ('{"arguments": {"a": [1,\n2]}, "name": "f"}', '{"a": [1,\n2]}'),
        ('{"name": "f", "arguments": {}}', "{}"),
        ('{"name": "f", "id": "x", "type": "function"}', "{}"),
        ('{"name": "f", "arguments": " {\\"a\\": \\"\\u00e9\\"}\\n"}', '{"a": "é"}'),
        ('{"arguments": "{\\"a\\": \\"b\\\\nc\\"}", "name": "f"}', '{"a": "b\\nc"}'),
        ('{"why": {"arguments": 1}, "name": "f", "arguments": {}}', "{}"),
        ('{"name": "f", "arguments": {}, "arguments": {"a": 1}}', "{}"),
    ],
)
def test_arguments_come_out_as_they_were_written(text: str, arguments: str) -> None:
    call, found, end = read(text + "x")
    assert (call.done, call.name, found, end) == (True, "f", arguments, len(text))


@pytest.mark.parametrize(
    "text",
    [
        "[",
        "{}",
        '{"arguments": {}}',
        '{"name": ""}',
        '{"name": 1}',
        '{"name": "a\\nb", "arguments": {}}',
        '{"name": "\\ud800", "arguments": {}}',
        '{"name": "f", "name": "g"}',
        '{"name": "f", "args": {"a": 1}}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": 1}',
        '{"name": "f", "arguments": none}',
        '{"name": "f", "arguments": ""}',
        '{"name": "f", "arguments": "[]"}',
        '{"name": "f", "arguments": "{} {}"}',
        '{"name": "f", "arguments": "{\\"a\\": \\"\\ud800\\"}"}',
        '{"arguments": {}, "parameters": {}, "name": "f"}',
        '{"name" "f"}',
        '{"name": "f";',
        '{"name": "f",}',
    ],
)
def test_what_is_no_call_is_all_held(text: str) -> None:
    call, arguments, end = read(text)
    assert (call.wrong, call.begun, arguments) == (True, False, "")
    assert "".join(call.held) == text[:end]


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "g", "arguments": {}}',
        '{"why": 1, "name": "f", "arguments": {}}',
        '{"city": "Oslo"}',
    ],
)
def test_with_names_given_a_call_is_of_one_of_them_and_has_no_other_key(text: str) -> None:
    assert read(text, {"f"})[0].wrong
    assert begins_after('{"type": "function", "name": "f"}', {"f"})


def test_what_is_wrong_after_the_begin_is_not_read() -> None:
    text = '{"name": "f", "arguments": {"a": 1}, "b" 2}'
    call, arguments, end = read(text)
    assert (call.wrong, call.begun, arguments) == (True, True, '{"a": 1}')
    assert text[end:] == "2}"


def test_only_so_much_is_held_and_the_cut_does_not_matter() -> None:
    fits = '{"arguments": {"a": "%s"}, "name": "f"'
    fits %= "x" * (MOST_HELD - len(fits) + 2)
    assert len(fits) == MOST_HELD
    assert read(fits + "}")[0].done
    longer = fits.replace("x", "xx", 1) + "}"
    for step in (len(longer), 1000, 7):
        call, end = CallObject(None), 0
        while not call.wrong:
            end += call.feed(longer[end : end + step])[1]
        assert (end, call.begun) == (MOST_HELD, False)


def test_nothing_is_held_of_a_call_that_has_begun() -> None:
    call = read('{"name": "f", "arguments": {"a": "' + "x" * 100_000)[0]
    assert len(json.dumps(call.state())) < 100
