"""The client's self-test: every legal form, every content, every failure, against the mock server.

A case passes when outcome, tokens per event, text, counts and reasons are what the script sent, and
every token's time is the send's own time to within TOLERANCE_S, never before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from splitserve.clock import Clock, monotonic
from splitserve.lab.load.client import Labels, LoadClient
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest
from splitserve.lab.load.wire.answer import digest_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.load.wire.target import resolve
from splitserve.lab.mock.case import Case
from splitserve.lab.mock.contents import content_cases
from splitserve.lab.mock.faults import LIMITS, fault_cases
from splitserve.lab.mock.forms import form_cases
from splitserve.lab.mock.script import Played
from splitserve.lab.mock.server import MockServer

TOLERANCE_S: Final = 0.001
ATTEMPTS: Final = 3
"""A case that is right but late is tried again: the machine may have been busy elsewhere. How often
is part of the result."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """``faults`` are what was wrong, in words; ``worst_s`` is the largest time error of a token in
    the attempt that counts, 0 without tokens; late if over TOLERANCE_S."""

    name: str
    faults: tuple[str, ...]
    worst_s: float
    attempts: int

    @property
    def exact(self) -> bool:
        """All but the times is right."""
        return not self.faults

    @property
    def passed(self) -> bool:
        return self.exact and 0 <= self.worst_s <= TOLERANCE_S


def all_cases() -> list[Case]:
    """Names are unique."""
    return [*form_cases(), *content_cases(), *fault_cases()]


async def run_conformance(
    cases: Sequence[Case],
    limits: Limits = LIMITS,
    clock: Clock = monotonic,
    attempts: int = ATTEMPTS,
) -> list[CaseResult]:
    """Runs ``cases`` one after the other against a server of its own, some seconds in all.

    Cases of faults need ``LIMITS``; all others only need enough.
    """
    by_name = {case.name.replace(" ", "-"): case for case in cases}
    async with MockServer(lambda request_id, _: by_name[request_id].script, clock) as server:
        labels = Labels("mock", "conformance", clock())
        target = await resolve(server.url)
        client = LoadClient(target, Asking("mock"), labels, limits, clock)
        try:
            return [
                await _result(client, server, labels, case, attempts) for case in by_name.values()
            ]
        finally:
            client.close()


async def _result(
    client: LoadClient, server: MockServer, labels: Labels, case: Case, attempts: int
) -> CaseResult:
    request_id = case.name.replace(" ", "-")
    for attempt in range(1, attempts + 1):
        request = LoadRequest(
            request_id, (101, 102), case.forced_tokens or 16, forced=case.forced_tokens is not None
        )
        record = await client.send(request, client.now())
        result = CaseResult(
            case.name,
            tuple(faults_of(case, record)),
            worst_error(case, record, server.played[request_id], labels.origin_s),
            attempt,
        )
        if result.passed or not result.exact:
            break
    return result


def faults_of(case: Case, record: RequestRecord) -> list[str]:
    """What in ``record`` is not as ``case`` says, times apart."""
    found = {
        "outcome": (record.outcome, case.outcome),
        "tokens": (
            [count for _, count in record.events if count],
            [count for _, count in case.tokens],
        ),
        "text": (record.digest, digest_of(case.text)),
        "counting": (record.counting, case.counting),
        "finish_reason": (record.finish_reason, case.finish_reason),
        "output_tokens": (record.output_tokens, case.output_tokens),
        "status": (record.status, case.status),
        "has an answer": (record.answer_s is not None, case.answer is not None),
    }
    faults = [
        f"{name} is {got}, not {wanted}" for name, (got, wanted) in found.items() if got != wanted
    ]
    if case.error and record.error != case.error:
        faults.append(f"error is {record.error!r}, not {case.error!r}")
    return faults


def worst_error(case: Case, record: RequestRecord, played: Played, origin_s: float) -> float:
    """The time error of largest size, in seconds: received less sent. 0 when counts differ, which
    is a fault of its own."""
    times = [t_s + origin_s for t_s, count in record.events if count]
    sends = [played.sent_s[send] for send, _ in case.tokens if send < len(played.sent_s)]
    errors = [got - sent for got, sent in zip(times, sends, strict=False)]
    if record.answer_s is not None and case.answer is not None:
        errors.append(record.answer_s + origin_s - played.sent_s[case.answer])
    return max(errors, key=lambda error: (error < 0, abs(error)), default=0.0)


def report_of(results: Sequence[CaseResult]) -> str:
    """One line per case, and a last one that sums up."""
    lines = [_line(result) for result in results]
    passed = sum(result.passed for result in results)
    worst_ms = max((result.worst_s for result in results), default=0.0) * 1e3
    return "\n".join(
        [*lines, f"{passed} of {len(results)} passed; largest time error {worst_ms:.3f} ms"]
    )


def _line(result: CaseResult) -> str:
    word = "ok  " if result.passed else "FAIL"
    tries = f", attempt {result.attempts}" if result.attempts > 1 else ""
    faults = "".join(f"\n     {fault}" for fault in result.faults)
    return f"{word} {result.name} ({result.worst_s * 1e3:.3f} ms{tries}){faults}"
