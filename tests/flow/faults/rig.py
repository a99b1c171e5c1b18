"""A split pair behind relays, with the means to bring a request into a state and keep it there."""

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from client import Stream
from cluster import FAKE, Cluster, Process, started, wait_until
from tiny_model import VOCAB_SIZE

from faults.relay import Match, Passed, Relay
from splitserve.engine.fake import FakeConfig, fake_tokens
from splitserve.processes.worker import FAKE_TOKEN_HIGH, FAKE_TOKEN_LOW
from splitserve.protocol.codec import Message
from splitserve.protocol.control import StepTokens, Submit
from splitserve.protocol.handoff import Grant, KVReady, Prefill, PrefillDone, Reserve

DEADLINE_S: Final = 5.0
"""Of every request: the gateway's --request-timeout-s."""

FLAGS: Final = (*FAKE, "--fake-num-blocks", "128", "--fake-step-ms", "4")
"""Pools of 512 tokens."""

SLOW: Final = ("--fake-prefill-us-per-token", "1500", "--max-num-batched-tokens", "32")
"""Prompts take long enough to be met half-way."""

CONFIG: Final = FakeConfig(
    vocab_size=VOCAB_SIZE, token_low=FAKE_TOKEN_LOW, token_high=FAKE_TOKEN_HIGH
)
ANSWER: Final = 24
PROMPT: Final = 100
PROBE: Final = 8
LARGE: Final = 300
"""Two prompts of this length do not fit into one pool together."""


def truth(prompt: Sequence[int], n: int) -> list[int]:
    return fake_tokens(prompt, n, config=CONFIG)


def is_(kind: type[Message], name: str = "") -> Match:
    """A frame of that kind, about the request of that name or any of its attempts."""

    def match(passed: Passed) -> bool:
        return isinstance(passed.message, kind) and name in _about(passed.message)

    return match


def token_of(name: str, index: int) -> Match:
    """Output token ``index`` of the request, or a later one."""

    def match(passed: Passed) -> bool:
        message = passed.message
        return isinstance(message, StepTokens) and any(
            name in chunk.request_id and chunk.index >= index for chunk in message.chunks
        )

    return match


def _about(message: Message) -> str:
    match message:
        case Reserve() | Prefill() | Submit():
            return message.request.request_id
        case Grant():
            return message.target.handoff
        case KVReady():
            return message.handoff
        case PrefillDone():
            return message.request_id
        case StepTokens():
            return " ".join(chunk.request_id for chunk in message.chunks)
        case _:
            return ""


@dataclass
class Rig(Cluster):
    """``roles`` by worker's name. Every worker is a faulty one behind a relay."""

    roles: dict[str, str] = field(default_factory=dict)
    relays: dict[str, Relay] = field(default_factory=dict)
    begun: int = 0
    _serial: Iterator[int] = field(default_factory=count)
    _names: Iterator[int] = field(default_factory=count)

    def listens(self, name: str) -> str:
        return f"unix:{self.run_dir / name}.inner"

    def relay(self, public: Path, private: Path) -> Relay:
        """What stands before a worker."""
        return Relay(public, private)

    def environment(self, name: str) -> dict[str, str]:
        return {"FAULTS": str(self.run_dir / f"{name}.fault")}

    def fault(self, name: str, word: str) -> None:
        """Tells a worker's connector what to do wrong from now on; "" for nothing."""
        path = self.run_dir / f"{name}.fault"
        if word:
            (self.run_dir / "fault.new").write_text(word)
            (self.run_dir / "fault.new").rename(path)
        else:
            path.unlink(missing_ok=True)

    def ask(self, length: int, max_tokens: int = ANSWER) -> "Asked":
        """Sends a request whose prompt is like no other's from its first token on."""
        serial = next(self._serial)
        return self.ask_this(self.prompt(serial, length), max_tokens)

    def ask_this(self, ids: list[int], max_tokens: int = ANSWER) -> "Asked":
        name = f"r{next(self._names)}x"
        self.begun += 1
        right = self.right_answer(ids, max_tokens)
        stream = Stream(self, ids, max_tokens, name, ignore_eos=True)
        return Asked(name, ids, max_tokens, right, stream)

    def prompt(self, serial: int, length: int) -> list[int]:
        return [300 + (serial * 37 + i * (7 + serial)) % 1000 for i in range(length)]

    def right_answer(self, ids: list[int], max_tokens: int) -> list[int]:
        return truth(ids, max_tokens)

    def arrived(self, asked: "Asked") -> None:
        """It has been taken in by the gateway, whose one loop reads all sockets."""
        asked.stream.wait_sent()
        for _ in range(3):
            self.ready_answer()

    def worker_of(self, asked: "Asked") -> str:
        """Who was given the whole of the request; "" while nobody was."""
        names = [n for n, relay in self.relays.items() if relay.saw(is_(Submit, asked.name))]
        return names[-1] if names else ""

    def quarantined(self, name: str) -> int:
        return self.kv_blocks().get(name, {}).get("quarantined", 0)

    def settled(self) -> bool:
        """Of the workers that can be asked: a dead one's blocks died with it."""
        alive = {name for name in self.roles if not self.ended(name)}
        blocks = {name: states for name, states in self.kv_blocks().items() if name in alive}
        return set(blocks) == alive and all(
            states["free"] + states["cached"] == sum(states.values()) for states in blocks.values()
        )

    @property
    def gate(self) -> Process:
        assert self.gateway is not None
        return self.gateway

    def heal(self) -> None:
        """Undoes every fault and waits until all is as in the beginning."""
        for name in self.roles:
            self.fault(name, "")
        for process in (*self.workers.values(), self.gate):
            if process.alive:
                process.thaw()
        for relay in self.relays.values():
            relay.mend()
        dead = [name for name in self.roles if self.ended(name)]
        starting = [self.launch_worker(self.roles[name], name) for name in dead]
        for spawned in starting:
            self.workers[spawned.name] = spawned.wait()
        if not self.gate.alive:
            self.start_gateway(list(self.roles))
            self.begun = 0
        wait_until(self.whole, 20, lambda: f"{self.ready_answer().text} {self.kv_blocks()}")

    def ended(self, name: str) -> bool:
        """Also one that is about to: its engine broke."""
        process = self.workers[name]
        told = process.log.read_text(errors="replace")
        if "the engine failed" in told:
            process.popen.wait(10)
            process.log.with_suffix(".broke").write_text(told)
            process.log.write_text("")
        return not process.alive

    def whole(self) -> bool:
        """Every worker is used, the pair is linked, nothing runs."""
        return (
            self.ready()
            and set(self.kv_blocks()) == set(self.roles)
            and self.idle()
            and self._answers()
        )

    def _answers(self) -> bool:
        probe = self.ask(PROBE, 2)
        probe.stream.read_all()
        handed = "d0" not in self.relays or self.relays["d0"].saw(is_(KVReady, probe.name))
        return handed and probe.right

    def finals(self) -> float:
        return self.total("splitserve_generations_total")


@dataclass
class Asked:
    """A request and what its client sees. ``answer`` is what it should."""

    name: str
    ids: list[int]
    max_tokens: int
    answer: list[int]
    stream: Stream

    @property
    def right(self) -> bool:
        """The whole answer came, and nothing else."""
        stream = self.stream
        whole = stream.finished and stream.finish_reason == "length" and not stream.errors
        return whole and stream.tokens == self.answer

    @property
    def honest(self) -> bool:
        """One well-formed error, after nothing but right tokens."""
        stream = self.stream
        if len(stream.errors) != 1 or stream.finished or stream.finish_reason is not None:
            return False
        (error,) = stream.errors
        formed = {"message", "type", "param", "code"} == set(error) and error["message"]
        status = stream.status == 200 if stream.tokens else stream.status in (429, 502, 503, 504)
        return bool(formed) and status and self._so_far

    @property
    def cut(self) -> bool:
        """The connection broke, after nothing but right tokens."""
        return not self.stream.finished and not self.stream.errors and self._so_far

    @property
    def _so_far(self) -> bool:
        return self.stream.tokens == self.answer[: len(self.stream.tokens)]

    def told(self) -> str:
        stream = self.stream
        return (
            f"{self.name}: HTTP {stream.status}, {len(stream.tokens)} of {self.max_tokens} tokens, "
            f"right so far {self._so_far}, "
            f"finish {stream.finish_reason}, done {stream.finished}, errors {stream.errors}"
        )


R = TypeVar("R", bound=Rig)


@contextmanager
def rigged(
    model: str,
    roles: Sequence[tuple[str, str]],
    flags: Sequence[str],
    kind: type[R] = Rig,
    own_flags: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Iterator[R]:
    """Workers given as (role, name), each behind a relay, and a gateway."""
    program = (str(Path(__file__).with_name("faulty_worker.py")),)
    gateway_flags = ("--request-timeout-s", str(DEADLINE_S))
    with tempfile.TemporaryDirectory(prefix="ss-") as folder:
        run_dir = Path(folder)
        rig = kind(model, run_dir, flags, gateway_flags, program, own_flags)
        rig.roles = {name: role for role, name in roles}
        rig.relays = {
            name: rig.relay(run_dir / f"{name}.sock", run_dir / f"{name}.inner")
            for name in rig.roles
        }
        try:
            with started(rig, roles):
                yield rig
        finally:
            for relay in rig.relays.values():
                relay.close()
