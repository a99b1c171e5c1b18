"""The two configurations, what was fixed, and the methods that were declared before."""

from collections.abc import Mapping
from typing import Final

from splitserve.lab.plan import config_diff
from splitserve.lab.plan.config_diff import Config, Scalar
from splitserve.lab.plan.table import Entry, table
from splitserve.lab.report.blocks import Points, Section, Table, Text
from splitserve.lab.report.figure import NOT_MEASURED
from splitserve.lab.report.results import StudyResults
from splitserve.lab.report.sections.words import TAILS, plainly

NOTHING: Final = "nothing"

ELSEWHERE: Final[Mapping[str, str]] = {
    "software.configuration diff": "section 4",
    "workload.TTFT": "section 7",
    "workload.ITL": "section 7",
    "workload.tail ITL": "section 7",
    "workload.completion rate": "section 7",
    "workload.finish reasons": "requests.jsonl of each run",
    "workload.realised rate": "requests.jsonl of each run",
    "routing.request id": "requests.jsonl of each run",
    "routing.retry reasons": "section 14",
}
"""Where the report, or the study's folder, has what was recorded."""


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
            Table(f"Effective configurations, {source}", ("setting", *names), rows, folded=True),
        ),
    )


def fixed(results: StudyResults) -> Section:
    """What is fixed, what may vary and what is recorded, with values."""
    rows = tuple(
        (row.name, _entries(row.fixed), _entries(row.may_vary), _entries(row.recorded))
        for row in table(results.plan, {**ELSEWHERE, **_handoffs(results), **results.seen})
    )
    columns = ("class", "fixed", "may vary", "recorded")
    return Section("Fixed, may vary, recorded", (Table("", columns, rows),))


def _handoffs(results: StudyResults) -> dict[str, str]:
    return {"routing.KV transfer time": "section 7"} if results.evidence.handoffs else {}


def methods(results: StudyResults) -> Section:
    """Declared in the plan, which was hashed before the first request."""
    study = results.plan.study
    metrics, stats, effects = study.metrics, study.stats, study.stats.sesoi
    rows = (
        ("plan, SHA-256", results.plan.digest),
        ("percentiles", plainly(metrics.quantile_method)),
        ("decided at", f"p{100 * metrics.decided_at:g} over the requests of a run"),
        ("failures", plainly(metrics.failures)),
        ("tail ITL", TAILS[results.slo.rule]),
        ("warm-up", f"{metrics.warmup_min_s:g} s at least, {plainly(metrics.warmup_rule)}"),
        ("drain", f"{metrics.drain_s:g} s at most"),
        ("clocks", f"{plainly(metrics.clock)}, error at most {metrics.max_clock_error_ms:g} ms"),
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
    return "none" if value in (None, "", "[]") else str(value)


def _entries(entries: tuple[Entry, ...]) -> Points:
    """What is known, one a line; what nobody told stands together at the end."""
    known = [f"{name}: {value}" for name, value in entries if value is not None]
    unknown = [name for name, value in entries if value is None and name != NOTHING]
    told = [*known, f"{NOT_MEASURED}: {', '.join(unknown)}"] if unknown else known
    return Points(tuple(told) or (NOTHING,))
