"""The one check that every connector makes before it touches memory."""

from splitserve.errors import BugError
from splitserve.protocol.memory import Copy


def check_bounds(copy: Copy, source_bytes: int, target_bytes: int) -> None:
    """Raises BugError for a copy that leaves either pool: memory safety is not left to callers."""
    if (
        copy.nbytes < 0
        or not 0 <= copy.source <= source_bytes - copy.nbytes
        or not 0 <= copy.target <= target_bytes - copy.nbytes
    ):
        raise BugError(f"{copy} leaves a pool of {source_bytes} or {target_bytes} bytes")
