"""The two configurations, what was fixed, and the methods that were declared before."""

from splitserve.lab.plan import config_diff
from splitserve.lab.plan.config_diff import Config, Scalar
from splitserve.lab.plan.table import Entry, table
from splitserve.lab.report.blocks import Section, Table, Text
from splitserve.lab.report.figure import NOT_MEASURED
from splitserve.lab.report.results import StudyResults


def configurations(results: StudyResults) -> Section:
    """Side by side, and each difference with its class."""
    single, split = _configs(results)
    source = "read back from the servers" if results.configs else "as the plan knows them"
    keys = sorted(single.keys() | split.keys())
    rows = tuple((key, _value(single, key), _value(split, key)) for key in keys)
    found = config_diff.compare(single, split)
    differences = tuple(
        (one.key, _shown(one.left), _shown(one.right), one.kind.value, one.why) for one in found
    )
    count = len(config_diff.confounders(found))
    told = "No difference is a confounder." if not count else f"Confounders: {count}."
    names = (results.plan.baseline.label, results.plan.split.label)
    return Section(
        "The two configurations",
        (
            Table("Differences", ("setting", *names, "class", "why"), differences),
            Text(told, strong=bool(count)),
            Table(f"Effective configurations, {source}", ("setting", *names), rows),
        ),
    )


def fixed(results: StudyResults) -> Section:
    """What is fixed, what may vary and what is recorded, with values."""
    rows = tuple(
        (row.name, _entries(row.fixed), _entries(row.may_vary), _entries(row.recorded))
        for row in table(results.plan, results.seen)
    )
    columns = ("class", "fixed", "may vary", "recorded")
    return Section("Fixed, may vary, recorded", (Table("", columns, rows),))


def methods(results: StudyResults) -> Section:
    """Declared in the plan, which was hashed before the first request."""
    study = results.plan.study
    metrics, stats, effects = study.metrics, study.stats, study.stats.sesoi
    rows = (
        ("plan, SHA-256", results.plan.digest),
        ("percentiles", f"{metrics.quantile_method} (type 1), decided at {metrics.decided_at:g}"),
        ("failures", metrics.failures),
        ("tail ITL", f"{metrics.tail_itl}: {results.slo.rule.value} of each answer's gaps"),
        ("warm-up", f"{metrics.warmup_min_s:g} s at least, {metrics.warmup_rule}"),
        ("drain", f"{metrics.drain_s:g} s at most"),
        ("clocks", f"{metrics.clock}, error at most {metrics.max_clock_error_ms:g} ms"),
        ("pairs", f"{stats.pairs} at the target, {stats.aa_pairs} A/A, {stats.series_pairs} else"),
        ("order", f"interleaved ABBA/BAAB, seed {stats.order_seed}"),
        ("alpha", f"{stats.alpha:g}, Holm over tail ITL and TTFT"),
        (
            "smallest effects of interest",
            f"tail ITL {effects.tail_itl_ratio:g}, TTFT {effects.ttft_ratio:g} (ratios B/A), "
            f"attainment {effects.attainment_pp:g} pp",
        ),
        ("missing stream events", "gaps of a miscounted answer are unknown, not zero"),
    )
    return Section("Methods declared before the run", (Table("", ("item", "value"), rows),))


def _configs(results: StudyResults) -> tuple[Config, Config]:
    return results.configs or (results.plan.baseline.config, results.plan.split.config)


def _value(config: Config, key: str) -> str:
    return _shown(config[key]) if key in config else "absent"


def _shown(value: Scalar) -> str:
    return "none" if value is None else str(value)


def _entries(entries: tuple[Entry, ...]) -> str:
    return "; ".join(
        name if name == "nothing" else f"{name}: {NOT_MEASURED if value is None else value}"
        for name, value in entries
    )
