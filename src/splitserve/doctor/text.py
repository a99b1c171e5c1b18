"""A report as lines for a terminal: aligned columns, whole at any width. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from splitserve.doctor.costs import memcpy_of
from splitserve.doctor.deployment_text import deployment_lines
from splitserve.doctor.findings import (
    Advice,
    DeploymentReport,
    Link,
    Machine,
    PlannedWorker,
    PromptCost,
    Report,
    TopologyReport,
)
from splitserve.doctor.places import MEMCPY
from splitserve.doctor.table import table
from splitserve.launch.sizes import format_size

_NOT_THERE: Final = "-"


def report_lines(report: Report) -> Iterator[str]:
    if isinstance(report, DeploymentReport):
        yield from deployment_lines(report)
    else:
        yield from _machine(report.machine)
        yield ""
        yield from _links(report.links)
        if isinstance(report, TopologyReport):
            yield from _topology(report)
    yield ""
    yield from _advice(report.advice)


def _machine(machine: Machine) -> Iterator[str]:
    gpus = [
        f"{gpu.index} {gpu.name} ({format_size(gpu.free_bytes)} of "
        f"{format_size(gpu.memory_bytes)} free)"
        for gpu in machine.gpus
    ]
    rows = [
        ("host", f"{machine.host}, Linux {machine.kernel}"),
        ("cpu", f"{machine.cpu}, cores {_numbers(machine.cores)}, load {machine.load:.1f}"),
        ("numa", "; ".join(f"{node.number}: {_numbers(node.cores)}" for node in machine.numa)),
        ("memory", _memory(machine)),
        ("/dev/shm", _part(machine.shm_free_bytes, machine.shm_bytes)),
        ("governor", ", ".join(machine.governors)),
        ("limits", _limits(machine)),
        ("gpus", "; ".join(gpus)),
        ("rdma", ", ".join(machine.rdma)),
        ("ucx", _ucx(machine)),
        ("models", f"{machine.hub_cache}{'' if machine.hub_cache_there else ' (not there)'}"),
    ]
    yield from table([(name, value or _NOT_THERE) for name, value in rows])
    yield ""
    yield from table([(name, said or _NOT_THERE) for name, said in machine.versions.items()])


def _memory(machine: Machine) -> str:
    swap = f", {format_size(machine.swap_bytes)} swapped out" if machine.swap_bytes else ""
    return _part(machine.available_bytes, machine.memory_bytes) + swap


def _part(free: int, whole: int) -> str:
    return f"{format_size(free)} of {format_size(whole)} free" if whole else ""


def _limits(machine: Machine) -> str:
    files = "any number of" if machine.open_files is None else str(machine.open_files)
    locked = machine.locked_bytes
    return f"{files} files, {'all' if locked is None else format_size(locked)} of memory locked"


def _ucx(machine: Machine) -> str:
    settings = (("UCX_TLS", machine.ucx_tls), ("UCX_NET_DEVICES", machine.ucx_net_devices))
    told = [f"{name}={value}" for name, value in settings if value is not None]
    return "; ".join([*told, f"ways for NIXL: {', '.join(machine.nixl_ways) or 'none'}"])


def _links(links: Sequence[Link]) -> Iterator[str]:
    header = ("path", "from", "to", "GB/s", "of memcpy", "latency", "first", "")
    yield from table([header, *(_link(link, links) for link in links)])


def _link(link: Link, links: Sequence[Link]) -> Sequence[str]:
    ends = link.path, link.source, link.target
    if link.state != "measured":
        return (*ends, *(_NOT_THERE,) * 4, f"{link.state}: {link.why}")
    copy = memcpy_of(link, links)
    share = "" if copy is None or link.path == MEMCPY else f"{link.gb_per_s / copy.gb_per_s:.0%}"
    first = _ms(link.first_ms) if link.first_ms else ""
    latency = _ms(link.latency_ms) if link.path != MEMCPY else ""
    way = f"probably by {link.way}" if link.way not in ("", link.path) else ""
    return (*ends, f"{link.gb_per_s:.3g}", share, latency, first, way)


def _topology(report: TopologyReport) -> Iterator[str]:
    yield from _workers(report)
    yield from _pairs(report)
    yield from _ports(report)
    yield from _prompts(report)


def _workers(report: TopologyReport) -> Iterator[str]:
    header = ("worker", "role", "engine", "device", "cores", "connector", "KV tokens")
    if report.workers:
        yield ""
        yield from table([header, *map(_worker, report.workers)])


def _worker(worker: PlannedWorker) -> Sequence[str]:
    return (
        worker.name,
        worker.role,
        worker.engine,
        worker.device or worker.url,
        "" if worker.url else _numbers(worker.cores) or "all",
        worker.connector,
        "" if worker.kv_tokens is None else f"{worker.kv_tokens:,}",
    )


def _pairs(report: TopologyReport) -> Iterator[str]:
    if report.pairs:
        yield ""
        yield from table(
            [
                ("from", "to", "connector", "why"),
                *((pair.prefill, pair.decode, pair.connector, pair.why) for pair in report.pairs),
            ]
        )


def _ports(report: TopologyReport) -> Iterator[str]:
    if report.ports:
        yield ""
        yield from table(
            [
                ("port", "of", "for", "must be", "is so"),
                *(
                    (
                        f"{port.host}:{port.number}",
                        port.user,
                        port.purpose,
                        port.must,
                        "yes" if port.right else "no",
                    )
                    for port in report.ports
                ),
            ]
        )


def _prompts(report: TopologyReport) -> Iterator[str]:
    model = report.model
    yield ""
    if model is None:
        yield "model: not here, so that the weight of its KV is not known"
        return
    yield (
        f"{model.name}: KV {format_size(model.kv_token_bytes)} a token; up to "
        f"{model.max_model_len:,} tokens a request; weights {format_size(model.weight_bytes)}"
    )
    if report.prompts:
        yield (
            "a prompt's KV over each path, and its share of the TTFT target of "
            f"{report.ttft_target_ms:.0f} ms:"
        )
        yield from table(_prompt_rows(report.prompts))


def _prompt_rows(prompts: Sequence[PromptCost]) -> list[Sequence[str]]:
    """A row for each path, a column for each length."""
    weights = {cost.tokens: cost.kv_bytes for cost in prompts}
    header = [f"{tokens:,} = {format_size(nbytes)}" for tokens, nbytes in weights.items()]
    cells: dict[tuple[str, str, str], dict[int, str]] = {}
    for cost in prompts:
        row = cells.setdefault((cost.path, cost.source, cost.target), {})
        row[cost.tokens] = f"{_ms(cost.ms)} ({cost.of_target:.1%})"
    return [
        ("path", "from", "to", *header),
        *((*ends, *(row.get(tokens, "") for tokens in weights)) for ends, row in cells.items()),
    ]


_LEVELS: Final = ("error", "warning", "note")


def _advice(advice: Sequence[Advice]) -> Iterator[str]:
    """The worst first."""
    if not advice:
        yield "nothing to complain of"
    for one in sorted(advice, key=lambda one: _LEVELS.index(one.level)):
        yield f"{one.level} ({one.about}): {one.says}"
        if one.cure:
            yield f"  do: {one.cure}"


def _ms(milliseconds: float) -> str:
    if milliseconds < 1:
        return f"{milliseconds * 1000:.0f} us"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _numbers(numbers: Sequence[int]) -> str:
    """``0-3,8``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
