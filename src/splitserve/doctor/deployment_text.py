"""A running deployment as lines for a terminal. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.doctor.findings import ClockOffset, DeploymentReport, RunningLink, RunningWorker
from splitserve.doctor.table import table
from splitserve.launch.sizes import format_size

_READY: Final = {True: "yes", False: "no", None: "it does not say"}


def deployment_lines(report: DeploymentReport) -> Iterator[str]:
    handoffs = report.handoffs
    yield from table(
        [
            ("url", report.url),
            ("ready", f"{_READY[report.ready]}{f': {report.reason}' if report.reason else ''}"),
            ("version", report.version or "it does not say"),
            ("models", ", ".join(report.models) or "it does not say"),
            ("clock", _clock(report.clock)),
            (
                "handoffs",
                f"{handoffs.count:.0f} with {format_size(handoffs.kv_bytes)}, "
                f"{handoffs.exposed_ms:.1f} ms exposed on average",
            ),
            ("fallbacks", f"{sum(handoffs.fallbacks.values()):.0f}"),
        ]
    )
    if report.workers:
        yield ""
        titles = ("worker", "connected", "breaker", "running", "waiting", "KV blocks")
        yield from table([titles, *map(_worker, report.workers)])
    if report.links:
        yield ""
        yield from table([("from", "to", "connector", "way"), *map(_link, report.links)])


def _link(link: RunningLink) -> Sequence[str]:
    way = link.way or "it does not say"
    slow = f" ({link.faster} could be taken)" if link.faster else ""
    return (link.prefill, link.decode, link.connector, way + slow)


def _clock(clock: ClockOffset | None) -> str:
    if clock is None:
        return "it does not tell the time"
    return f"{clock.offset_s:+.2f} s from this machine's, within {clock.error_s:.2f} s"


def _worker(worker: RunningWorker) -> Sequence[str]:
    blocks = ", ".join(f"{count:.0f} {state}" for state, count in worker.kv_blocks.items() if count)
    return (
        worker.name,
        "yes" if worker.connected else "no",
        worker.breaker,
        f"{worker.running:.0f}",
        f"{worker.waiting:.0f}",
        blocks,
    )
