"""``/metrics`` of a vLLM instance, as Load. Pure.

Only the few lines that matter are read: the page has thousands, and comes several times a second.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from splitserve.protocol.telemetry import KVCounts, Load

DEFAULT_BLOCK_SIZE: Final = 16
UNKNOWN_BLOCKS: Final = 1 << 20
"""Where the page does not tell the pool's size, room is never the reason to send nothing there."""

_CONFIG: Final = b"vllm:cache_config_info"
_USAGE: Final = b"vllm:kv_cache_usage_perc"
_STARTED: Final = b"process_start_time_seconds"

_SUMS: Final[Mapping[bytes, str]] = {
    b"vllm:num_requests_running": "running",
    b"vllm:num_requests_waiting": "waiting",
    b"vllm:iteration_tokens_total_count": "steps",
    b"vllm:num_preemptions_total": "preemptions",
    b"vllm:prefix_cache_hits_total": "hit_tokens",
    b"vllm:prefix_cache_queries_total": "query_tokens",
    b"vllm:nixl_num_failed_transfers_total": "failed_transfers",
}
"""Added up over the engines of one instance."""

_LABEL: Final = re.compile(rb'(num_gpu_blocks|block_size)="(\d+)"')


@dataclass(slots=True)
class Reading:
    """One look at the page. ``blocks`` and ``block_size`` are 0 where it does not tell; ``usage``
    is the share of blocks in use; ``started`` names the process's life, empty if unknown.
    ``failed_transfers`` are those that it wanted and did not get, where it counts them."""

    running: int = 0
    waiting: int = 0
    steps: int = 0
    preemptions: int = 0
    hit_tokens: int = 0
    query_tokens: int = 0
    failed_transfers: int = 0
    usage: float = 0.0
    blocks: int = 0
    block_size: int = 0
    started: str = ""


def read_metrics(page: bytes) -> Reading:
    """Lines that are not as expected count as not there."""
    reading, usages = Reading(), []
    for line in page.split(b"\n"):
        if not line.startswith((b"vllm:", b"process_start")):
            continue
        name = line.partition(b"{")[0].partition(b" ")[0]
        if name in _SUMS:
            key = _SUMS[name]
            setattr(reading, key, getattr(reading, key) + int(_value(line)))
        elif name == _USAGE:
            usages.append(_value(line))
        elif name == _CONFIG:
            labels = {label: int(number) for label, number in _LABEL.findall(line)}
            reading.blocks += labels.get(b"num_gpu_blocks", 0)
            reading.block_size = labels.get(b"block_size", 0)
        elif name == _STARTED:
            reading.started = f"{_value(line):.2f}"
    reading.usage = sum(usages) / len(usages) if usages else 0.0
    return reading


def kv_counts(reading: Reading) -> KVCounts:
    """vLLM tells blocks in use from blocks that are not; what is cached counts as free."""
    total = reading.blocks or UNKNOWN_BLOCKS
    held = min(total, max(0, round(reading.usage * total)))
    return KVCounts(total - held, 0, held, 0, 0, 0)


def load(
    reading: Reading,
    *,
    linked: tuple[str, ...] = (),
    draining: bool = False,
    role: str = "",
    since_step_s: float = 0.0,
) -> Load:
    """``waiting_tokens`` is not on the page: the router knows its own."""
    return Load(
        kv=kv_counts(reading),
        running=reading.running,
        waiting=reading.waiting,
        waiting_tokens=0,
        steps=reading.steps,
        preemptions=reading.preemptions,
        prefix_hit_tokens=reading.hit_tokens,
        prefix_query_tokens=reading.query_tokens,
        linked=linked,
        draining=draining,
        role=role,
        since_step_s=since_step_s,
    )


class StepWatch:
    """Since when an instance has had requests and made no step. A page of an instance that is idle
    may be old: vLLM writes it after steps only."""

    def __init__(self) -> None:
        self._steps = -1
        self._since = 0.0

    def look(self, reading: Reading, *, busy: bool, now: float) -> float:
        """Seconds; 0 unless ``busy``: this gateway has requests there that run."""
        if reading.steps != self._steps or not busy or not reading.running:
            self._steps, self._since = reading.steps, now
        return now - self._since


def _value(line: bytes) -> float:
    try:
        return float(line.rpartition(b" ")[2])
    except ValueError:
        return 0.0
