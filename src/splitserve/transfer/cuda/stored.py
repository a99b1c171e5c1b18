"""Tells another thread when the work that the engine has given its GPU so far is done."""

import torch

from splitserve.errors import ConfigError


class StoredMarks:
    """For GPU ``index``."""

    def __init__(self, index: int) -> None:
        """Raises ConfigError when there is no such GPU."""
        if index >= torch.cuda.device_count():
            raise ConfigError(f"there is no cuda:{index}; torch sees {torch.cuda.device_count()}")
        self._device = torch.device("cuda", index)

    def enter(self) -> None:
        """Makes the GPU current in the calling thread, as libraries that copy there need it."""
        torch.cuda.set_device(self._device)
        torch.cuda.current_stream(self._device).synchronize()

    def mark(self) -> "StoredMark":
        """Ends when all is done that the current stream was given so far. Never waits."""
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return StoredMark(event)


class StoredMark:
    """May be asked by another thread."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self._event = event

    def ended(self) -> bool:
        return bool(self._event.query())
