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
    """A streamed completion, read by a thread of its own: headers come with the first token.

    ``name`` becomes part of the request's id. ``errors`` are all error forms that came, ``status``
    is HTTP's (0: no answer at all).
    """

    def __init__(
        self,
        cluster: Cluster,
        ids: Sequence[int],
        max_tokens: int,
        name: str = "",
        **more: Any,
    ) -> None:
        self.tokens: list[int] = []
        self.errors: list[dict[str, Any]] = []
        self.status = 0
        self.finished = False
        self.finish_reason: str | None = None
        self._url = f"{cluster.url}/v1/completions"
        self._body = body(cluster, ids, max_tokens, stream=True, **more)
        self._headers = {"x-request-id": name} if name else {}
        self._news = threading.Condition()
        self._ended = False
        self._socket: socket.socket | None = None
        self._sent = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def error(self) -> dict[str, Any] | None:
        return self.errors[0] if self.errors else None

    @property
    def ended(self) -> bool:
        with self._news:
            return self._ended

    def read(self, count: int) -> None:
        """Waits for ``count`` tokens or the end."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.tokens) >= count or self._ended, 30)

    def read_all(self, within_s: float = 30) -> None:
        with self._news:
            assert self._news.wait_for(lambda: self._ended, within_s), "no end came"
        self._thread.join()

    def leave(self) -> None:
        """The client goes away, whether or not there is an answer yet."""
        assert self._sent.wait(30), "the request was not sent"
        assert self._socket is not None
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """As ``leave``; returns when nothing of the request is left here."""
        if self._sent.is_set():
            self.leave()
        self._thread.join()

    def wait_sent(self) -> None:
        assert self._sent.wait(30), "the request was not sent"

    def _run(self) -> None:
        with (
            suppress(httpx.TransportError),
            httpx.Client(timeout=30) as client,
            client.stream(
                "POST",
                self._url,
                json=self._body,
                headers=self._headers,
                extensions={"trace": self._note},
            ) as response,
        ):
            self.status = response.status_code
            if response.status_code != 200:
                self.errors.append(json.loads(response.read())["error"])
            else:
                self._read(response)
        self._sent.set()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _note(self, event: str, facts: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            self._socket = facts["return_value"].get_extra_info("socket")
        elif event == "http11.send_request_body.complete":
            self._sent.set()

    def _read(self, response: httpx.Response) -> None:
        for line in response.iter_lines():
            if line == "data: [DONE]":
                self.finished = True
            elif line.startswith("data: "):
                self._take(json.loads(line[6:]))

    def _take(self, event: dict[str, Any]) -> None:
        with self._news:
            if "error" in event:
                self.errors.append(event["error"])
            for choice in event.get("choices", ()):
                self.tokens += choice.get("token_ids") or []
                self.finish_reason = choice["finish_reason"] or self.finish_reason
            self._news.notify_all()
