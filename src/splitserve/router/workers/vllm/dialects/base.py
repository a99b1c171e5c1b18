"""Dialect: what goes into the two requests of one handoff, and what comes back. Pure.

A handoff has a prefill leg (the prompt and one token) and a decode leg (the prompt again). Which
``kv_transfer_params`` go where, and whether decode must wait for prefill, depends on the KV
connector that both vLLM instances were started with (vLLM 0.32 and, where it differs, 0.23).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from splitserve.errors import PeerError
from splitserve.ids import HandoffId

Params = Mapping[str, Any]
"""``kv_transfer_params`` of a request or of an answer."""


class DialectError(PeerError):
    """What an instance returned cannot be used for a handoff. The message names key and source."""


@dataclass(frozen=True, slots=True)
class Instance:
    """What is known of one running vLLM instance.

    ``url`` is its HTTP address. ``facts`` are what the topology, its command or its endpoints tell
    of its connector: ``engine_id``, ``side_channel_host``, ``side_channel_port``, ``tp_size``,
    ``pp_size``, ``dp_rank``, ``bootstrap_addr``, ... A dialect says in ``needs`` which it wants.
    """

    url: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Leg:
    """What one of the two requests has beside prompt and sampling settings.

    ``params`` None leaves ``kv_transfer_params`` out. ``headers`` are added to the request; an
    ``X-Request-Id`` among them replaces the usual one, and is then the id to abort by.
    """

    params: Params | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Dialect(Protocol):
    """``concurrent``: decode may be asked before prefill has answered. ``needs``: facts that an
    instance must have, by part (``prefill``, ``decode``)."""

    @property
    def name(self) -> str: ...

    @property
    def concurrent(self) -> bool: ...

    @property
    def needs(self) -> Mapping[str, tuple[str, ...]]: ...

    def prefill(self, handoff: HandoffId, prefill: Instance, decode: Instance) -> Leg:
        """The prefill leg. Both legs carry ``X-Request-Id: <handoff>``."""
        ...

    def decode(
        self, handoff: HandoffId, prefill: Instance, decode: Instance, returned: Params | None
    ) -> Leg:
        """The decode leg. ``returned`` is what prefill's answer had, None when it had nothing or
        (``concurrent``) is not there yet.

        Raises DialectError unless everything that vLLM reads without looking is there and sound:
        a wrong dict kills or hangs an engine.
        """
        ...

    def release(self, returned: Params | None, prefill: Instance | None = None) -> Params | None:
        """``kv_transfer_params`` of a request that makes some decode instance let prefill's blocks
        go, when nobody will decode; None when nothing is held or only time frees it (also when
        ``returned`` is not sound). With ``prefill`` the answer must also name its own address."""
        ...
