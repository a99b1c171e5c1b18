"""Whatever happens in whatever order: no token wrong or doubled, no block lost."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from network import (
    LEASE_S,
    abort_everywhere,
    answer_of,
    make_request,
    prefill,
    split_pair,
    submit,
)

from splitserve.engine.fake import fake_tokens
from splitserve.ids import HandoffId, WorkerId
from splitserve.protocol.control import Failed, Hello
from splitserve.protocol.generate import GenerateRequest
from splitserve.protocol.handoff import Grant, GrantTarget, Renew, Reserve

MAX_TOKENS = 5


class TwoWorkers(RuleBasedStateMachine):
    granted = Bundle("granted")
    depth = 1

    def __init__(self) -> None:
        super().__init__()
        self.network = split_pair(num_blocks=24, chunk=8, depth=self.depth)
        self.count = 0
        self.open: dict[str, GenerateRequest] = {}
        self.disturbed: set[str] = set()

    def new_request(self, length: int) -> GenerateRequest:
        self.count += 1
        prompt = tuple(20 + (i * 7 + self.count % 3) % 100 for i in range(length))
        request = make_request(f"r{self.count}", prompt, MAX_TOKENS)
        self.open[request.request_id] = request
        return request

    @rule(target=granted, length=st.integers(1, 30))
    def reserve(self, length: int) -> tuple[GenerateRequest, GrantTarget] | None:
        request = self.new_request(length)
        network = self.network
        network.tell(
            "d", Reserve(HandoffId(f"{request.request_id}#0"), request, WorkerId("p"), LEASE_S)
        )
        answer = network.to_gateway["d"][-1]
        if isinstance(answer, Grant):
            return request, answer.target
        self.disturbed.add(request.request_id)
        return None

    @rule(grant=consumes(granted))
    def start_prefill(self, grant: tuple[GenerateRequest, GrantTarget] | None) -> None:
        if grant is not None:
            prefill(self.network, *grant)

    @rule(length=st.integers(1, 30), name=st.sampled_from("pd"))
    def colocated(self, length: int, name: str) -> None:
        submit(self.network, name, self.new_request(length))

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        if self.open:
            name = data.draw(st.sampled_from(sorted(self.open)))
            self.disturbed.add(name)
            abort_everywhere(self.network, self.open.pop(name))

    @rule(name=st.sampled_from("pd"))
    def step(self, name: str) -> None:
        worker = self.network.nodes[name].worker
        if worker.has_work():
            worker.step()

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        self.network.pump(count)

    @rule()
    def lease_passes(self) -> None:
        self.network.now += LEASE_S / 2
        self.disturbed |= set(self.open)  # a grant may lapse: the answer may stay short
        self.network.nodes["d"].worker.tick(self.network.now)

    @rule()
    def renew(self) -> None:
        for conn, handoffs in self.network.nodes["p"].worker.renewals().items():
            self.network.post("p", conn, Renew(handoffs))

    @rule()
    def link_breaks_and_comes_back(self) -> None:
        self.disturbed |= set(self.open)
        self.network.cut_link("p", "d")
        self.network.reopen_link("p", "d")

    @rule()
    def prefill_worker_restarts(self) -> None:
        self.disturbed |= set(self.open)
        self.network.kill("p")
        self.network.add("p", "prefill", num_blocks=24, chunk=8, depth=self.depth)
        self.network.tell("p", Hello("g"))
        self.network.pair("p", "d")

    @rule()
    def gateway_restarts(self) -> None:
        self.disturbed |= set(self.open)
        self.open.clear()
        self.network.lose_gateway()

    @invariant()
    def blocks_add_up(self) -> None:
        assert self.network.counts("d").total == 24
        assert self.network.counts("p").total == 24

    def teardown(self) -> None:
        network = self.network
        network.step_all()
        failed = {
            message.request_id
            for messages in network.to_gateway.values()
            for message in messages
            if isinstance(message, Failed)
        }
        for request in list(self.open.values()):
            tokens = answer_of(network, request)
            assert tokens == fake_tokens(request.token_ids, len(tokens))
            started = len(tokens) > 0
            if request.request_id not in self.disturbed | failed and started:
                assert len(tokens) == MAX_TOKENS
            abort_everywhere(network, request)
        network.step_all()
        assert network.idle(), (network.counts("p"), network.counts("d"))


TestTwoWorkers = TwoWorkers.TestCase
TestTwoWorkers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class TwoWorkersAhead(TwoWorkers):
    depth = 2


TestTwoWorkersAhead = TwoWorkersAhead.TestCase
TestTwoWorkersAhead.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
