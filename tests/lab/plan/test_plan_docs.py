"""The reference: its example is a plan, and no key is missing from it."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, get_args

import msgspec
from made_plan import ROOT, plan_of

from splitserve.lab.plan.study import Study

TEXT = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")


def keys(kind: type[msgspec.Struct]) -> Iterator[str]:
    """The names of all settings below ``kind``; those of tables are sections there."""
    for field in msgspec.structs.fields(kind):
        inner = [one for one in (field.type, *get_args(field.type)) if is_struct(one)]
        if inner:
            yield from keys(inner[0])
        else:
            yield field.encode_name


def is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def test_the_example_is_a_valid_plan() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    assert plan_of(tomllib.loads(example)).study.may_adopt


def test_every_key_is_in_the_reference() -> None:
    code = " ".join(re.findall(r"`([^`]+)`", TEXT.split("## Keys")[1]))
    named = set(re.findall(r"\w+", code))
    assert [key for key in keys(Study) if key not in named] == []
