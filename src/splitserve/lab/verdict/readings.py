"""The readings R1 to R22: what a pattern means and what to do next."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from splitserve.lab.verdict import reading_rules as rules
from splitserve.lab.verdict.facts import Facts
from splitserve.lab.verdict.outcome import Consequence, Heard


@dataclass(frozen=True, slots=True)
class Reading:
    """``rule`` says whether it is triggered; the texts are printed as they stand."""

    name: str
    rule: Callable[[Facts], bool | None]
    consequence: Consequence
    says: str
    action: str

    def read(self, facts: Facts) -> Heard:
        """The reading, applied."""
        return Heard(self.name, self.rule(facts), self.says, self.action, self.consequence)


READINGS: Final[tuple[Reading, ...]] = (
    Reading(
        "R1",
        rules.price_in_ttft,
        Consequence.NOTE,
        "Tail ITL fell and TTFT rose: not yet a success, and not one of decode alone.",
        "Look at input, queue, KV and proxy apart; more prefill if its queue grew, R8 if KV did.",
    ),
    Reading(
        "R2",
        rules.bought_with_errors,
        Consequence.BLOCKS,
        "TTFT fell and errors rose: retries and time-outs are shown by reason, failures as ∞.",
        "Fix the connector first.",
    ),
    Reading(
        "R3",
        rules.same_throughput,
        Consequence.NOTE,
        "Throughput is the same and tail ITL fell: as expected, and no claim about capacity.",
        "Valid if the SLO is tail ITL; a goodput search says more about capacity.",
    ),
    Reading(
        "R4",
        rules.only_short_prompts,
        Consequence.UNDECIDED,
        "No difference on short prompts: not yet a failure.",
        "Reproduce long prompts at the highest concurrency first.",
    ),
    Reading(
        "R5",
        rules.no_benefit,
        Consequence.KEEPS,
        "No difference on long prompts at the highest concurrency either: no benefit here.",
        "Keep the single configuration.",
    ),
    Reading(
        "R6",
        rules.chunks_suffice,
        Consequence.CHUNKED,
        "Chunked prefill meets the SLO, or lowers tail ITL as much as the split does.",
        "Try chunked prefill, the cheaper remedy.",
    ),
    Reading(
        "R7",
        rules.ttft_binds,
        Consequence.BLOCKS,
        "TTFT is the limit that binds, and it is not shown to fall or to stay.",
        "Keep the single configuration, or measure more pairs.",
    ),
    Reading(
        "R8",
        rules.slow_handoff,
        Consequence.BLOCKS,
        "The KV hand-off is the new limit.",
        "Fix its path (RDMA, peer to peer), then run the smallest split and the target again.",
    ),
    Reading(
        "R9",
        rules.already_met,
        Consequence.KEEPS,
        "The single configuration keeps its SLO with half of each limit to spare.",
        "Keep the single configuration.",
    ),
    Reading(
        "R10",
        rules.turns_recomputed,
        Consequence.NOTE,
        "Prefill computes earlier turns of a chat anew.",
        "Run a study whose only change is bidirectional transfer.",
    ),
    Reading(
        "R11",
        rules.frontend_busy,
        Consequence.NOTE,
        "The front end's CPU is the limit: text work, not prefill against decode.",
        "Split off the render tier first.",
    ),
    Reading(
        "R12",
        rules.lopsided,
        Consequence.NOTE,
        "One pool idles while the other is busy: a ratio was measured, not the split.",
        "Try other ratios of prefill to decode.",
    ),
    Reading(
        "R13",
        rules.decode_full,
        Consequence.NOTE,
        "Decode's KV pool is too small: its tail ITL comes from preemption.",
        "Change the ratio or the memory and run again.",
    ),
    Reading(
        "R14",
        rules.hidden_in_first_gap,
        Consequence.NOTE,
        "TTFT is the same and the first gap rose: the hand-off hides behind an early first token.",
        "Put the second token into the SLO.",
    ),
    Reading(
        "R15",
        rules.events_differ,
        Consequence.BLOCKS,
        "Tokens per event differ between the arms: ITL cannot be compared as it is.",
        "Compare ITL on the coarser events only.",
    ),
    Reading(
        "R16",
        rules.cache_differs,
        Consequence.INVALIDATES,
        "Cache hits differ between the arms: a cache was measured, not the split.",
        "Reset caches and run the pairs again.",
    ),
    Reading(
        "R17",
        rules.closed_loop_only,
        Consequence.NOTE,
        "It improves at equal concurrency but not at equal rate: the load throttled itself.",
        "The open-loop result decides.",
    ),
    Reading(
        "R18",
        rules.drifting,
        Consequence.UNDECIDED,
        "The effect changes over the order of runs or with the deployment's start.",
        "Measure more starts.",
    ),
    Reading(
        "R19",
        rules.kv_unused,
        Consequence.INVALIDATES,
        "Decode computed prompts itself: KV arrived nowhere, silently.",
        "Repair the hand-off and begin with the smallest split.",
    ),
    Reading(
        "R20",
        rules.more_gpus,
        Consequence.BLOCKS,
        "The arms hold different numbers of GPUs: added capacity.",
        "Compare goodput per GPU only.",
    ),
    Reading(
        "R21",
        rules.proxy_costs,
        Consequence.NOTE,
        "Behind a mere proxy TTFT is as high: the proxy costs the time, not KV.",
        "Fix the proxy.",
    ),
    Reading(
        "R22",
        rules.answers_differ,
        Consequence.BLOCKS,
        "Greedy answers differ in more cases than agreed.",
        "Correctness first.",
    ),
)
