"""The report as JSON, for machines: the same values, nothing rounded."""

import math
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Final

import msgspec

from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.sections.definitions import DEFINITIONS

SCHEMA: Final = "report/2"


def json(report: StudyReport) -> bytes:
    """One object. Infinite numbers, which JSON does not have, are the texts "inf" and "-inf";
    a number that does not exist is "nan". A block of a section says its ``kind``, and
    ``definitions`` is the version of what its words mean (section "Definitions")."""
    whole = {
        "schema": SCHEMA,
        "definitions": DEFINITIONS,
        "exit_code": report.verdict.exit_code,
        "report": _plain(report),
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value):
        named = {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
        return {"kind": type(value).__name__.lower(), **named}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return value
