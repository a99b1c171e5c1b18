"""Requests to a cluster's gateway, as a client makes them."""

import json
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import httpx
from cluster import Cluster


def body(cluster: Cluster, ids: Sequence[int], max_tokens: int, **more: Any) -> dict[str, Any]:
    return {
        "model": cluster.served,
        "prompt": list(ids),
        "max_tokens": max_tokens,
        "temperature": 0,
        "return_token_ids": True,
        **more,
    }


def complete(cluster: Cluster, ids: Sequence[int], max_tokens: int, **more: Any) -> list[int]:
    answer = httpx.post(
        f"{cluster.url}/v1/completions", json=body(cluster, ids, max_tokens, **more), timeout=30
    )
    assert answer.status_code == 200, answer.text
    return list(answer.json()["choices"][0]["token_ids"])


class Stream:
    """A streamed completion, read by a thread of its own: headers come with the first token."""

    def __init__(self, cluster: Cluster, ids: Sequence[int], max_tokens: int) -> None:
        self.tokens: list[int] = []
        self.error: dict[str, Any] | None = None
        self.finished = False
        self.finish_reason: str | None = None
        self._url = f"{cluster.url}/v1/completions"
        self._body = body(cluster, ids, max_tokens, stream=True)
        self._news = threading.Condition()
        self._ended = False
        self._response: httpx.Response | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def read(self, count: int) -> None:
        """Waits for ``count`` tokens or the end."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.tokens) >= count or self._ended, 30)

    def read_all(self) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self._ended, 30)
        self._thread.join()

    def close(self) -> None:
        """The client goes away, whether or not the answer is whole."""
        if self._response is not None:
            connection = self._response.extensions["network_stream"].get_extra_info("socket")
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        with (
            suppress(httpx.TransportError),
            httpx.Client(timeout=30) as client,
            client.stream("POST", self._url, json=self._body) as response,
        ):
            self._response = response
            if response.status_code != 200:
                self.error = json.loads(response.read())["error"]
            else:
                self._read(response)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _read(self, response: httpx.Response) -> None:
        for line in response.iter_lines():
            if line == "data: [DONE]":
                self.finished = True
            elif line.startswith("data: "):
                self._take(json.loads(line[6:]))

    def _take(self, event: dict[str, Any]) -> None:
        with self._news:
            if "error" in event:
                self.error = event["error"]
            for choice in event.get("choices", ()):
                self.tokens += choice.get("token_ids") or []
                self.finish_reason = choice["finish_reason"] or self.finish_reason
            self._news.notify_all()
