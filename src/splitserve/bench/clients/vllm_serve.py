"""``vllm bench serve`` (vLLM, Apache-2.0), which keeps every request's TTFT and gaps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from splitserve.bench.clients.job import Job, Said
from splitserve.bench.clients.program import found, run_program
from splitserve.errors import UnavailableError

_REGULAR: Final = "1000000"
"""Its burstiness is a gamma's shape: as large a one as this gives equal distances."""


class VllmServe:
    """Implements ``LoadTool``. ``version`` is what it calls itself."""

    def __init__(self, program: str, version: str) -> None:
        self._program = found(program)
        self.name = f"vllm bench serve {version}"

    async def run(self, job: Job) -> Said:
        # Its reader for this form is the one that needs no further packages.
        prompts = job.folder / "prompts-vllm.json"
        prompts.write_bytes(msgspec.json.encode([_conversation(text) for text in job.prompts]))
        result = job.folder / "vllm.json"
        command = [self._program, "bench", "serve", *_flags(job, prompts, result)]
        await run_program(command, job.folder / "vllm.log", {"VLLM_LOGGING_LEVEL": "WARNING"})
        return read_result(result, len(job.prompts))


class _Result(msgspec.Struct):
    ttfts: list[float]
    itls: list[list[float]]
    start_times: list[float]
    output_lens: list[int]
    errors: list[str | None] = []


def read_result(file: Path, requests: int) -> Said:
    """Of ``--save-detailed``. The mean per request is its TPOT: time after the first chunk, by
    tokens less one."""
    try:
        result = msgspec.json.decode(file.read_bytes(), type=_Result)
    except (OSError, msgspec.DecodeError) as error:
        raise UnavailableError(f"vllm bench serve left no result: {error}") from error
    failed = [error for error in result.errors if error]
    if failed or len(result.ttfts) != requests:
        raise UnavailableError(
            f"vllm bench serve: {len(result.ttfts)} of {requests} answers, first error: "
            f"{failed[0] if failed else 'none'}"
        )
    order = sorted(range(requests), key=lambda at: result.start_times[at])
    gaps = tuple(tuple(result.itls[at]) for at in order)
    return Said(
        ttft_s=tuple(result.ttfts[at] for at in order),
        gaps_s=gaps,
        mean_gap_s=tuple(sum(result.itls[at]) / (result.output_lens[at] - 1) for at in order),
    )


def _flags(job: Job, prompts: Path, result: Path) -> Sequence[str]:
    settings = {
        "backend": "openai-chat",
        "base-url": job.url,
        "endpoint": "/v1/chat/completions",
        "model": job.model,
        "tokenizer": str(job.tokenizer),
        "dataset-name": "sharegpt",
        "dataset-path": str(prompts),
        "sharegpt-output-len": str(job.tokens),
        "num-prompts": str(len(job.prompts)),
        "request-rate": str(job.rate),
        "burstiness": _REGULAR,
        "ready-check-timeout-sec": "0",
        "temperature": "0",
        "result-dir": str(result.parent),
        "result-filename": result.name,
    }
    named = [part for name, value in settings.items() for part in (f"--{name}", value)]
    switches = ("ignore-eos", "disable-shuffle", "save-result")
    return [*named, *(f"--{name}" for name in (*switches, "save-detailed", "disable-tqdm"))]


def _conversation(text: str) -> dict[str, object]:
    said = [{"from": "human", "value": text}, {"from": "gpt", "value": "not used"}]
    return {"conversations": said}
