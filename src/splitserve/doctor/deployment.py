"""What a running deployment tells of itself, over HTTP. Any OpenAI-compatible server will do."""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from splitserve.doctor.asking import Answer, ask
from splitserve.doctor.clock import DateHeard, clock_offset, date_seconds
from splitserve.doctor.deployment_advice import deployment_advice
from splitserve.doctor.findings import DeploymentReport
from splitserve.doctor.told import told_by
from splitserve.errors import UnavailableError

DATES: Final = 8
DATE_PAUSE_S: Final = 0.17
"""Together more than a second, and no divisor of one: so they meet different parts of it."""


def examine_deployment(url: str, pause_s: float = DATE_PAUSE_S) -> DeploymentReport:
    """``pause_s`` is between answers that are asked for their Date. Raises UnavailableError when
    nobody answers."""
    url = url.rstrip("/")
    ready = ask(url, "/ready")
    told = told_by(_optional(url, "/metrics").text())
    said, version = ready.json(), _optional(url, "/version").json()
    known = ready.status in (200, 503)
    report = DeploymentReport(
        kind="deployment",
        url=url,
        ready=ready.status == 200 if known else None,
        reason=str(said.get("reason", "")),
        warnings=_lines(said.get("warnings")),
        version=str(version.get("version", "")),
        models=_models(_optional(url, "/v1/models").json().get("data")),
        workers=told.workers,
        links=told.links,
        handoffs=told.handoffs,
        clock=clock_offset(_dates(url, pause_s)),
        advice=(),
    )
    return replace(report, advice=tuple(deployment_advice(report)))


def _optional(url: str, path: str) -> Answer:
    """Empty where there is no such page or no answer to it."""
    nothing = Answer(404, b"", None, 0.0, 0.0)
    try:
        answer = ask(url, path)
    except UnavailableError:
        return nothing
    return answer if answer.status == 200 else nothing


def _dates(url: str, pause_s: float) -> Iterator[DateHeard]:
    for number in range(DATES):
        if number:
            time.sleep(pause_s)
        try:
            answer = ask(url, "/health")
        except UnavailableError:
            continue
        date_s = date_seconds(answer.date)
        if date_s is not None:
            yield DateHeard(date_s, answer.asked_s, answer.heard_s)


def _models(cards: object) -> tuple[str, ...]:
    listed = cards if isinstance(cards, list) else []
    return tuple(str(card.get("id")) for card in listed if isinstance(card, dict))


def _lines(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()
