"""One real vLLM server."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import uuid4

import httpx
import psutil
from cluster import tail, wait_until
from vllm_model import vllm_program

START_S = 240.0
STOP_S = 30.0
NICE = 5
"""Of threads that only move KV. With more, other work on the machine would starve them."""

HOST = "127.0.0.1"


@dataclass
class Instance:
    """``core`` is where all of it runs. ``port`` is of its HTTP server, ``side_port`` of NIXL's
    side channel; both stay when it is started again. ``extra`` is its kv_connector_extra_config.
    ``facts`` are what the gateway is told of it."""

    name: str
    role: str
    model: Path
    run_dir: Path
    connector: str
    port: int
    side_port: int
    core: int
    flags: Sequence[str] = ()
    engine_id: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, str | int] = field(default_factory=dict)
    popen: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        return self.run_dir / f"{self.name}.log"

    @property
    def alive(self) -> bool:
        return self.popen is not None and self.popen.poll() is None

    def address(self, url: str = "", **other: str | int) -> str:
        """As ``splitserve gateway --worker`` takes it. ``other`` facts replace its own."""
        query = {
            "name": self.name,
            "role": self.role,
            "connector": self.connector,
            "kv_role": "kv_both",
            **self.facts,
            **other,
        }
        return f"vllm+{url or self.url}?{urlencode(query)}"

    def start(self) -> None:
        """Returns at once; see ``wait_ready``. It leads a process group of its own."""
        command = [vllm_program(), "serve", str(self.model), "--served-model-name", "smollm2"]
        command += ["--host", HOST, "--port", str(self.port), "--dtype", "float32"]
        command += ["--max-model-len", "2048", "--max-num-seqs", "16", "--enforce-eager"]
        command += ["--kv-transfer-config", json.dumps(self._transfer()), *self.flags]
        with self.log.open("ab") as out:
            self.popen = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                preexec_fn=lambda: os.sched_setaffinity(0, {self.core}),
            )

    def wait_ready(self) -> None:
        def answers() -> bool:
            assert self.alive, f"{self.name} has ended: {tail(self.log, 30)}"
            try:
                return httpx.get(f"{self.url}/health", timeout=5).status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, START_S, lambda: f"{self.name} is not ready: {tail(self.log, 30)}")
        self._calm()

    def kill(self) -> None:
        """All of its processes, at once."""
        if self.popen is not None:
            self._signal(signal.SIGKILL)
            self.popen.wait()
            wait_until(lambda: not self.left(), 10, lambda: f"left: {self.left()}")

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def stop(self) -> None:
        """As an operator does; whatever is still there then is killed."""
        if self.popen is None:
            return
        if self.alive:
            self.thaw()
            self.popen.terminate()
            # It is not our program: that it stops when told is not our promise.
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(timeout=STOP_S)
        self.kill()

    def left(self) -> list[str]:
        """Its processes that still run."""
        return [f"{process.pid} {process.name()}" for process in self._processes()]

    def total(self, name: str) -> float:
        """Sum of a metric over all of its series; 0 where there is none."""
        page = httpx.get(f"{self.url}/metrics", timeout=10).text
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)
        return sum(float(value) for value in found)

    def ask(self, path: str, **body: Any) -> dict[str, Any]:
        """Past the gateway: vLLM's own answer."""
        answer = httpx.post(f"{self.url}{path}", json={"model": "smollm2", **body}, timeout=60)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def complete(self, ids: Sequence[int], max_tokens: int, **more: Any) -> list[int]:
        """What this instance alone answers, from no cache."""
        settings = {"temperature": 0, "return_token_ids": True, "cache_salt": _new(), **more}
        answer = self.ask("/v1/completions", prompt=list(ids), max_tokens=max_tokens, **settings)
        return list(answer["choices"][0]["token_ids"])

    def nudge(self) -> None:
        """vLLM lets blocks go and writes its metrics after steps only, and makes none while it is
        idle."""
        sampling = {"max_tokens": 1, "temperature": 0}
        tokens: dict[str, Any] = {"token_ids": [1, 2], "cache_salt": _new()}
        if "--tokens-only" in self.flags:
            self.ask("/inference/v1/generate", sampling_params=sampling, **tokens)
        else:
            self.complete([1, 2], 1)

    def _calm(self) -> None:
        """With NIXL, vLLM puts the work of all instances on the machine's last core, and NIXL's own
        thread never sleeps: it is to take what time is left, not half of it."""
        for process in self._processes():
            if "Worker" in process.name():
                for thread in process.threads():
                    os.sched_setaffinity(thread.id, {self.core})
                    if thread.id != process.pid:
                        os.setpriority(os.PRIO_PROCESS, thread.id, NICE)

    def _processes(self) -> list[psutil.Process]:
        if self.popen is None:
            return []
        group = self.popen.pid
        return [
            process
            for process in psutil.process_iter()
            if _group_of(process) == group and process.status() != psutil.STATUS_ZOMBIE
        ]

    def _transfer(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "kv_connector": self.connector,
            "kv_role": "kv_both",
            "kv_buffer_device": "cpu",
            "kv_load_failure_policy": "recompute",
        }
        if self.engine_id:
            config["engine_id"] = self.engine_id
        if self.extra:
            config["kv_connector_extra_config"] = dict(self.extra)
        return config

    def _environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "VLLM_NIXL_SIDE_CHANNEL_HOST": HOST,
            "VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.side_port),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_NO_USAGE_STATS": "1",
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            "UCX_TLS": "tcp,shm",
        }

    def _signal(self, number: int) -> None:
        assert self.popen is not None
        with suppress(ProcessLookupError):  # all of it may have ended already
            os.killpg(self.popen.pid, number)


def _new() -> str:
    """A salt that no cache has seen."""
    return uuid4().hex


def _group_of(process: psutil.Process) -> int:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return -1
