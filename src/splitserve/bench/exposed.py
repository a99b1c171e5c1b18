"""What of a transfer a client can notice, by connector, while a split serves a load.

A prefill worker says of each prompt how long after its first token the last byte of its KV was in
place at the decode worker: most layers have been written while the next ones computed. Every
connector gets the same requests at the same times, in a deployment of its own that starts anew in
every round. Rounds go through the connectors there and back, so that what changes over time changes
for all of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from splitserve.bench.load import LoadPlan, error_of, gaps_of, run_load
from splitserve.bench.quantile import quantile
from splitserve.bench.serve_cases import Case, Served, warm
from splitserve.errors import ConfigError
from splitserve.lab.load.record import RequestRecord
from splitserve.lab.measure.latency import ttft_user
from splitserve.transfer.registry import PACKAGES, connectors_for, create_connector

COMPARED: Final = ("exposed_p50", "ttft_p50", "ttft_p95", "itl_p50", "itl_p95")
"""Fields of ExposedReading, of which there are ratios."""


@dataclass(frozen=True, slots=True)
class ExposedReading:
    """One connector in one round. Milliseconds.

    ``exposed`` is of the ``handoffs``. Of ``untold`` answers there is no such time: they were not
    handed over, or ended before the prefill worker's word of it came.
    """

    connector: str
    round: int
    requests: int
    errors: int
    first_error: str
    handoffs: int
    untold: int
    exposed_p50: float
    exposed_p95: float
    exposed_max: float
    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float


@dataclass(frozen=True, slots=True)
class ConnectorReading:
    """One connector over all rounds, in milliseconds: of ``exposed_p50`` median, smallest and
    largest, of the others the median."""

    connector: str
    rounds: int
    handoffs: int
    exposed_p50: float
    exposed_p50_min: float
    exposed_p50_max: float
    exposed_p95: float
    ttft_p50: float
    ttft_p95: float
    itl_p50: float
    itl_p95: float


@dataclass(frozen=True, slots=True)
class RatioReading:
    """A connector's reading over the first connector's in the same round: median, smallest and
    largest."""

    reading: str
    connector: str
    over: str
    median: float
    min: float
    max: float
    rounds: int


def usable_connectors() -> list[str]:
    """Those between processes, for pools in memory, of which all that they import is here."""
    return [name for name in connectors_for("cpu") if _imports(name)]


def turns_of(connectors: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Each round's number and a connector: there in odd rounds, back in even ones."""
    for number in range(1, rounds + 1):
        for connector in connectors if number % 2 else reversed(connectors):
            yield number, connector


async def measure_exposed(
    served: Served, plan: LoadPlan, connector: str, number: int
) -> ExposedReading:
    """Loads a deployment of ``connector`` that tells per-request metrics, after one request to warm
    it up. Raises UnavailableError when that fails."""
    await warm(served, [Case("exposed", plan.prompt_tokens, plan.max_tokens, 1, 0.0)])
    records = await run_load(served.url, served.model, plan, _unheard)
    return exposed_reading(connector, number, records)


def exposed_reading(
    connector: str, number: int, records: Sequence[RequestRecord]
) -> ExposedReading:
    errors = [error for record in records if (error := error_of(record))]
    whole = [record for record in records if not error_of(record)]
    exposed = [found for record in whole if (found := _exposed_ms(record)) is not None]
    ttfts = [ttft_user(record) * 1e3 for record in whole]
    gaps = [gap * 1e3 for record in whole for gap in gaps_of(record)]
    return ExposedReading(
        connector=connector,
        round=number,
        requests=len(records),
        errors=len(errors),
        first_error=errors[0] if errors else "",
        handoffs=len(exposed),
        untold=len(whole) - len(exposed),
        exposed_p50=quantile(exposed, 0.5),
        exposed_p95=quantile(exposed, 0.95),
        exposed_max=max(exposed, default=math.nan),
        ttft_p50=quantile(ttfts, 0.5),
        ttft_p95=quantile(ttfts, 0.95),
        itl_p50=quantile(gaps, 0.5),
        itl_p95=quantile(gaps, 0.95),
    )


def connector_readings(readings: Sequence[ExposedReading]) -> list[ConnectorReading]:
    """In the order in which the connectors came first."""
    return [
        _over_rounds(connector, [one for one in readings if one.connector == connector])
        for connector in dict.fromkeys(one.connector for one in readings)
    ]


def ratio_readings(readings: Sequence[ExposedReading]) -> list[RatioReading]:
    """Of every other connector to the first one, per field of COMPARED."""
    first, *others = dict.fromkeys(one.connector for one in readings)
    return [_ratio(field, connector, first, readings) for connector in others for field in COMPARED]


def _over_rounds(connector: str, readings: Sequence[ExposedReading]) -> ConnectorReading:
    def median(field: str) -> float:
        return quantile([getattr(one, field) for one in readings], 0.5)

    exposed = [one.exposed_p50 for one in readings]
    return ConnectorReading(
        connector=connector,
        rounds=len(readings),
        handoffs=sum(one.handoffs for one in readings),
        exposed_p50=quantile(exposed, 0.5),
        exposed_p50_min=min(exposed),
        exposed_p50_max=max(exposed),
        exposed_p95=median("exposed_p95"),
        ttft_p50=median("ttft_p50"),
        ttft_p95=median("ttft_p95"),
        itl_p50=median("itl_p50"),
        itl_p95=median("itl_p95"),
    )


def _ratio(
    field: str, connector: str, first: str, readings: Sequence[ExposedReading]
) -> RatioReading:
    of: dict[str, dict[int, float]] = {connector: {}, first: {}}
    for one in readings:
        if one.connector in of:
            of[one.connector][one.round] = getattr(one, field)
    ratios = [
        value / base if (base := of[first][number]) else math.nan
        for number, value in of[connector].items()
    ]
    return RatioReading(
        field, connector, first, quantile(ratios, 0.5), min(ratios), max(ratios), len(ratios)
    )


def _exposed_ms(record: RequestRecord) -> float | None:
    return (record.metrics or {}).get("kv_exposed_ms")


def _imports(name: str) -> bool:
    try:
        create_connector(name)
        import_module(PACKAGES.get(name, __name__))
    except (ConfigError, ImportError):
        return False
    return True


def _unheard(ended: int, total: int, elapsed_s: float) -> None:
    """What is measured was announced; a line per answer would drown it."""
    del ended, total, elapsed_s
