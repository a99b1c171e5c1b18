"""What the runs of a study gave, as values. None and empty tuples mean "not measured"."""

from dataclasses import dataclass, field

from splitserve.lab.stats.shares import Count
from splitserve.lab.verdict.rollback import RollbackProof
from splitserve.lab.verdict.rules import Rules


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One valid run of one arm in one cell.

    ``tail_itl_s`` and ``ttft_s``: the plan's quantile over requests, ``math.inf`` where failures
    reach it. ``attained``: good of all intended; ``errors``: failed of all intended.
    ``first_gap_s``: the same quantile of first token to second. ``throughput``: output tokens per
    second in the steady window.
    """

    tail_itl_s: float
    ttft_s: float
    attained: Count
    errors: Count
    first_gap_s: float | None = None
    throughput: float | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """Two valid runs with the same requests; ``position``: when, in runs from the start."""

    a: RunFigures
    b: RunFigures
    position: float


@dataclass(frozen=True, slots=True)
class Handoffs:
    """KV transfers of the split arm in the target cell.

    ``p95_s``: one per run, infinite where failures reach it. ``failed``: failed or expired ones of
    all, one count per run. ``share_of_ttft``: median over requests. ``local_tokens``: prompt tokens
    that decode computed itself, mean per request; more than ``block_tokens`` means KV was not used.
    """

    p95_s: tuple[float, ...]
    failed: tuple[Count, ...]
    share_of_ttft: float | None = None
    local_tokens: float | None = None
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class Checks:
    """Yes/no facts of the study; None where the check was not made."""

    preflight: bool | None = None
    plan_unchanged: bool | None = None
    captured: bool | None = None
    environment_unchanged: bool | None = None
    retries_disclosed: bool | None = None


@dataclass(frozen=True, slots=True)
class Signals:
    """Observations beside the figures, in the target cell unless said otherwise.

    ``cached_*``: prompt tokens found in a cache, share. ``tokens_per_event_*``: means; ``rebinned``
    says that tail ITL was taken on the coarser events of both. ``recomputed_share``: of earlier
    turns' tokens, computed anew by prefill. ``frontend_cpu``: of what the API server or proxy may
    use; ``frontend_share``: of TTFT spent on tokenising and parsing. ``*_busy``: utilisation.
    ``start_matters``: the effect differs by deployment start. ``outputs_differ``: greedy answers
    that are not the same in both arms, given one at a time; ``outputs_differ_under_load`` in the
    target's pairs, ``outputs_differ_control`` in those of the single arm with itself.
    """

    cached_a: float | None = None
    cached_b: float | None = None
    tokens_per_event_a: float | None = None
    tokens_per_event_b: float | None = None
    rebinned: bool = False
    recomputed_share: float | None = None
    frontend_cpu: float | None = None
    frontend_share: float | None = None
    prefill_busy: float | None = None
    decode_busy: float | None = None
    decode_preemptions: int | None = None
    decode_kv_usage: float | None = None
    start_matters: bool | None = None
    outputs_differ: Count | None = None
    outputs_differ_under_load: Count | None = None
    outputs_differ_control: Count | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """A study. Each series is pairs (first, second) in the order run:

    ``target`` single/split in the cell of the decision; ``control`` single/single; ``chunked``
    single/best chunk size and ``chunked_split`` chunk size/split on the same shards;
    ``passthrough_split`` single behind the proxy/split; ``short`` and ``hard`` single/split with
    short prompts, and with long ones at the highest concurrency; ``closed_loop`` single/split at
    equal concurrency; ``second_start`` split, first start/second start.
    """

    rules: Rules
    checks: Checks = field(default_factory=Checks)
    target: tuple[Pair, ...] = ()
    control: tuple[Pair, ...] = ()
    chunked: tuple[Pair, ...] = ()
    chunked_split: tuple[Pair, ...] = ()
    passthrough_split: tuple[Pair, ...] = ()
    short: tuple[Pair, ...] = ()
    hard: tuple[Pair, ...] = ()
    closed_loop: tuple[Pair, ...] = ()
    second_start: tuple[Pair, ...] = ()
    handoffs: Handoffs | None = None
    signals: Signals = field(default_factory=Signals)
    rollback: RollbackProof | None = None
