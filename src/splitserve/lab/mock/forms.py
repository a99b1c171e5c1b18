"""Cases on how a stream is written down: the same answer in every legal form."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from splitserve.lab.load.record import Outcome
from splitserve.lab.mock.case import (
    DONE,
    STREAM_HEAD,
    Case,
    Piece,
    chunked,
    completion,
    event,
    script_of,
    told,
    total,
)
from splitserve.lab.mock.script import Ending, Script

_WORDS: Final = ("a", " b", " \u2028 c", " \U0001f600", " id: x")
_TEXT: Final = "".join(_WORDS)
_COMMENT: Final = b": keep-alive\n\n"
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n%b\r\n\r\n"


def _answer() -> list[Piece]:
    """Five tokens in five events, the finish with the last, usage, end."""
    words = [
        (event(completion(word, 1, "length" if word is _WORDS[-1] else None)), 1) for word in _WORDS
    ]
    return [*words, (total(len(_WORDS)), 0), (DONE, 0)]


def _whole(name: str, pieces: Sequence[Piece], script: Script | None = None) -> Case:
    script = script or script_of(_datas(pieces))
    return replace(
        told(name, pieces, script, Outcome.OK),
        text=_TEXT,
        finish_reason="length",
        output_tokens=len(_WORDS),
        forced_tokens=len(_WORDS),
    )


def _datas(pieces: Sequence[Piece]) -> list[bytes]:
    return [data for data, _ in pieces]


def _rewritten(name: str, old: bytes, new: bytes) -> Case:
    return _whole(name, [(data.replace(old, new), count) for data, count in _answer()])


def _by_bytes() -> Case:
    pieces: list[Piece] = []
    for data, count in _answer():
        pieces += [(data[at : at + 1], count * (at == len(data) - 1)) for at in range(len(data))]
    return _whole("split at every byte", pieces, script_of(_datas(pieces), pace_s=0.0))


def _joined() -> Case:
    """Two events in one packet are two events of one time."""
    words = _answer()
    pairs = [(words[0][0] + words[1][0], 0), (words[2][0] + words[3][0], 0), *words[4:]]
    case = _whole("several events in one packet", pairs)
    return replace(case, tokens=((1, 1), (1, 1), (2, 1), (2, 1), (3, 1)), answer=1)


def _halves() -> Case:
    """Every event cut in the middle, wherever that is."""
    pieces: list[Piece] = []
    for data, count in _answer():
        middle = len(data) // 2
        pieces += [(data[:middle], 0), (data[middle:], count)]
    return _whole("every event in two packets", pieces)


def _two_lines() -> Case:
    """A JSON text may go over several data lines."""
    return _rewritten("several data lines", b',"choices"', b'\ndata: ,\ndata:\ndata:"choices"')


def _with_the_head() -> Case:
    first, *others = _answer()
    script = script_of(_datas(others), head=STREAM_HEAD + chunked(first[0]))
    case = _whole("head and first event in one packet", others, script)
    return replace(case, tokens=((0, first[1]), *case.tokens), answer=0)


def form_cases() -> list[Case]:
    """One case per form."""
    plain = _answer()
    fields = b"id: 1\nretry: 10\nevent: message\nunknown: x\nlonely\ndata:"
    return [
        _whole("plain", plain),
        _rewritten("CRLF", b"\n", b"\r\n"),
        _rewritten("CR", b"\n", b"\r"),
        _rewritten("no blank after the colon", b"data: ", b"data:"),
        _rewritten("id, retry, event and unknown fields", b"data:", fields),
        _whole("keep-alive while prefilling", [(_COMMENT, 0), (_COMMENT, 0), *plain]),
        _whole(
            "keep-alive while decoding",
            [piece for word in plain for piece in ((_COMMENT, 0), word)],
        ),
        _whole("byte order mark", [(b"\xef\xbb\xbf" + plain[0][0], 1), *plain[1:]]),
        _whole("no empty line at the end", [*plain[:-1], (b"data: [DONE]", 0)]),
        _two_lines(),
        _by_bytes(),
        _joined(),
        _halves(),
        _with_the_head(),
        *_framings(),
    ]


def _framings() -> list[Case]:
    """The HTTP body's end in every form."""
    plain = _answer()
    datas = _datas(plain)
    sized = _HEAD % b"Content-Length: %d" % sum(len(data) for data in datas)
    until_close = _HEAD % b"Connection: close"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    closing = script_of(datas[:-1], last=b"", ending=Ending.CLOSE)
    return [
        _whole("body with a length", plain, script_of(datas, head=sized, frame=bytes, last=b"")),
        _whole(
            "body until close",
            plain,
            script_of(datas, head=until_close, frame=bytes, last=b"", ending=Ending.CLOSE),
        ),
        _whole("interim response first", plain, script_of(datas, head=early + STREAM_HEAD)),
        _whole("finish, no [DONE]", plain[:-1]),
        _whole("finish, no [DONE], closed", plain[:-1], closing),
    ]
