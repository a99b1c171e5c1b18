"""What a prompt's KV weighs, and how long it takes on each path. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from splitserve.doctor.findings import Link, ModelKV, Pair, PromptCost
from splitserve.doctor.places import MEMCPY, SOCKET

PROMPTS: Final = (1024, 8192, 32768)

TRANSFER_SHARE: Final = 0.1
"""Of the TTFT target: more than this for the transfer alone leaves too little for the prompt."""


def transfer_ms(nbytes: int, link: Link) -> float:
    """Milliseconds of so many bytes over a measured link."""
    return nbytes / link.gb_per_s / 1e6 + link.latency_ms


def prompt_costs(
    model: ModelKV, links: Iterable[Link], ttft_target_ms: float
) -> tuple[PromptCost, ...]:
    """Of each of PROMPTS over each measured link."""
    measured = [link for link in links if link.state == "measured"]
    return tuple(
        _cost(tokens, tokens * model.kv_token_bytes, link, ttft_target_ms)
        for tokens in PROMPTS
        for link in measured
    )


def link_of(pair: Pair, links: Iterable[Link]) -> Link | None:
    """The measured link that stands for a pair's path: where several do, the slowest, since nothing
    says between which NUMA nodes or GPUs the workers will be. None where none does."""
    fitting = [
        link
        for link in links
        if link.state == "measured"
        and link.path == pair.path
        and link.source.startswith("cuda") == pair.on_gpu
    ]
    return min(fitting, key=lambda link: link.gb_per_s, default=None)


def memcpy_of(link: Link, links: Iterable[Link]) -> Link | None:
    """The plain copy to compare ``link`` with: between the same devices, or within the host."""
    for other in links:
        if other.path != MEMCPY or other.state != "measured":
            continue
        on_gpu = link.source.startswith("cuda")
        if (other.source, other.target) == (link.source, link.target) or (
            not on_gpu and not other.source.startswith("cuda")
        ):
            return other
    return None


def served(links: Iterable[Link]) -> Iterator[Link]:
    """Those that a worker could use, without what they are compared with."""
    return (link for link in links if link.path not in (MEMCPY, SOCKET))


def _cost(tokens: int, kv_bytes: int, link: Link, ttft_target_ms: float) -> PromptCost:
    ms = transfer_ms(kv_bytes, link)
    return PromptCost(
        tokens, kv_bytes, link.path, link.source, link.target, ms, ms / ttft_target_ms
    )
