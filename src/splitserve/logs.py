"""Logging of one process: a line each, with the time in UTC and the process's name."""

import logging
import time
from typing import TextIO

LEVELS = ("debug", "info", "warning", "error")


class _LineFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z prefill-0 INFO splitserve.roles.server: text``."""

    def __init__(self, process: str) -> None:
        super().__init__(
            fmt=f"%(asctime)s.%(msecs)03dZ {process} %(levelname)s %(name)s: %(message)s",
            datefmt="%Y-%m-%dT%H:%M:%S",
        )

    @staticmethod
    def converter(seconds: float | None) -> time.struct_time:
        return time.gmtime(seconds)


def configure(process: str, level: str, stream: TextIO) -> None:
    """Sends this process's log to ``stream``, from ``level`` (one of LEVELS) up.

    Libraries are heard from warning up only. Call once, at the process's start.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_LineFormatter(process))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("splitserve").setLevel(level.upper())
