"""What a load process is told and what it tells. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, cast

import msgspec

from splitserve.errors import ConfigError
from splitserve.lab.load.driver import Patience
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest, Message
from splitserve.lab.load.schedule import Due
from splitserve.lab.load.wire.exchange import Limits

LENGTH_BYTES: Final = 8
"""The length, big-endian, that precedes a Work on the wire."""


class Work(msgspec.Struct, frozen=True):
    """The load of one process. ``arm`` and ``run`` are what its records say.

    ``headers`` may hold a key: it goes through a pipe, never onto a command line.
    """

    url: str
    headers: dict[str, str]
    asking: Asking
    arm: str
    run: str
    limits: Limits
    patience: Patience
    schedule: tuple["_Due", ...]


class Begin(msgspec.Struct, frozen=True, tag_field="schema", tag="begin/1"):
    """The parent's word to all: the run's start on the host's monotonic clock."""

    origin_s: float


class Ready(msgspec.Struct, frozen=True, tag_field="schema", tag="ready/1"):
    """The process has read its work and waits for Begin."""


class Ended(msgspec.Struct, frozen=True, tag_field="schema", tag="ended/1"):
    """All of its requests have ended, and their records are written."""


class _Request(msgspec.Struct, frozen=True):
    """LoadRequest with its two kinds of prompt apart: a decoder cannot tell them."""

    settings: dict[str, Any]
    ids: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()


class _Due(msgspec.Struct, frozen=True):
    at_s: float
    turns: tuple[_Request, ...]
    warmup: bool


Told = Ready | Ended | RequestRecord

_told = msgspec.json.Decoder(Told)
_work = msgspec.msgpack.Decoder(Work)


def work_of(
    asked: tuple[str, Mapping[str, str]],
    asking: Asking,
    labels: tuple[str, str],
    limits: Limits,
    waiting: tuple[Patience, Sequence[Due]],
) -> Work:
    """``asked`` is URL and headers, ``labels`` arm and run, ``waiting`` patience and schedule."""
    url, headers = asked
    patience, schedule = waiting
    dues = tuple(_Due(due.at_s, tuple(map(_plain, due.turns)), due.warmup) for due in schedule)
    return Work(url, dict(headers), asking, *labels, limits, patience, dues)


def split(work: Work, processes: int) -> list[Work]:
    """``work`` in at most ``processes`` parts, every conversation whole in one of them.

    Neighbours in time go to different parts. All wait for answers as long as one process would.
    """
    dues = sorted(work.schedule, key=lambda due: due.at_s)
    last_s = max((due.at_s for due in dues), default=0.0)
    parts = [dues[at::processes] for at in range(processes)]
    return [
        msgspec.structs.replace(
            work,
            schedule=tuple(part),
            patience=Patience(work.patience.drain_s + last_s - part[-1].at_s, work.patience.late_s),
        )
        for part in parts
        if part
    ]


def schedule_in(work: Work) -> list[Due]:
    """What ``work_of`` was given."""
    return [Due(due.at_s, tuple(map(_whole, due.turns)), due.warmup) for due in work.schedule]


def packed(work: Work) -> bytes:
    """With its length in front."""
    body = msgspec.msgpack.encode(work)
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def unpacked(body: bytes) -> Work:
    """Raises ConfigError for bytes that are no Work."""
    try:
        return _work.decode(body)
    except msgspec.DecodeError as error:
        raise ConfigError(f"this is no work of a load process: {error}") from error


def told_in(line: bytes) -> Told:
    """Raises ConfigError for a line that no load process writes."""
    try:
        return _told.decode(line)
    except msgspec.DecodeError as error:
        raise ConfigError(f"a load process wrote {line[:120]!r}: {error}") from error


def _plain(request: LoadRequest) -> _Request:
    settings = {
        one.name: getattr(request, one.name) for one in fields(request) if one.name != "prompt"
    }
    if request.is_chat:
        return _Request(settings, messages=cast("tuple[Message, ...]", request.prompt))
    return _Request(settings, ids=cast("tuple[int, ...]", request.prompt))


def _whole(plain: _Request) -> LoadRequest:
    settings = plain.settings | {"instead": tuple(plain.settings["instead"])}
    return LoadRequest(prompt=plain.messages or plain.ids, **settings)
