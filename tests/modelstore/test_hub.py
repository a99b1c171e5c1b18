"""The hub is a server of ours on this machine; the client is the real one, in its own process."""

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
FILES = {
    "config.json": b'{"max_position_embeddings": 77}',
    "tokenizer.json": b"{}",
    "model.safetensors": bytes(5000),
    "pytorch_model.bin": bytes(10),
    "README.md": b"read me",
    "onnx/config.json": b"{}",
    "consolidated.safetensors": bytes(10),
}

_RESOLVE = """
import json, sys
from splitserve.errors import SplitserveError
from splitserve.modelstore.resolve import resolve

class Progress:
    total = 0
    def stage(self, name, total_bytes): self.name = name
    def advance(self, nbytes): self.total += nbytes
    def done(self): pass

progress = Progress()
try:
    folder = resolve(sys.argv[1], progress=progress)
except SplitserveError as error:
    print(json.dumps({"error": type(error).__name__, "message": str(error)}))
else:
    print(json.dumps({
        "files": sorted(path.name for path in folder.path.iterdir()),
        "served_name": folder.served_name,
        "max_model_len": folder.max_model_len(),
        "stage": progress.name,
        "bytes": progress.total,
    }))
"""


class _Hub(BaseHTTPRequestHandler):
    """Knows ``org/model``, ``org/empty`` (no weights) and ``org/gated`` (403)."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        if "org/gated" in path:
            self._send(403, b"{}", {"X-Error-Code": "GatedRepo"})
        elif match := re.fullmatch(r"/api/models/org/(model|empty)(/revision/.*)?", path):
            self._json({"id": f"org/{match[1]}", "sha": COMMIT, "siblings": []})
        elif match := re.fullmatch(r"/api/models/org/(model|empty)/tree/.*", path):
            self._json([_entry(name) for name in _files(match[1])])
        elif match := re.fullmatch(rf"/org/(model|empty)/resolve/{COMMIT}/(.*)", path):
            self._send(
                200, FILES[match[2]], {"ETag": f'"{_blob(match[2])}"', "X-Repo-Commit": COMMIT}
            )
        else:
            self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})

    def _json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _files(model: str) -> list[str]:
    return [name for name in FILES if model == "model" or "safetensors" not in name]


def _blob(name: str) -> str:
    content = FILES[name]
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def _entry(name: str) -> dict[str, object]:
    return {"type": "file", "path": name, "size": len(FILES[name]), "oid": _blob(name)}


@pytest.fixture
def hub() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def fetch(model: str, endpoint: str, home: Path) -> dict[str, object]:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    answer = subprocess.run(
        [sys.executable, "-c", _RESOLVE, model],
        capture_output=True,
        text=True,
        check=True,
        cwd=home,
        env=environ | {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "NO_PROXY": "127.0.0.1"},
    )
    found = json.loads(answer.stdout)
    assert isinstance(found, dict)
    return found


def test_a_hub_id_brings_only_what_is_needed_and_its_name(hub: str, tmp_path: Path) -> None:
    found = fetch("org/model", hub, tmp_path)

    assert found == {
        "files": ["config.json", "model.safetensors", "tokenizer.json"],
        "served_name": "org/model",
        "max_model_len": 77,
        "stage": "downloading org/model from the hub",
        "bytes": sum(len(FILES[n]) for n in ("config.json", "model.safetensors", "tokenizer.json")),
    }


def test_a_snapshot_that_is_cached_serves_without_the_hub(hub: str, tmp_path: Path) -> None:
    first = fetch("org/model", hub, tmp_path)

    again = fetch("org/model", _closed_port(), tmp_path)

    assert again["files"] == first["files"]
    assert again["bytes"] == 0


def test_a_repository_without_weights_is_refused(hub: str, tmp_path: Path) -> None:
    found = fetch("org/empty", hub, tmp_path)

    assert found["error"] == "ConfigError"
    assert "org/empty holds no safetensors weights" in str(found["message"])


@pytest.mark.parametrize("name", ["org/gated", "org/nothing"])
def test_a_model_that_is_not_for_the_user_names_the_cure(
    hub: str, tmp_path: Path, name: str
) -> None:
    found = fetch(name, hub, tmp_path)

    assert found["error"] == "UnavailableError"
    assert f"the hub has no {name} for you" in str(found["message"])
    assert "HF_TOKEN" in str(found["message"])


def test_no_hub_is_one_line_with_the_cure(tmp_path: Path) -> None:
    found = fetch("org/model", _closed_port(), tmp_path)

    assert found["error"] == "UnavailableError"
    assert "cannot fetch org/model from the hub" in str(found["message"])
    assert "connect and run again" in str(found["message"])
    assert "\n" not in str(found["message"])


def test_a_name_that_the_hub_does_not_allow_is_refused(tmp_path: Path) -> None:
    found = fetch("org/na--me", _closed_port(), tmp_path)

    assert found == {"error": "ConfigError", "message": "'org/na--me' is no hub id: write org/name"}


def _closed_port() -> str:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{closed.getsockname()[1]}"
