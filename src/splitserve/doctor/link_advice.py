"""What the measured links tell: paths that are slow, late or broken. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.doctor.costs import memcpy_of, served
from splitserve.doctor.findings import Advice, Link

SLOW_SHARE: Final = 0.25
"""Of a plain copy's rate. Paths within one host that copy once are well above it; measurements of a
second vary by less."""

FIRST_MS: Final = 2000.0

_COPY_ONCE: Final = frozenset({"shm", "cuda_ipc"})


def link_advice(links: Sequence[Link]) -> Iterator[Advice]:
    for link in served(links):
        name = f"{link.path}, {link.source} to {link.target}"
        if link.state in ("failed", "wrong"):
            yield _broken(name, link)
        elif link.state == "measured":
            yield from _slow(name, link, links)
            yield from _late(name, link)


def _broken(name: str, link: Link) -> Advice:
    wrong = link.state == "wrong"
    return Advice(
        "error" if wrong else "warning",
        "link",
        f"{name}: {link.why}",
        "do not serve over this path" if wrong else "take another connector until this is mended",
    )


def _slow(name: str, link: Link, links: Sequence[Link]) -> Iterator[Advice]:
    copy = memcpy_of(link, links)
    if (link.path, link.way) == ("nixl", "tcp"):
        yield Advice(
            "warning",
            "slow",
            f"{name}: UCX goes over TCP within this host, at {link.gb_per_s:.2f} GB/s",
            "let UCX copy between processes or GPUs: see UCX_TLS and kernel.yama.ptrace_scope",
        )
    elif copy is not None and link.path in _COPY_ONCE:
        share = link.gb_per_s / copy.gb_per_s
        if share < SLOW_SHARE:
            yield Advice(
                "warning",
                "slow",
                f"{name}: {link.gb_per_s:.2f} GB/s, {share:.0%} of a plain copy",
                "look for other work on these cores, and for GPUs without a direct link "
                "(nvidia-smi topo -m)",
            )


def _late(name: str, link: Link) -> Iterator[Advice]:
    if link.first_ms > FIRST_MS:
        yield Advice(
            "warning",
            "late",
            f"{name}: the first transfer of a pair takes {link.first_ms / 1000:.1f} s",
            "send a request through every pair before clients do; for UCX set UCX_NET_DEVICES",
        )
