"""The lab's own client, in a process of its own as in a study."""

from splitserve.bench.clients.job import Job, Said
from splitserve.errors import UnavailableError
from splitserve.lab.load.driver import Patience
from splitserve.lab.load.record import Outcome, RequestRecord
from splitserve.lab.load.request import Asking, LoadRequest, Message
from splitserve.lab.load.schedule import Due
from splitserve.lab.load.spread.crew import Crew
from splitserve.lab.load.spread.work import Work, work_of
from splitserve.lab.load.wire.exchange import Limits
from splitserve.lab.measure.latency import gaps, time_per_token, ttft_service


class LabClient:
    """Implements ``LoadTool``."""

    def __init__(self, version: str) -> None:
        self.name = f"splitserve lab {version}"

    async def run(self, job: Job) -> Said:
        records: list[RequestRecord] = []
        async with Crew([_work(job)]) as crew:
            crew.begin()
            await crew.records(records.append)
        return said_by(sorted(records, key=lambda record: record.intended_s))


def said_by(records: list[RequestRecord]) -> Said:
    """Times from when each request was sent, as other clients take them."""
    failed = [record for record in records if record.outcome is not Outcome.OK]
    if failed:
        first = failed[0]
        raise UnavailableError(
            f"splitserve lab: {len(failed)} of {len(records)} requests are not complete, first: "
            f"{first.outcome}: {first.error}"
        )
    return Said(
        ttft_s=tuple(ttft_service(record) for record in records),
        gaps_s=tuple(tuple(gaps(record) or ()) for record in records),
        mean_gap_s=tuple(time_per_token(record) or 0.0 for record in records),
    )


def _work(job: Job) -> Work:
    schedule = [Due(at / job.rate, (_request(at, job),)) for at in range(len(job.prompts))]
    return work_of(
        (job.url, {}), Asking(job.model), ("clients", "clients"), Limits(), (Patience(), schedule)
    )


def _request(at: int, job: Job) -> LoadRequest:
    message: Message = {"role": "user", "content": job.prompts[at]}
    return LoadRequest(f"clients-{at}", (message,), job.tokens)
