"""Workers joined by an imaginary network: every message is in a queue until ``pump`` delivers it.

Real engines (fake runner), real connectors, real roles; only sockets and time are played.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from splitserve.engine.api import Engine, Runner
from splitserve.engine.config import SchedulerConfig
from splitserve.engine.core import EngineCore
from splitserve.engine.fake import FakeConfig, FakeRunner
from splitserve.ids import HandoffId, Incarnation, RequestId, WorkerId
from splitserve.protocol.codec import FrameDecoder, Message, encode
from splitserve.protocol.control import Abort, Hello, Pair, StepTokens, Submit
from splitserve.protocol.generate import GenerateRequest, TokenChunk
from splitserve.protocol.handoff import Grant, GrantTarget, Prefill, Reserve
from splitserve.protocol.sampling import SamplingParams
from splitserve.protocol.telemetry import KVCounts
from splitserve.roles.port import ConnId
from splitserve.roles.tiering import BlockTier, Tiering
from splitserve.roles.worker import Worker, WorkerFacts
from splitserve.transfer.registry import create_connector
from splitserve.transfer.sharded import ShardedConnector

GATEWAY = ConnId(1)
LEASE_S = 5.0


@dataclass
class Life:
    """Whether a node's process runs; what a ProcessWatch sees."""

    ended: bool = False

    def dead(self) -> bool:
        return self.ended

    def close(self) -> None:
        pass


@dataclass
class Node:
    name: str
    worker: Worker
    pid: int
    life: Life
    next_conn: int = 2
    links: dict[ConnId, tuple[str, ConnId]] = field(default_factory=dict)


@dataclass
class Network:
    """``to_gateway[name]`` is what worker ``name`` told the gateway."""

    now: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    to_gateway: dict[str, list[Message]] = field(default_factory=dict)
    held: bool = False
    _queue: deque[tuple[str, ConnId, Message]] = field(default_factory=deque)
    _opening: deque[tuple[str, str]] = field(default_factory=deque)
    _lives: dict[int, Life] = field(default_factory=dict)

    def add(
        self,
        name: str,
        role: str,
        connector: str = "memory",
        num_blocks: int = 64,
        chunk: int = 32,
        tokenizer: Path | None = None,
        depth: int = 1,
        runner: Callable[[FakeConfig], Runner] = FakeRunner,
        tier: Callable[[Engine], BlockTier] | None = None,
    ) -> Node:
        config = FakeConfig(
            num_blocks=num_blocks,
            block_size=4,
            tokenizer=tokenizer,
            depth=depth,
            scheduler=SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=chunk),
        )
        engine = EngineCore(runner(config), config.scheduler)
        moving = ShardedConnector(lambda: create_connector(connector))
        moving.open(engine.regions(), engine.describe().layout)
        pid = len(self._lives) + 1
        life = self._lives[pid] = Life()
        facts = WorkerFacts(
            WorkerId(name),
            Incarnation(f"{name}-{pid}"),
            role,
            name,
            pid,
            connector,
            {"model": engine.describe().content_hash},
        )
        tiering = None if tier is None else Tiering(engine, tier(engine), lambda: self.now)
        worker = Worker(
            engine,
            moving,
            _Port(self, name),
            facts,
            lambda: self.now,
            self._lives.__getitem__,
            tiering,
        )
        node = self.nodes[name] = Node(name, worker, pid, life)
        self.to_gateway.setdefault(name, [])
        return node

    def tell(self, name: str, message: Message) -> None:
        """The gateway sends to a worker; over the codec, as in life."""
        (decoded,) = FrameDecoder().feed(encode(message))
        self.nodes[name].worker.handle(GATEWAY, decoded)

    def said(self, name: str, kind: type[Message]) -> list[Message]:
        return [message for message in self.to_gateway[name] if isinstance(message, kind)]

    def pump(self, at_most: int | None = None) -> None:
        """Delivers queued messages, and those they cause."""
        count = 0
        while (self._queue or self._opening) and (at_most is None or count < at_most):
            count += 1
            if self._opening:
                self._open(*self._opening.popleft())
                continue
            name, conn, message = self._queue.popleft()
            if name in self.nodes and conn in self.nodes[name].links:
                self.nodes[name].worker.handle(conn, message)

    def step_all(self, limit: int = 10_000) -> None:
        """Pumps and steps until nobody has anything to do."""
        for _ in range(limit):
            self.pump()
            busy = [node for node in self.nodes.values() if node.worker.has_work()]
            if not busy and not self._queue:
                return
            for node in busy:
                node.worker.step()
        raise AssertionError("the network does not come to rest")

    def pair(self, prefill: str, decode: str) -> None:
        self.tell(prefill, Pair(WorkerId(decode), decode))
        self.pump()

    def kill(self, name: str) -> None:
        """kill -9: the process is gone, then its sockets close."""
        node = self.nodes.pop(name)
        node.life.ended = True
        for peer, conn in node.links.values():
            self._cut(peer, conn)
        for worker in self.nodes.values():
            worker.worker.tick(self.now)
        self.pump()

    def cut_link(self, prefill: str, decode: str) -> None:
        """The connection breaks while both live. Decode learns it first."""
        node = self.nodes[prefill]
        for conn, (peer, peer_conn) in list(node.links.items()):
            if peer == decode:
                del node.links[conn]
                self._cut(peer, peer_conn)
                node.worker.connection_lost(conn)

    def reopen_link(self, prefill: str, decode: str) -> None:
        """What the server does after a lost link: connect again."""
        self._opening.append((prefill, decode))
        self.pump()

    def lose_gateway(self) -> None:
        for node in self.nodes.values():
            node.worker.connection_lost(GATEWAY)

    def counts(self, name: str) -> KVCounts:
        return self.nodes[name].worker.load().kv

    def idle(self) -> bool:
        return all(self.counts(name).idle for name in self.nodes)

    def post(self, name: str, conn: ConnId, message: Message) -> None:
        if conn == GATEWAY:
            self.to_gateway[name].append(message)
            return
        node = self.nodes.get(name)
        if node is not None and conn in node.links:
            peer, peer_conn = node.links[conn]
            self._queue.append((peer, peer_conn, message))

    def opening(self, name: str, target: str) -> None:
        self._opening.append((name, target))

    def _open(self, name: str, target: str) -> None:
        if name not in self.nodes or target not in self.nodes:
            return
        ours, theirs = self.nodes[name], self.nodes[target]
        a, b = ConnId(ours.next_conn), ConnId(theirs.next_conn)
        ours.next_conn += 1
        theirs.next_conn += 1
        ours.links[a] = (target, b)
        theirs.links[b] = (name, a)
        ours.worker.link_opened(a)

    def _cut(self, name: str, conn: ConnId) -> None:
        node = self.nodes.get(name)
        if node is not None and node.links.pop(conn, None) is not None:
            node.worker.connection_lost(conn)

    def close(self, name: str, conn: ConnId) -> None:
        node = self.nodes[name]
        link = node.links.pop(conn, None)
        if link is not None:
            self._cut(*link)


@dataclass
class _Port:
    network: Network
    name: str

    def send(self, conn: ConnId, message: Message) -> None:
        self.network.post(self.name, conn, message)

    def open_link(self, worker: WorkerId, address: str) -> None:
        del worker
        self.network.opening(self.name, address)

    def close(self, conn: ConnId) -> None:
        self.network.close(self.name, conn)


def make_request(name: str, prompt: tuple[int, ...], max_tokens: int = 6) -> GenerateRequest:
    return GenerateRequest(
        RequestId(name), prompt, SamplingParams(seed=1, max_tokens=max_tokens, temperature=0.0)
    )


def split_pair(**options: Any) -> Network:
    """A prefill worker ``p`` linked to a decode worker ``d``."""
    network = Network()
    network.add("p", "prefill", **options)
    network.add("d", "decode", **options)
    network.tell("p", Hello("g"))
    network.tell("d", Hello("g"))
    network.pair("p", "d")
    return network


def reserve(network: Network, request: GenerateRequest, attempt: int = 0) -> GrantTarget:
    """Asks ``d`` for room; fails unless it is granted."""
    handoff = HandoffId(f"{request.request_id}#{attempt}")
    network.tell("d", Reserve(handoff, request, WorkerId("p"), LEASE_S))
    answer = network.to_gateway["d"][-1]
    assert isinstance(answer, Grant), answer
    return answer.target


def prefill(network: Network, request: GenerateRequest, target: GrantTarget) -> None:
    network.tell("p", Prefill(request, target, LEASE_S))


def submit(network: Network, name: str, request: GenerateRequest) -> None:
    network.tell(name, Submit(request))


def abort_everywhere(network: Network, request: GenerateRequest) -> None:
    for name in list(network.nodes):
        network.tell(name, Abort(request.request_id))


def answer_of(network: Network, request: GenerateRequest) -> list[int]:
    """The request's tokens over all workers, by output index; each index once."""
    tokens: dict[int, int] = {}
    for messages in network.to_gateway.values():
        for chunk in chunks(messages, request.request_id):
            for offset, token in enumerate(chunk.token_ids):
                assert chunk.index + offset not in tokens, "a token came twice"
                tokens[chunk.index + offset] = token
    assert sorted(tokens) == list(range(len(tokens)))
    return [tokens[i] for i in range(len(tokens))]


def chunks(messages: list[Message], request_id: RequestId) -> list[TokenChunk]:
    return [
        chunk
        for message in messages
        if isinstance(message, StepTokens)
        for chunk in message.chunks
        if chunk.request_id == request_id
    ]
