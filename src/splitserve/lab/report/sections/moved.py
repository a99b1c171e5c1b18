"""KV hand-offs against the bytes that they moved."""

from statistics import linear_regression

from splitserve.lab.measure.parts import handoff_s
from splitserve.lab.report import samples
from splitserve.lab.report.blocks import Text
from splitserve.lab.report.plots import TransferFit, Transfers
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.report.sections.arms import TARGET


def transfers(results: StudyResults) -> Transfers | Text:
    """Of the split at the target cell. A request's bytes are its prompt's tokens times what a token
    took on the average of its run: servers count bytes by run, not by request."""
    points = [point for run in samples.of_series(results, TARGET, "B") for point in _handoffs(run)]
    if not points:
        return Text(
            "No plot of hand-offs against KV bytes: it needs a split that tells each request's "
            "hand-off in its answer's metrics, and its bytes on /metrics, as Splitserve's does."
        )
    return Transfers("KV hand-off against KV moved", tuple(points), _fit(points))


def _handoffs(run: RunResult) -> list[tuple[float, float]]:
    tokens = sum(record.prompt_tokens or 0 for record in run.records)
    if not run.kv_bytes or not tokens:
        return []
    told = [(record.prompt_tokens, handoff_s(record)) for record in samples.asked(run)]
    return [
        (run.kv_bytes / tokens * prompt, took_s)
        for prompt, took_s in told
        if prompt is not None and took_s is not None
    ]


def _fit(points: list[tuple[float, float]]) -> TransferFit | None:
    sizes, times = zip(*points, strict=True)
    if len(set(sizes)) < 2:
        return None
    slope, start_s = linear_regression(sizes, times)
    return TransferFit(start_s, 1 / slope) if slope > 0 else None
