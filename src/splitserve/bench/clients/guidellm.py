"""GuideLLM (vLLM project, Apache-2.0), which keeps of every request its first and last token."""

from typing import Final

import msgspec

from splitserve.bench.clients.job import Job, Said
from splitserve.bench.clients.program import found, run_program
from splitserve.errors import UnavailableError

_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class GuideLlm:
    """Implements ``LoadTool``. ``version`` is what it calls itself."""

    def __init__(self, program: str, version: str) -> None:
        self._program = found(program)
        self.name = f"GuideLLM {version}"

    async def run(self, job: Job) -> Said:
        prompts = job.folder / "prompts-guidellm.jsonl"
        prompts.write_bytes(b"".join(_line(text, job.tokens) for text in job.prompts))
        result = job.folder / "guidellm.json"
        command = [
            *(self._program, "run", "--disable-progress"),
            *("--backend", f"kind=openai_http,target={job.url},model={job.model}"),
            *("--profile", f"kind=constant,rate={job.rate}"),
            *("--constraint", f"kind=max_requests,count={len(job.prompts)}"),
            *("--data", f"kind=json_file,path={prompts}"),
            *("--tokenizer", f"kind=hf_auto,model={job.tokenizer}"),
            *("--output", f"kind=json,path={result}"),
        ]
        await run_program(command, job.folder / "guidellm.log", _OFFLINE)
        try:
            return read_result(result.read_bytes())
        except OSError as error:
            raise UnavailableError(f"GuideLLM left no result: {error}") from error


class _Timings(msgspec.Struct):
    request_start: float


class _Info(msgspec.Struct):
    timings: _Timings


class _Request(msgspec.Struct):
    info: _Info
    time_to_first_token_ms: float
    inter_token_latency_ms: float


class _FailedInfo(msgspec.Struct):
    error: str | None = None


class _Failed(msgspec.Struct):
    info: _FailedInfo


class _Requests(msgspec.Struct):
    successful: list[_Request]
    errored: list[_Failed] = []


class _Benchmark(msgspec.Struct):
    requests: _Requests


class _Report(msgspec.Struct):
    benchmarks: list[_Benchmark]


def read_result(report: bytes) -> Said:
    """Of its JSON report. Raises UnavailableError where requests failed.

    It is not asked for all: version 0.8.1 sometimes leaves out one that was answered.
    """
    try:
        requests_of = msgspec.json.decode(report, type=_Report).benchmarks[0].requests
    except (msgspec.DecodeError, IndexError) as error:
        raise UnavailableError(f"GuideLLM's report is in another form: {error}") from error
    failed = [one.info.error for one in requests_of.errored]
    if failed or not requests_of.successful:
        raise UnavailableError(f"GuideLLM: {len(failed)} requests failed, first: {failed[:1]}")
    ordered = sorted(requests_of.successful, key=lambda one: one.info.timings.request_start)
    return Said(
        ttft_s=tuple(one.time_to_first_token_ms / 1e3 for one in ordered),
        gaps_s=None,
        mean_gap_s=tuple(one.inter_token_latency_ms / 1e3 for one in ordered),
    )


def _line(text: str, tokens: int) -> bytes:
    return msgspec.json.encode({"prompt": text, "output_tokens_count": tokens}) + b"\n"
