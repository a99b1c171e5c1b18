"""What a returned dict must hold, key by key. Every check raises DialectError.

vLLM's scheduler reads these keys without looking: a missing or wrong one fails an assertion in the
engine or parks the request for ever, so nothing unchecked may reach a decode instance.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from splitserve.router.workers.vllm.dialects.base import DialectError, Instance

_HOST: Final = re.compile(r"[A-Za-z0-9_.:%\[\]-]{1,255}")
_WILDCARDS: Final = frozenset({"0.0.0.0", "::", "[::]"})
_ID: Final = re.compile(r"[!-+\--~]{1,512}")
_MAX_BLOCK_ID: Final = 2**31 - 1
_MAX_SIZE: Final = 65_536

STEERING: Final = frozenset(
    {
        "disagg_spec",
        "prompt_token_ids",
        "remote_bootstrap_addr",
        "remote_decoder",
        "remote_hosts",
        "remote_kv_source",
        "remote_prefiller",
    }
)
"""Keys that no instance returns and that would send decode to another address or prompt."""


@dataclass(frozen=True, slots=True)
class Fields:
    """One returned dict under inspection. ``source`` names whose it is in messages."""

    values: Mapping[str, Any]
    source: str

    def wrong(self, key: str, want: str) -> DialectError:
        got = repr(self.values[key]) if key in self.values else "nothing"
        return DialectError(f"{self.source} returned {got[:80]} as {key}: expected {want}")

    def given(self, key: str) -> bool:
        """Whether an optional key is there. A null would be read as a value."""
        return key in self.values

    def told(self, key: str) -> bool:
        """Whether a key that vLLM itself may return as null says anything."""
        return self.values.get(key) is not None

    def exactly(self, key: str, value: bool | str) -> None:
        found = self.values.get(key)
        if type(found) is not type(value) or found != value:
            raise self.wrong(key, repr(value))

    def boolean(self, key: str) -> None:
        if not isinstance(self.values.get(key), bool):
            raise self.wrong(key, "true or false")

    def identity(self, key: str) -> str:
        """An id: visible ASCII and no comma, with which vLLM joins ids."""
        found = self.values.get(key)
        if not isinstance(found, str) or _ID.fullmatch(found) is None:
            raise self.wrong(key, "an id without spaces and commas")
        return found

    def host(self, key: str) -> str:
        """A name or an IP address that a peer can connect to."""
        found = self.values.get(key)
        if not isinstance(found, str) or _HOST.fullmatch(found) is None or found in _WILDCARDS:
            raise self.wrong(key, "a host that decode can connect to")
        return found

    def integer(self, key: str, low: int, high: int) -> int:
        found = self.values.get(key)
        if not _is_int(found, low, high):
            raise self.wrong(key, f"an integer from {low} to {high}")
        number: int = self.values[key]
        return number

    def port(self, key: str) -> int:
        return self.integer(key, 1, 65_535)

    def size(self, key: str) -> int:
        """A parallel size: 1 or more."""
        return self.integer(key, 1, _MAX_SIZE)

    def count(self, key: str) -> int:
        return self.integer(key, 0, _MAX_BLOCK_ID)

    def moment(self, key: str) -> None:
        """Seconds on some other process's clock."""
        found = self.values.get(key)
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if not number or not math.isfinite(float(self.values[key])):
            raise self.wrong(key, "a finite number of seconds")

    def blocks(self, key: str) -> None:
        """One list of block ids per KV cache group, with at least one block in all."""
        groups = self.values.get(key)
        if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
            raise self.wrong(key, "a list of lists of block ids")
        if not all(_is_int(block, 0, _MAX_BLOCK_ID) for group in groups for block in group):
            raise self.wrong(key, "block ids of 0 or more")
        if not any(groups):
            raise self.wrong(key, "at least one block")

    def passed_on(self) -> dict[str, Any]:
        """All keys but vLLM's own notes (``_...``): newer versions add keys that decode wants.

        Raises DialectError for one that would steer decode elsewhere.
        """
        for key in sorted(STEERING & self.values.keys()):
            raise self.wrong(key, "no such key from an instance")
        return {key: value for key, value in self.values.items() if not key.startswith("_")}


def fields(returned: object, source: str) -> Fields:
    """Raises DialectError when nothing, or nothing like a dict, came back."""
    if not isinstance(returned, Mapping):
        raise DialectError(f"{source} returned no kv_transfer_params: nothing to decode from")
    if not all(isinstance(key, str) for key in returned):
        raise DialectError(f"{source} returned kv_transfer_params with keys that are not strings")
    return Fields(returned, source)


def fact(instance: Instance, key: str) -> Any:
    """What is known of an instance and cannot be done without. Raises DialectError, unknown."""
    found = instance.facts.get(key)
    if found is None:
        raise DialectError(f"{key} of {instance.url} is not known: say it in the topology")
    return found


def holds_blocks(returned: object) -> bool:
    """Whether an answer says that the instance keeps KV for somebody."""
    groups = returned.get("remote_block_ids") if isinstance(returned, Mapping) else None
    return isinstance(groups, list) and any(groups)


def _is_int(value: object, low: int, high: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
