"""One vLLM instance as the deployment knows it, and its address as one line of text."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from splitserve.errors import ConfigError
from splitserve.ids import WorkerId
from splitserve.router.workers.vllm.dialects.base import Dialect, Instance
from splitserve.router.workers.vllm.dialects.nixl_turns import turn_facts

SCHEME: Final = "vllm+"
"""Before ``http://`` or ``https://``: what tells these addresses from those of native workers."""

ROLES: Final = ("colocated", "prefill", "decode")

KV_WAIT_S: Final = 30.0
"""NIXL's lease at the prefill instance: later than this, its blocks may have been used again."""


@dataclass(frozen=True, slots=True)
class VllmWorker:
    """``url`` is where its HTTP server is. ``kv_transfer_config`` is what it was started with, and
    ``facts`` what else its dialect wants to know (see Instance).

    ``max_num_seqs`` is its ``--max-num-seqs``, None where nobody knows. ``priorities``: it was
    started with ``--scheduling-policy priority``; others refuse a priority. ``tells_times``: with
    ``--enable-per-request-metrics``. ``kv_wait_s`` is how long decode may wait for its first token
    once prefill has answered.
    """

    name: WorkerId
    role: str
    url: str
    kv_transfer_config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    api_key: str = field(default="", repr=False)
    max_num_seqs: int | None = None
    priorities: bool = False
    tells_times: bool = False
    kv_wait_s: float = KV_WAIT_S

    @property
    def instance(self) -> Instance:
        turns = turn_facts(self.kv_transfer_config, self.facts)
        return Instance(self.url, {**self.facts, **turns})


def parse_address(address: str, api_key: str = "") -> VllmWorker:
    """``vllm+http://host:port?name=decode-0&role=decode&connector=NixlConnector&engine_id=...``.

    Without ``name`` it is called ``host:port``, without ``role`` it does everything. What is none
    of the settings' names is a fact for its dialect; digits are a number. Raises ConfigError.
    """
    parts = urlsplit(address.removeprefix(SCHEME))
    if not address.startswith(SCHEME) or parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigError(f"address {address!r} is not of the form vllm+http://host:port")
    given: dict[str, Any] = dict(parse_qsl(parts.query))
    name, role = given.pop("name", parts.netloc), given.pop("role", "colocated")
    if role not in ROLES:
        raise ConfigError(f"address {address!r}: role {role!r} is none of {', '.join(ROLES)}")
    kv_keys = {"connector": "kv_connector", "kv_role": "kv_role"}
    seats = given.pop("max_num_seqs", None)
    if seats is not None and not seats.isdigit():
        raise ConfigError(f"address {address!r}: max_num_seqs {seats!r} is no number")
    return VllmWorker(
        name=WorkerId(name),
        role=role,
        url=f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}",
        kv_transfer_config={kv_keys[key]: given.pop(key) for key in kv_keys if key in given},
        priorities=given.pop("priorities", "") == "1",
        tells_times=given.pop("per_request_metrics", "") == "1",
        facts={key: int(value) if value.isdigit() else value for key, value in given.items()},
        api_key=api_key,
        max_num_seqs=None if seats is None else int(seats),
    )


def missing_facts(worker: VllmWorker, dialect: Dialect | None, role: str) -> list[str]:
    """What the dialect needs of an instance in that role and nobody told."""
    needs = () if dialect is None else dialect.needs.get(role, ())
    return [fact for fact in needs if fact not in worker.facts]
