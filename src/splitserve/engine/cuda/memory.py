"""How a GPU's memory is shared out, decided once, at the start. Pure."""

from dataclasses import dataclass
from typing import Final

from splitserve.errors import ConfigError

GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes. ``others`` is what other processes and the CUDA context hold, ``work`` what a largest
    step needs, ``graphs`` what captured decode steps will take."""

    total: int
    others: int
    weights: int
    work: int
    graphs: int
    pool: int

    def __str__(self) -> str:
        parts = (
            f"weights {_gib(self.weights)}",
            f"KV pool {_gib(self.pool)}",
            f"a largest step {_gib(self.work)}",
            f"graphs {_gib(self.graphs)}",
            f"others {_gib(self.others)}",
        )
        return f"{', '.join(parts)}, of {_gib(self.total)} GiB"


def plan_memory(
    total: int,
    others: int,
    weights: int,
    work: int,
    graphs: int,
    utilization: float,
    asked: int | None,
) -> MemoryPlan:
    """What this process's share of the GPU leaves for the KV pool, or the ``asked`` bytes.

    Raises ConfigError, with the figures and the cure, when that is nothing or is not there.
    """
    own = weights + work + graphs
    left = min(int(total * utilization), total - others) - own
    plan = MemoryPlan(total, others, weights, work, graphs, left if asked is None else asked)
    if asked is None and left <= 0:
        raise ConfigError(
            f"no GPU memory is left for the KV pool ({plan}): raise gpu_memory_utilization "
            f"({utilization:g}), lower max_num_batched_tokens, or free the GPU"
        )
    if asked is not None and others + own + asked > total:
        raise ConfigError(
            f"a KV pool of {_gib(asked)} GiB does not fit ({plan}): lower kv_cache_memory_bytes"
        )
    return plan


def _gib(nbytes: int) -> str:
    return f"{nbytes / GIB:.1f}"
