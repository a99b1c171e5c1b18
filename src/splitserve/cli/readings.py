"""Prints what was measured: JSON lines for scripts, aligned lines for people."""

import sys
from collections.abc import Iterable

import msgspec


def print_readings(readings: Iterable[object], as_json: bool) -> None:
    """One line per reading (a dataclass), as soon as it is there."""
    for reading in readings:
        if as_json:
            print(msgspec.json.encode(reading).decode(), flush=True)
        else:
            fields = msgspec.to_builtins(reading)
            print(
                "  ".join(f"{name} {_short(value)}" for name, value in fields.items()), flush=True
            )


def print_progress(text: str) -> None:
    """To stderr, so that stdout holds readings only."""
    print(text, file=sys.stderr, flush=True)


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
