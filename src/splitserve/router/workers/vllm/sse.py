"""Server-sent events out of bytes: only ``data:`` lines count, as vLLM sends them."""

from typing import Final

DONE: Final = b"[DONE]"


class DataLines:
    """Bytes in as they arrive, whole payloads out."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Payloads that are complete now, in order; ``DONE`` among them when the stream is over."""
        *lines, self._rest = (self._rest + piece if self._rest else piece).split(b"\n")
        return [line[5:].strip() for line in lines if line.startswith(b"data:")]
