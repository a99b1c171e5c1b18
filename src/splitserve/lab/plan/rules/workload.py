"""Whether each value of a study's workload makes sense. Errors name the key's path."""

from splitserve.errors import ConfigError
from splitserve.lab.plan.workload import (
    PROCESSES,
    SOURCES,
    SYNTHETIC,
    TIES,
    TIMED_SOURCES,
    WHOLE,
    Arrivals,
    Corpus,
    Workload,
)
from splitserve.launch.checks import check_value, one_of


def check_workload(workload: Workload) -> None:
    corpus, path = workload.corpus, "workload.corpus"
    one_of(f"{path}.source", corpus.source, SOURCES)
    needs_file = corpus.source != SYNTHETIC
    check_value(
        f"{path}.file",
        corpus.file,
        needs_file == bool(corpus.file),
        f"{'is' if needs_file else 'is not'} needed for source {corpus.source!r}",
    )
    check_positive((f"{path}.requests", corpus.requests))
    for key, number in (
        ("warmup_requests", corpus.warmup_requests),
        ("seed", corpus.seed),
        ("prefix_groups", corpus.prefix_groups),
    ):
        check_value(f"{path}.{key}", number, number >= 0, "must not be negative")
    for key, bands in (
        ("prompt_tokens", corpus.prompt_tokens),
        ("output_tokens", corpus.output_tokens),
    ):
        check_positive(*((f"{path}.{key}.{name}", tokens) for name, tokens in bands.items()))
        different = len(set(bands.values())) == len(bands)
        check_value(f"{path}.{key}", bands, different, "has two names for one length")
    shared = corpus.shared_prefix
    check_value(f"{path}.shared_prefix", shared, 0 <= shared < 1, "must be from 0 to below 1")
    grouped = (shared > 0) == (corpus.prefix_groups > 0)
    check_value(
        f"{path}.prefix_groups",
        corpus.prefix_groups,
        grouped,
        "goes with shared_prefix: both above 0, or neither",
    )
    _check_arrivals(workload.arrivals, corpus)
    if workload.sessions is not None:
        turns, think_s = workload.sessions.turns, workload.sessions.think_s
        check_value(
            "workload.sessions.turns",
            turns,
            turns > 1,
            "must be above 1; leave [workload.sessions] out for single requests",
        )
        check_value("workload.sessions.think_s", think_s, think_s >= 0, "must not be negative")
    heat = workload.sampling.temperature
    check_value("workload.sampling.temperature", heat, heat >= 0, "must not be negative")


def _check_arrivals(arrivals: Arrivals, corpus: Corpus) -> None:
    path = "workload.arrivals"
    one_of(f"{path}.process", arrivals.process, PROCESSES)
    one_of(f"{path}.spread_ties", arrivals.spread_ties, TIES)
    check_positive(
        (f"{path}.cv", arrivals.cv),
        (f"{path}.ramp_to", arrivals.ramp_to),
        (f"{path}.concurrency", arrivals.concurrency),
    )
    closed = arrivals.process == "closed"
    check_value(
        f"{path}.concurrency",
        arrivals.concurrency,
        closed == (arrivals.concurrency is not None),
        "is needed for the process closed, and only there",
    )
    if arrivals.process == "trace" and corpus.source not in TIMED_SOURCES:
        raise ConfigError(
            f"{path}.process: source {corpus.source!r} does not say when requests came; "
            f"use poisson, or a source of {', '.join(TIMED_SOURCES)}"
        )


def check_band(path: str, name: str, bands: dict[str, int], corpus: Corpus) -> None:
    """Raises ConfigError unless the corpus has lengths of that name."""
    whole = () if corpus.source == SYNTHETIC else (WHOLE,)
    one_of(path, name, (*bands, *whole))


def check_positive(*values: tuple[str, float | None]) -> None:
    """Raises ConfigError for the first (path, value) that is there and not above 0."""
    for path, value in values:
        check_value(path, value, value is None or value > 0, "must be positive")


def check_share(path: str, value: float) -> None:
    """Raises ConfigError unless ``value`` is between 0 and 1, both left out."""
    check_value(path, value, 0 < value < 1, "must be between 0 and 1")
