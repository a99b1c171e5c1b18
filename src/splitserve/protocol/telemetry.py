"""What a worker tells of itself, every 100 ms and on change."""

import msgspec


class KVCounts(msgspec.Struct, frozen=True):
    """Blocks by state (design: KV lifetime). ``total`` is always the sum of the others."""

    free: int
    cached: int
    held: int
    granted: int
    exported: int
    quarantined: int

    @property
    def total(self) -> int:
        return self.free + self.cached + self.held + self.granted + self.exported + self.quarantined

    @property
    def idle(self) -> bool:
        """True when no request holds anything: all blocks free or cached."""
        return self.free + self.cached == self.total


class TierCounts(msgspec.Struct, frozen=True):
    """What one ``level`` of the host's KV tier (``memory``, ``disk``) did for a worker since its
    start, in blocks. ``nbytes`` are those of ``hits``. ``evictions`` were sent away by this worker
    for lack of room, ``corrupt`` found not to be what they should."""

    level: str
    hits: int
    misses: int
    nbytes: int
    evictions: int
    corrupt: int


class LinkWay(msgspec.Struct, frozen=True):
    """How KV gets from a prefill worker to ``decode``: see ``transfer.base.Route``. ``faster`` is a
    way that could be taken instead, empty where this is the fastest."""

    decode: str
    way: str
    faster: str


class Load(msgspec.Struct, frozen=True, tag=True):
    """A worker's state. ``linked`` are the prefill workers attached to it (decode side) and
    ``waiting_tokens`` the prompt tokens not computed yet. ``role`` is what it wants to be sent;
    empty says nothing (see Welcome). ``gateways`` counts the connections that sent Hello.
    ``ways`` are those to the decode workers that it is linked to (prefill side).
    ``since_step_s`` is how long it has had work without a step, 0 while it has none.

    Since its start: ``computed_tokens`` of prompts were computed there, and ``pulled_tokens`` that
    it would have had to compute were read from decode workers instead, as ``pulled_bytes``;
    ``skipped_pulls`` times it computed what it could have read, since that was cheaper.
    ``tier`` has each level of its KV tier, and is empty without one.
    """

    kv: KVCounts
    running: int
    waiting: int
    waiting_tokens: int
    steps: int
    preemptions: int
    prefix_hit_tokens: int
    prefix_query_tokens: int
    linked: tuple[str, ...] = ()
    draining: bool = False
    role: str = ""
    gateways: int = 0
    since_step_s: float = 0.0
    computed_tokens: int = 0
    pulled_tokens: int = 0
    pulled_bytes: int = 0
    tier: tuple[TierCounts, ...] = ()
    ways: tuple[LinkWay, ...] = ()
    skipped_pulls: int = 0
