"""What one call a chunk costs at a running derender service, along a long answer.

Speaks vLLM's wire (``/v1/chat/completions/derender`` with ``stream`` true), so that our service and
vLLM's can be measured side by side, each with what it asks its client to send.
"""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from splitserve.bench.long_answer import LongAnswer, long_answer
from splitserve.bench.quantile import quantile
from splitserve.errors import UnavailableError
from splitserve.frontend.model import ServedModel

_TIMEOUT_S: Final = 120.0
_MESSAGES: Final = [{"role": "user", "content": "Write the file."}]


@dataclass(frozen=True, slots=True)
class ServiceReading:
    """Milliseconds a call, medians of the first and the last tenth of the calls; ``sent_bytes`` is
    all that the client sent. ``text_chars`` shows that all services gave the same answer."""

    url: str
    tokens: int
    chunk: int
    total_s: float
    first_ms: float
    last_ms: float
    last_to_first: float
    sent_bytes: int
    text_chars: int


def measure_services(
    urls: Sequence[str], model: ServedModel, tokens: int, chunk: int
) -> Iterator[ServiceReading]:
    """One pass each. Raises UnavailableError when a service does not answer or refuses."""
    answer = long_answer(model.tokenizer, tokens)
    for url in urls:
        yield _measure(url, model, answer, chunk)


def _measure(url: str, model: ServedModel, answer: LongAnswer, chunk: int) -> ServiceReading:
    client = _Client(url)
    request = _chat_request(model, answer)
    prompt = client.post("/v1/chat/completions/render", request)["token_ids"]
    times: list[float] = []
    text_chars = 0
    state: Any = None
    for start in range(0, len(answer.token_ids), chunk):
        ids = answer.token_ids[start : start + chunk]
        last = start + chunk >= len(answer.token_ids)
        body = _body(model, ids, last, state)
        if state is None or "output_token_ids" in state:
            # vLLM's service wants the prompt and the request with every chunk.
            body |= {"prompt_token_ids": prompt, "chat_request": request}
        began = time.perf_counter()
        reply = client.post("/v1/chat/completions/derender", body)
        times.append(time.perf_counter() - began)
        state = reply["stream_state"]
        text_chars += _chars(reply["chunk"])
    client.close()
    tenth = max(1, len(times) // 10)
    first, last_s = quantile(times[:tenth], 0.5), quantile(times[-tenth:], 0.5)
    return ServiceReading(
        url=url,
        tokens=len(answer.token_ids),
        chunk=chunk,
        total_s=sum(times),
        first_ms=first * 1e3,
        last_ms=last_s * 1e3,
        last_to_first=last_s / first,
        sent_bytes=client.sent,
        text_chars=text_chars,
    )


def _chat_request(model: ServedModel, answer: LongAnswer) -> dict[str, Any]:
    tools = [
        {"type": "function", "function": {"name": tool.name, "parameters": tool.parameters}}
        for tool in answer.context.tools
    ]
    return {
        "model": model.name,
        "messages": _MESSAGES,
        "tools": tools,
        "tool_choice": "auto",
        "stream": True,
    }


def _body(model: ServedModel, ids: Sequence[int], last: bool, state: Any) -> dict[str, Any]:
    choice = {"index": 0, "token_ids": list(ids), "finish_reason": "stop" if last else None}
    return {
        "stream": True,
        "model": model.name,
        "generate_chunk": {"request_id": "bench", "choices": [choice]},
        "stream_state": state,
    }


def _chars(chunk: dict[str, Any]) -> int:
    """Characters of content, reasoning and arguments."""
    delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
    arguments = (
        (call.get("function") or {}).get("arguments") or ""
        for call in delta.get("tool_calls") or ()
    )
    return sum(
        map(len, (delta.get("content") or "", delta.get("reasoning") or "", *arguments)), start=0
    )


class _Client:
    """One connection. ``sent`` counts bytes of bodies."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._url = url
        self._connection = HTTPConnection(parts.netloc, timeout=_TIMEOUT_S)
        self.sent = 0

    def post(self, path: str, body: dict[str, Any]) -> Any:
        raw = json.dumps(body).encode()
        self.sent += len(raw)
        try:
            self._connection.request("POST", path, raw, {"content-type": "application/json"})
            response = self._connection.getresponse()
            reply = response.read()
        except (OSError, HTTPException) as error:
            raise UnavailableError(f"{self._url}{path}: {error}") from error
        if response.status != 200:
            text = reply[:300].decode(errors="replace")
            raise UnavailableError(f"{self._url}{path} answers {response.status}: {text}")
        return json.loads(reply)

    def close(self) -> None:
        self._connection.close()
