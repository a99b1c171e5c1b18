"""In place of the ``vllm`` program: ``fake_vllm_program.py serve MODEL --port N ...``.

Speaks as vLLM 0.23 does, without computing: the token at a place of a sequence depends on the place
alone. It starts a process of its own, as vLLM does, that ignores SIGTERM and notices nothing.
``FAKE_VLLM`` in the environment makes it refuse to start (``refuse``) or never answer (``deaf``).
"""

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRICS = """\
process_start_time_seconds {started}
vllm:num_requests_running{{engine="0",model_name="m"}} 0.0
vllm:num_requests_waiting{{engine="0",model_name="m"}} 0.0
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} 0.0
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="1000"}} 1.0
"""
CORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"


def flag(name: str, default: str = "") -> str:
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    core = 0

    def do_GET(self) -> None:
        key = os.environ.get("VLLM_API_KEY")
        keyed = self.headers.get("Authorization") == f"Bearer {key}"
        if key is not None and self.path.startswith("/v1") and not keyed:
            self.answer(401, b"{}")
            return
        card = {"id": flag("--served-model-name"), "root": sys.argv[2], "max_model_len": 4096}
        pages: dict[str, Any] = {
            "/health": "",
            "/version": {"version": "0.23.0"},
            "/v1/models": {"data": [card]},
            "/life": {"core": self.core, "argv": sys.argv[1:], "env": dict(os.environ)},
        }
        if self.path == "/metrics":
            self.answer(200, METRICS.format(started=os.getpid()).encode())
        else:
            found = self.path in pages
            self.answer(200 if found else 404, json.dumps(pages.get(self.path)).encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        first = len(asked["prompt"])
        tokens = [300 + (first + i) % 100 for i in range(asked["max_tokens"])]
        if asked["stream"]:
            self.stream(tokens)
        else:
            params = asked.get("kv_transfer_params") or {}
            returned = held() if params.get("do_remote_decode") else None
            body = {"choices": [choice(tokens, "length")], "kv_transfer_params": returned}
            self.answer(200, json.dumps(body).encode())

    def stream(self, tokens: list[int]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i, token in enumerate(tokens):
            reason = "length" if i + 1 == len(tokens) else None
            event = json.dumps({"choices": [choice([token], reason)]})
            self.wfile.write(f"data: {event}\n\n".encode())
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


def choice(tokens: list[int], reason: str | None) -> dict[str, Any]:
    return {"index": 0, "token_ids": tokens, "finish_reason": reason, "stop_reason": None}


def held() -> dict[str, Any]:
    """What NIXL returns for a prompt whose blocks it holds."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        "remote_block_ids": [[1, 2]],
        "remote_engine_id": f"engine-{os.getpid()}",
        "remote_request_id": "r",
        "remote_host": os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"],
        "remote_port": int(os.environ["VLLM_NIXL_SIDE_CHANNEL_PORT"]),
        "tp_size": 1,
    }


if __name__ == "__main__":
    manner = os.environ.get("FAKE_VLLM", "")
    if manner == "refuse":
        sys.exit("no such quantization")
    Handler.core = subprocess.Popen([sys.executable, "-c", CORE]).pid
    if manner == "deaf":
        threading.Event().wait()
    server = ThreadingHTTPServer((flag("--host"), int(flag("--port"))), Handler)
    server.serve_forever()
