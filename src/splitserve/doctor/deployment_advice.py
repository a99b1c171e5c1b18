"""What to change in a running deployment, from what it tells. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.doctor.findings import Advice, DeploymentReport, RunningLink, RunningWorker
from splitserve.router.workers.record import STALLED_S
from splitserve.transfer.ways import cure

CLOCKS_APART_S: Final = 1.0
FALLBACK_SHARE: Final = 0.01
QUARANTINE_SHARE: Final = 0.25


def deployment_advice(report: DeploymentReport) -> Iterator[Advice]:
    """``report.advice`` is not looked at."""
    yield from _readiness(report)
    for worker in report.workers:
        yield from _worker(worker)
    yield from _slow_links(report.links)
    yield from _handoffs(report)
    yield from _clock(report)


def _readiness(report: DeploymentReport) -> Iterator[Advice]:
    if report.ready is False:
        yield Advice(
            "error",
            "ready",
            f"it does not serve: {report.reason or 'it does not say why'}",
            "look at its workers and their logs",
        )
    elif report.ready is None:
        yield Advice(
            "note",
            "ready",
            "it has no /ready page, so that little is known of it",
            "ask a gateway of splitserve",
        )
    for line in report.warnings:
        yield Advice("warning", "ready", line, "look at that worker's log")


def _worker(worker: RunningWorker) -> Iterator[Advice]:
    if worker.connected and worker.breaker != "closed":
        yield Advice(
            "warning",
            "worker",
            f"{worker.name} failed several times and is left out (breaker {worker.breaker})",
            "look at its log; it is tried again by itself",
        )
    if worker.since_step_s >= STALLED_S:
        yield Advice(
            "warning",
            "worker",
            f"{worker.name} has work and has made no step for {worker.since_step_s:.0f} s",
            "look at its log, and restart it",
        )
    blocks = sum(worker.kv_blocks.values())
    quarantined = worker.kv_blocks.get("quarantined", 0.0)
    if blocks and quarantined / blocks > QUARANTINE_SHARE:
        yield Advice(
            "warning",
            "kv",
            f"{worker.name} has {quarantined / blocks:.0%} of its KV blocks in quarantine: a "
            "writer has neither said that it stopped nor ended",
            "look for a prefill worker that hangs (SIGSTOP, a dead network), and restart it",
        )


def _slow_links(links: Sequence[RunningLink]) -> Iterator[Advice]:
    """The pairs of one kind together."""
    pairs: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for link in links:
        if link.faster:
            kind = link.connector, link.way, link.faster
            pairs[kind].append(f"{link.prefill} to {link.decode}")
    for (connector, way, faster), names in pairs.items():
        yield Advice(
            "warning",
            "slow",
            f"KV goes by {way} (connector {connector}) though {faster} could be taken: "
            f"{', '.join(names)}",
            cure(connector, faster),
        )


def _handoffs(report: DeploymentReport) -> Iterator[Advice]:
    handoffs = report.handoffs
    fallbacks = sum(handoffs.fallbacks.values())
    if not fallbacks or fallbacks <= FALLBACK_SHARE * handoffs.count:
        return
    reasons = ", ".join(
        f"{count:.0f} {reason}" for reason, count in sorted(handoffs.fallbacks.items())
    )
    yield Advice(
        "warning",
        "fallback",
        f"since its start {fallbacks:.0f} steps down the failure ladder beside "
        f"{handoffs.count:.0f} handoffs: {reasons}",
        "each costs a prompt's time again: look at the logs of the workers named there",
    )


def _clock(report: DeploymentReport) -> Iterator[Advice]:
    clock = report.clock
    if clock is not None and abs(clock.offset_s) - clock.error_s > CLOCKS_APART_S:
        yield Advice(
            "warning",
            "clock",
            f"its clock is {clock.offset_s:+.1f} s from this machine's (within "
            f"{clock.error_s:.1f} s): times in logs of both cannot be compared",
            "let both follow NTP (chronyc tracking)",
        )
