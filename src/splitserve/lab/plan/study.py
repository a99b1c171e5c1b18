"""A study as written in STUDY.toml: what is asked, of which arms, and by which rules it is decided.

    [study]        the question, and what the result does not speak of
    [model]        which model every arm serves
    [target]       the cell for which the decision is taken
    [slo]          when a request is good
    [[arms]]       single, its rows chunked and proxy, and pd
    [comparison]   same resources, or added capacity
    [workload.*]   the requests (``workload``)
    [[axes]]       one variable at a time, in the order of the brief
    [metrics] [stats] [allowances] [routing] [state] [rollback] [further]
    [budget]

Defaults stand here once. ``read`` reads it, ``checks`` and ``brief`` say what is right in it.
"""

from datetime import datetime
from typing import Final

import msgspec

from splitserve.lab.plan.workload import Workload

SINGLE: Final = "single"
CHUNKED: Final = "chunked"
PROXY: Final = "proxy"
PD: Final = "pd"
FAMILIES = (SINGLE, CHUNKED, PROXY, PD)
"""Two families are compared, single and pd; chunked and proxy are rows of a single arm."""

FULL: Final = "full"
SMOKE: Final = "smoke"
PROFILES = (FULL, SMOKE)
THROUGHPUT: Final = "throughput"
QUESTIONS = ("tail_itl", "ttft", "both", THROUGHPUT)
MEASURED: Final = "measured"
DESK: Final = "desk"
VERIFICATIONS = (MEASURED, "mixed", DESK)
SAME_RESOURCES: Final = "same_resources"
KINDS = (SAME_RESOURCES, "added_capacity")
OF_CAPACITY: Final = "of_capacity"
LOAD_UNITS = ("per_s", OF_CAPACITY)
PROMPT_LEN: Final = "prompt_len"
OUTPUT_CAP: Final = "output_cap"
CONCURRENCY: Final = "concurrency"
PD_RATIO: Final = "pd_ratio"
LAYOUT: Final = "tp_pp_network"
AXES = (PROMPT_LEN, OUTPUT_CAP, CONCURRENCY, PD_RATIO, LAYOUT)
"""In the order in which they are run."""

OUT_OF_SCOPE = (
    "connector_platform_support",
    "model_quality",
    "production_capacity",
    "dependencies",
    "security_review",
)
"""What no study speaks of; a plan may lengthen the list."""

FAULTS = ("timeouts", "kill_prefill", "kill_decode", "slow_link", "kv_pool_full")
CACHE_RESETS = ("salt", "restart", "endpoint")
IN_FLIGHT = ("finish", "retry", "fail")
ITL_RULES = ("tail", "fluidity")
TAIL_RULES = ("auto", "p99", "p95", "max")


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``checked_at`` has a zone. ``adopt`` None: ADOPT is a possible verdict where the plan allows
    it. ``secondary`` goes on with a throughput question although splitting is no answer to it."""

    id: str
    question: str
    checked_at: datetime
    source: str
    verification: str = MEASURED
    experimental: bool = True
    third_party_connector: bool = False
    out_of_scope: tuple[str, ...] = OUT_OF_SCOPE
    profile: str = FULL
    adopt: bool | None = None
    secondary: bool = False


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """None: not named in the plan, read from the servers and compared before the first request."""

    name: str
    revision: str | None = None
    tokenizer: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    max_model_len: int | None = None


class Target(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``prompt`` and ``output`` name lengths of the corpus. ``load`` is requests a second, or a
    share of the single arm's capacity, of which ``capacity_guess_per_s`` then estimates times."""

    prompt: str
    output: str
    load: float
    load_unit: str = "per_s"
    capacity_guess_per_s: float | None = None


class Slo(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``attainment`` is the share of all intended requests that have to be good."""

    ttft_ms: float
    itl_ms: float
    itl_rule: str = "tail"
    attainment: float = 0.99


class Facts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the owner of a running URL says of it, as nothing else does. What the server says too is
    compared with it. ``settings`` are further ones, compared key by key between arms."""

    gpus: int = 0
    cores: int = 0
    prefill: int = 0
    decode: int = 0
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    connector: str | None = None
    connector_version: str | None = None
    proxy: str | None = None
    proxy_version: str | None = None
    max_num_batched_tokens: int | None = None
    model: str | None = None
    revision: str | None = None
    tokenizer: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    max_model_len: int | None = None
    settings: dict[str, str | int | float | bool] = {}


class Arm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A ``topology`` file that the lab starts and stops, or a ``url`` that runs already.

    ``base`` names the single arm that a chunked or proxy row belongs to. ``chunk_tokens`` are the
    values of ``max_num_batched_tokens`` of a chunked row. ``served_as`` is the model's name in
    requests, None: the arm's own. ``api_key_file`` is read at run time and never recorded.
    """

    name: str
    family: str
    topology: str | None = None
    url: str | None = None
    base: str | None = None
    chunk_tokens: tuple[int, ...] = ()
    served_as: str | None = None
    api_key_file: str | None = None
    facts: Facts | None = None


class Comparison(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: str


class Axis(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``values`` of one variable, everything else as in the target: names of lengths, concurrent
    requests, ``"1:3"`` for ``total`` workers, or topology files of the pd arm."""

    name: str
    values: tuple[str | int, ...]
    total: int | None = None


class Metrics(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``quantiles`` over requests, of which ``decided_at`` enters the verdict. ``tail_itl`` is the
    quantile within a request; auto takes the highest that the output's length carries."""

    quantiles: tuple[float, ...] = (0.5, 0.9, 0.95)
    decided_at: float = 0.95
    quantile_method: str = "inverse_cdf"
    failures: str = "plus_inf"
    tail_itl: str = "auto"
    warmup_min_s: float = 30.0
    warmup_rule: str = "mser5"
    drain_s: float = 120.0
    clock: str = "auto"
    max_clock_error_ms: float = 1.0


class Sesoi(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The smallest effects of interest: percentage points, and ratios pd over single."""

    attainment_pp: float = 5.0
    tail_itl_ratio: float = 0.8
    ttft_ratio: float = 0.9
    throughput_ratio: float = 0.95


class Stats(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pairs`` at the target, ``aa_pairs`` of the single arm with itself, ``series_pairs`` at
    every other cell."""

    pairs: int = 8
    aa_pairs: int = 4
    series_pairs: int = 3
    order_seed: int = 0
    alpha: float = 0.05
    sesoi: Sesoi = Sesoi()


class Allowances(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the split may cost. ``output_differs_share`` is of greedy answers given one at a time;
    ``output_differs_load_share`` under load, on top of how often the single arm differs from
    itself."""

    error_pp: float = 0.5
    error_share: float = 0.01
    kv_handoff_p95_ms: float = 150.0
    kv_share_of_ttft: float = 0.3
    kv_failure_share: float = 0.005
    ttft_ratio: float = 1.25
    tail_itl_ratio: float = 1.25
    output_differs_share: float = 0.02
    output_differs_load_share: float = 0.1


class Routing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of the client, and what it does not do again."""

    connect_timeout_s: float = 5.0
    first_timeout_s: float = 60.0
    gap_timeout_s: float = 20.0
    total_timeout_s: float = 300.0
    client_retries: int = 0
    id_header: str = "X-Request-Id"


class State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How runs are kept from each other: what resets the prefix caches, and the rest before."""

    cache_reset: str = "salt"
    settle_s: float = 5.0


class Rollback(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The way back to ``target``, within ``rto_s`` from the order to the first good answer."""

    target: str
    rto_s: float = 600.0
    in_flight: str = "finish"
    equivalence_margin: float = 0.1


class Further(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``goodput_runs`` are the steps of each arm's search for its highest rate, 0 for none;
    ``faults`` are brought about once each, to see whether they are told honestly."""

    goodput_runs: int = 0
    faults: tuple[str, ...] = ()


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``seconds`` for all runs together. ``start_s`` is what one start of an arm is taken for."""

    seconds: float
    start_s: float = 30.0


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    study: Header
    model: Model
    target: Target
    slo: Slo
    arms: tuple[Arm, ...]
    comparison: Comparison
    workload: Workload
    budget: Budget
    axes: tuple[Axis, ...] = ()
    metrics: Metrics = Metrics()
    stats: Stats = Stats()
    allowances: Allowances = Allowances()
    routing: Routing = Routing()
    state: State = State()
    rollback: Rollback | None = None
    further: Further = Further()

    def arm(self, name: str) -> Arm | None:
        return next((arm for arm in self.arms if arm.name == name), None)

    def of_family(self, family: str) -> tuple[Arm, ...]:
        return tuple(arm for arm in self.arms if arm.family == family)

    @property
    def baseline(self) -> Arm:
        """The first single arm: the one compared with, until the tuning runs say otherwise."""
        return self.of_family(SINGLE)[0]

    @property
    def split(self) -> Arm:
        return self.of_family(PD)[0]

    @property
    def may_adopt(self) -> bool:
        """Whether ADOPT is among the verdicts that this plan can end in."""
        return self.study.adopt is not False and why_not_adopt(self) is None


def why_not_adopt(study: Study) -> str | None:
    """The first thing in the plan that rules ADOPT out; None when nothing does."""
    header = study.study
    reasons = (
        (header.verification == DESK, f'study.verification = "{DESK}" measures nothing'),
        (header.verification != MEASURED, "not all of it is measured"),
        (header.profile == SMOKE, f'study.profile = "{SMOKE}" is too short for it'),
        (header.question == THROUGHPUT, "splitting is not claimed to raise throughput"),
        (study.comparison.kind != SAME_RESOURCES, "added capacity is no merit of the split"),
        (study.rollback is None, "there is no [rollback] to prove the way back with"),
    )
    return next((reason for holds, reason in reasons if holds), None)
