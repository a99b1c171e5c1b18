"""Whether each value of a study, by itself, makes sense. Errors name the key's path."""

from collections.abc import Iterable

from splitserve.errors import ConfigError
from splitserve.lab.plan.rules.workload import (
    check_band,
    check_positive,
    check_share,
    check_workload,
)
from splitserve.lab.plan.study import (
    CACHE_RESETS,
    FAULTS,
    IN_FLIGHT,
    ITL_RULES,
    KINDS,
    LOAD_UNITS,
    OF_CAPACITY,
    OUT_OF_SCOPE,
    PROFILES,
    QUESTIONS,
    TAIL_RULES,
    VERIFICATIONS,
    Header,
    Metrics,
    Slo,
    Stats,
    Study,
    Target,
)
from splitserve.lab.plan.workload import Corpus
from splitserve.launch.checks import check_value, one_of

FEWEST_PAIRS = 3
"""With fewer the interval between runs says nothing."""

MOST_PAIRS = 1000
LEAST_LOAD, MOST_LOAD = 0.001, 1_000_000
"""Requests a second, or shares of a capacity. What lies outside is a slip of the pen."""


def check_study(study: Study) -> None:
    """Raises ConfigError that names the first wrong value."""
    _check_header(study.study)
    for key, text in _texts(study):
        check_value(key, text, bool(text.strip()), "must not be empty")
    _check_target(study.target, study.workload.corpus)
    _check_slo(study.slo)
    one_of("comparison.kind", study.comparison.kind, KINDS)
    check_workload(study.workload)
    _check_metrics(study.metrics)
    _check_stats(study.stats)
    _check_rules(study)
    _check_limits(study)


def _texts(study: Study) -> Iterable[tuple[str, str]]:
    header = study.study
    yield from (("study.id", header.id), ("study.source", header.source))
    yield from (("model.name", study.model.name), ("routing.id_header", study.routing.id_header))


def _check_header(header: Header) -> None:
    one_of("study.question", header.question, QUESTIONS)
    one_of("study.verification", header.verification, VERIFICATIONS)
    one_of("study.profile", header.profile, PROFILES)
    if header.checked_at.tzinfo is None:
        raise ConfigError(
            "study.checked_at: a time without a zone is no date of a check; "
            "add the offset, as in 2026-11-30T09:00:00+09:00"
        )
    missing = [topic for topic in OUT_OF_SCOPE if topic not in header.out_of_scope]
    if missing:
        raise ConfigError(
            f"study.out_of_scope: no study speaks of {missing[0]}; "
            "the list may be lengthened, not shortened"
        )


def _check_target(target: Target, corpus: Corpus) -> None:
    check_band("target.prompt", target.prompt, corpus.prompt_tokens, corpus)
    check_band("target.output", target.output, corpus.output_tokens, corpus)
    one_of("target.load_unit", target.load_unit, LOAD_UNITS)
    for key, per_s in (
        ("load", target.load),
        ("capacity_guess_per_s", target.capacity_guess_per_s),
    ):
        right = per_s is None or LEAST_LOAD <= per_s <= MOST_LOAD
        check_value(f"target.{key}", per_s, right, f"must be from {LEAST_LOAD} to {MOST_LOAD}")
    if target.load_unit == OF_CAPACITY:
        check_value("target.load", target.load, target.load < 1, "must be below 1, the capacity")
        if target.capacity_guess_per_s is None:
            raise ConfigError(
                "target.capacity_guess_per_s: missing; the load is a share of a capacity that is "
                "not known yet, and times cannot be estimated; guess it in requests a second"
            )


def _check_slo(slo: Slo) -> None:
    check_positive(
        ("slo.ttft_ms", slo.ttft_ms),
        ("slo.itl_ms", slo.itl_ms),
    )
    one_of("slo.itl_rule", slo.itl_rule, ITL_RULES)
    check_share("slo.attainment", slo.attainment)


def _check_metrics(metrics: Metrics) -> None:
    check_value(
        "metrics.quantiles", metrics.quantiles, bool(metrics.quantiles), "must not be empty"
    )
    for number, quantile in enumerate(metrics.quantiles):
        check_share(f"metrics.quantiles[{number}]", quantile)
    rising = all(a < b for a, b in zip(metrics.quantiles, metrics.quantiles[1:], strict=False))
    check_value("metrics.quantiles", metrics.quantiles, rising, "must rise")
    decided = metrics.decided_at in metrics.quantiles
    check_value(
        "metrics.decided_at", metrics.decided_at, decided, "must be one of metrics.quantiles"
    )
    one_of("metrics.quantile_method", metrics.quantile_method, ("inverse_cdf",))
    one_of("metrics.failures", metrics.failures, ("plus_inf",))
    one_of("metrics.tail_itl", metrics.tail_itl, TAIL_RULES)
    one_of("metrics.warmup_rule", metrics.warmup_rule, ("mser5", "fixed"))
    one_of("metrics.clock", metrics.clock, ("auto", "C0", "C1", "C2", "C3"))
    check_positive(
        ("metrics.drain_s", metrics.drain_s),
        ("metrics.max_clock_error_ms", metrics.max_clock_error_ms),
    )
    least_s = metrics.warmup_min_s
    check_value("metrics.warmup_min_s", least_s, least_s >= 0, "must not be negative")


def _check_stats(stats: Stats) -> None:
    for key, pairs, least, why in (
        ("pairs", stats.pairs, FEWEST_PAIRS, "runs are the unit, and fewer have no interval"),
        ("series_pairs", stats.series_pairs, FEWEST_PAIRS, "fewer have no interval"),
        ("aa_pairs", stats.aa_pairs, 2, "they are the noise that an effect has to exceed"),
    ):
        right = least <= pairs <= MOST_PAIRS
        check_value(f"stats.{key}", pairs, right, f"must be from {least} to {MOST_PAIRS}; {why}")
    check_value("stats.order_seed", stats.order_seed, stats.order_seed >= 0, "must not be negative")
    check_value(
        "stats.alpha", stats.alpha, 0 < stats.alpha <= 0.1, "must be above 0 and at most 0.1"
    )
    for key, ratio in (
        ("tail_itl_ratio", stats.sesoi.tail_itl_ratio),
        ("ttft_ratio", stats.sesoi.ttft_ratio),
        ("throughput_ratio", stats.sesoi.throughput_ratio),
    ):
        check_share(f"stats.sesoi.{key}", ratio)
    points = stats.sesoi.attainment_pp
    check_value(
        "stats.sesoi.attainment_pp", points, 0 < points < 100, "must be above 0 and below 100"
    )


def _check_rules(study: Study) -> None:
    one_of("state.cache_reset", study.state.cache_reset, CACHE_RESETS)
    check_value(
        "state.settle_s", study.state.settle_s, study.state.settle_s >= 0, "must not be negative"
    )
    retries = study.routing.client_retries
    check_value(
        "routing.client_retries",
        retries,
        retries == 0,
        "must be 0; a retry of the client would hide an error",
    )
    for number, fault in enumerate(study.further.faults):
        one_of(f"further.faults[{number}]", fault, FAULTS)
    runs = study.further.goodput_runs
    check_value("further.goodput_runs", runs, 0 <= runs <= 100, "must be from 0 to 100")
    if study.rollback is not None:
        one_of("rollback.in_flight", study.rollback.in_flight, IN_FLIGHT)
        check_positive(("rollback.rto_s", study.rollback.rto_s))
        check_share("rollback.equivalence_margin", study.rollback.equivalence_margin)


def _check_limits(study: Study) -> None:
    routing, allowed = study.routing, study.allowances
    check_positive(
        ("routing.connect_timeout_s", routing.connect_timeout_s),
        ("routing.first_timeout_s", routing.first_timeout_s),
        ("routing.gap_timeout_s", routing.gap_timeout_s),
        ("routing.total_timeout_s", routing.total_timeout_s),
        ("budget.seconds", study.budget.seconds),
        ("allowances.kv_handoff_p95_ms", allowed.kv_handoff_p95_ms),
    )
    start_s = study.budget.start_s
    check_value("budget.start_s", start_s, start_s >= 0, "must not be negative")
    check_share("allowances.error_share", allowed.error_share)
    check_share("allowances.kv_share_of_ttft", allowed.kv_share_of_ttft)
    check_share("allowances.kv_failure_share", allowed.kv_failure_share)
    points = allowed.error_pp
    check_value("allowances.error_pp", points, 0 < points < 100, "must be above 0 and below 100")
    for key, differs in (
        ("output_differs_share", allowed.output_differs_share),
        ("output_differs_load_share", allowed.output_differs_load_share),
    ):
        check_value(f"allowances.{key}", differs, 0 <= differs < 1, "must be from 0 to below 1")
    for key, ratio in (
        ("ttft_ratio", allowed.ttft_ratio),
        ("tail_itl_ratio", allowed.tail_itl_ratio),
    ):
        check_value(f"allowances.{key}", ratio, ratio >= 1, "must be 1 or more: pd over single")
