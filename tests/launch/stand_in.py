"""Small processes in place of workers and gateways: ``stand_in.py KIND STATUS_FD PARENT_PID``."""

import os
import signal
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from splitserve.lifecycle import StatusPipe, end_with_parent


def worker(status: StatusPipe) -> int:
    status.ready()
    signal.pause()
    return 0


def deaf(status: StatusPipe) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status.ready()
    while True:
        signal.pause()


def slow(status: StatusPipe) -> int:
    print("loading", flush=True)
    signal.pause()
    return 0


def refuses(status: StatusPipe) -> int:
    print("about to give up", flush=True)
    status.failed("no such\nmodel")
    return 2


def crashes(status: StatusPipe) -> int:
    print("traceback, last line", file=sys.stderr, flush=True)
    return 7


def family(status: StatusPipe) -> int:
    """Leaves a helper behind whose pid it reports."""
    helper = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    status.ready(helper=helper.pid)
    signal.pause()
    return 0


def second_life_fails(status: StatusPipe) -> int:
    """Ready in its first life, refuses in its second, ready from the third on."""
    lives = Path(sys.argv[4])
    lives.write_text(lives.read_text() + "x" if lives.exists() else "x")
    if len(lives.read_text()) == 2:
        return refuses(status)
    return worker(status)


def dies_later(status: StatusPipe) -> int:
    """Ready in its first life; dies before it is ready in all others, while FILE is there."""
    trouble = Path(sys.argv[4])
    if trouble.exists():
        return 7
    trouble.touch()
    return worker(status)


def babbles(status: StatusPipe) -> int:
    os.write(int(sys.argv[2]), b"hello\n")
    return 0


class _Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/ready" else 404)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        pass


class _Warns(_Ready):
    def do_GET(self) -> None:
        super().do_GET()
        self.wfile.write(b'{"warnings": ["a: draining"]}')


def warns(status: StatusPipe) -> int:
    """A gateway that does not use worker ``a``."""
    return gateway(status, _Warns)


def gateway(status: StatusPipe, answer: type[_Ready] = _Ready) -> int:
    server = HTTPServer(("127.0.0.1", 0), answer)
    status.ready(port=server.server_port)
    server.serve_forever()
    return 0


KINDS = {
    kind.__name__: kind
    for kind in (
        worker,
        deaf,
        slow,
        refuses,
        crashes,
        family,
        second_life_fails,
        dies_later,
        babbles,
        gateway,
        warns,
    )
}

if __name__ == "__main__":
    end_with_parent(int(sys.argv[3]))
    sys.exit(KINDS[sys.argv[1]](StatusPipe(int(sys.argv[2]))))
