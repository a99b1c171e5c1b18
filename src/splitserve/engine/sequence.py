"""One sequence's state, what may be asked of one, and when it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from splitserve.engine.api import FirstToken, ModelInfo
from splitserve.engine.grammar.matcher import Matcher
from splitserve.engine.kv.prefix import root_digest
from splitserve.errors import CallerError
from splitserve.ids import RequestId
from splitserve.protocol.generate import FinishReason, GenerateRequest


@dataclass(slots=True, eq=False)
class Seq:
    """A prompt being continued.

    ``tokens`` is the prompt and the output so far; the first ``num_computed`` of them have KV in
    ``blocks``, or will once the open launches have run. A sequence with one token to compute
    decodes; one with more prefills; one with none waits for the token that an open launch chooses.
    ``order`` is its place in every queue: priority, then arrival.

    One that ``runs_ahead`` does not wait: ``PENDING`` stands for the token, which is the newest or,
    when another launch follows it, the one before.
    """

    request: GenerateRequest
    request_id: RequestId
    order: tuple[int, int]
    tokens: list[int]
    prompt_len: int
    min_len: int
    """Tokens there must be before an id in ``stops`` counts."""
    max_len: int
    """Tokens at which the sequence ends."""
    stops: dict[int, int | None]
    """Ids that end the answer, with the stop reason of each."""
    needs_history: bool
    runs_ahead: bool
    """Whether the choice of a token may be asked for before the one before it is known."""
    push: bool
    root: bytes
    """What the digest of the first block is chained to."""
    is_running: bool = False
    was_admitted: bool = False
    blocks: list[int] = field(default_factory=list)
    num_computed: int = 0
    digests: list[bytes] = field(default_factory=list)
    """Names of the first full blocks; kept over preemption, because the tokens are."""
    num_registered: int = 0
    """Blocks already offered to the prefix cache, or taken from it."""
    num_pushed: int = 0
    """Blocks already given to a sink (pushing sequences)."""
    queued_at: float = 0.0
    """When it came, or was granted its blocks: the engine's clock."""
    scheduled_at: float | None = None
    """When it first ran: its prompt, or what follows KV that came from elsewhere."""
    unheard: bool = True
    """Whether no token of it has come out here yet."""
    last_step: int = 0
    open_launches: int = 0
    """Launches not collected yet that write into ``blocks``: only without any may they be freed."""
    is_over: bool = False
    """Ended or aborted; ``blocks`` wait for the open launches."""
    sampled_row: int = 0
    """Number of its row among the sampled ones of the launch that chooses its newest token."""
    cached_tokens: int | None = None
    """Prompt tokens found in the prefix cache at the first scheduling."""
    matcher: Matcher | None = None
    """Holds a constrained answer to its grammar, from the first time a token is chosen here."""

    @property
    def remaining(self) -> int:
        """Tokens without KV."""
        return len(self.tokens) - self.num_computed

    def first_token(self, now: float) -> FirstToken:
        """What is told of the token that just came out, the first one here."""
        self.unheard = False
        scheduled = now if self.scheduled_at is None else self.scheduled_at
        return FirstToken(self.cached_tokens, scheduled - self.queued_at, now - scheduled)

    def forget_kv(self) -> None:
        """Back to the start: everything is to be computed again, nothing sampled again."""
        self.blocks = []
        self.num_computed = 0
        self.num_registered = 0
        self.num_pushed = 0

    def ending(self, length: int) -> tuple[FinishReason | None, int | None]:
        """Finish and stop reason with ``length`` tokens, all of them known; ``(None, None)`` if it
        goes on.

        As in vLLM a stop id wins over a length limit and counts from ``min_tokens`` on, and the
        model's own end-of-sequence has no stop reason. An id that ends a grammar always counts:
        nothing else could have been written.
        """
        token = self.tokens[length - 1]
        if self.matcher is not None and self.matcher.done:
            return "stop", self.stops.get(token)
        if token in self.stops and length >= self.min_len:
            return "stop", self.stops[token]
        if length >= self.max_len:
            return "length", None
        return None, None


def new_seq(
    request: GenerateRequest,
    info: ModelInfo,
    arrival: int,
    now: float = 0.0,
    *,
    emitted: Sequence[int] = (),
    push: bool = False,
) -> Seq:
    """The state in which a checked request starts; ``arrival`` counts an engine's requests, ``now``
    is when it came."""
    params = request.sampling
    prompt_len = len(request.token_ids)
    stops: dict[int, int | None] = {token: token for token in params.stop_token_ids}
    if not params.ignore_eos:
        stops.update(dict.fromkeys(info.eos_token_ids))
    return Seq(
        request=request,
        request_id=request.request_id,
        order=(request.priority, arrival),
        tokens=[*request.token_ids, *emitted],
        prompt_len=prompt_len,
        min_len=prompt_len + params.min_tokens,
        max_len=min(prompt_len + params.max_tokens, info.max_model_len),
        stops=stops,
        needs_history=params.needs_history,
        runs_ahead=not (push or params.needs_history or params.structured_outputs is not None),
        push=push,
        root=root_digest({"salt": request.cache_salt}),
        queued_at=now,
    )


def check_request(
    request: GenerateRequest, info: ModelInfo, *, emitted: Sequence[int] = (), push: bool = False
) -> None:
    """Raises CallerError when the request can never run in this engine, whatever else ends."""
    _check_ids(request, info, emitted)
    prompt_len, max_tokens = len(request.token_ids), request.sampling.max_tokens
    if prompt_len >= info.max_model_len:
        raise CallerError(
            f"the prompt has {prompt_len} tokens; prompt and answer together may have at most "
            f"{info.max_model_len}",
            param="prompt",
            code="context_length_exceeded",
        )
    if max_tokens < 1:
        raise CallerError(f"max_tokens is {max_tokens}; it must be at least 1", param="max_tokens")
    if len(emitted) >= max_tokens or prompt_len + len(emitted) >= info.max_model_len:
        raise CallerError(
            f"{len(emitted)} output tokens are there already: nothing is left to generate",
            param="max_tokens",
        )
    # The last token is never computed, so it needs no KV.
    positions = min(prompt_len + max_tokens, info.max_model_len) - 1
    if push:
        positions = prompt_len + len(emitted)
    _check_pool(prompt_len, positions, info)


def _check_ids(request: GenerateRequest, info: ModelInfo, emitted: Sequence[int]) -> None:
    if not request.token_ids:
        raise CallerError("the prompt has no tokens", param="prompt")
    sampling = request.sampling
    for param, ids in (
        ("prompt", request.token_ids),
        ("prompt", emitted),
        ("stop_token_ids", sampling.stop_token_ids),
        ("logit_bias", sampling.logit_bias),
    ):
        if ids and not (min(ids) >= 0 and max(ids) < info.vocab_size):
            raise CallerError(
                f"{param} has a token id outside 0 to {info.vocab_size - 1}", param=param
            )


def _check_pool(prompt_len: int, positions: int, info: ModelInfo) -> None:
    pool_tokens = info.layout.num_blocks * info.layout.block_size
    if positions <= pool_tokens:
        return
    if prompt_len > pool_tokens:
        raise CallerError(
            f"the prompt has {prompt_len} tokens; the KV pool holds {pool_tokens} "
            f"(max_model_len {info.max_model_len})",
            param="prompt",
            code="context_length_exceeded",
        )
    raise CallerError(
        f"the prompt's {prompt_len} tokens and max_tokens need KV for {positions}; the pool holds "
        f"{pool_tokens} (max_model_len {info.max_model_len})",
        param="max_tokens",
    )
