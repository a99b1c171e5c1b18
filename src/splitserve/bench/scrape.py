"""Reads a gateway's own counters before and after a run."""

from dataclasses import dataclass

import aiohttp
from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True, slots=True)
class Handoffs:
    """What a gateway counted of its handoffs since its start. Bytes and seconds."""

    count: float
    kv_bytes: float
    exposed_s: float
    fallbacks: float

    def since(self, earlier: "Handoffs") -> "Handoffs":
        return Handoffs(
            self.count - earlier.count,
            self.kv_bytes - earlier.kv_bytes,
            self.exposed_s - earlier.exposed_s,
            self.fallbacks - earlier.fallbacks,
        )

    @property
    def mean_exposed_s(self) -> float:
        return self.exposed_s / self.count if self.count else 0.0


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """What all workers counted of prompts since their start: computed, and read from decode workers
    instead."""

    computed: float
    pulled: float

    def since(self, earlier: "PromptTokens") -> "PromptTokens":
        return PromptTokens(self.computed - earlier.computed, self.pulled - earlier.pulled)


async def read_handoffs(session: aiohttp.ClientSession, url: str) -> Handoffs:
    totals = await _totals(session, url)
    return Handoffs(
        totals.get("splitserve_handoff_exposed_seconds_count", 0.0),
        totals.get("splitserve_handoff_bytes_total", 0.0),
        totals.get("splitserve_handoff_exposed_seconds_sum", 0.0),
        totals.get("splitserve_fallback_total", 0.0),
    )


async def read_prompt_tokens(session: aiohttp.ClientSession, url: str) -> PromptTokens:
    totals = await _totals(session, url)
    return PromptTokens(
        totals.get("splitserve_prompt_tokens_computed_total", 0.0),
        totals.get("splitserve_pulled_tokens_total", 0.0),
    )


async def _totals(session: aiohttp.ClientSession, url: str) -> dict[str, float]:
    """Each sample's name, summed over its labels."""
    async with session.get(f"{url}/metrics") as answer:
        answer.raise_for_status()
        text = await answer.text()
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
