"""Reports as text: everything found is in a line, in columns."""

from splitserve.doctor.costs import prompt_costs
from splitserve.doctor.findings import (
    Advice,
    ClockOffset,
    Handoffs,
    MachineReport,
    PlannedWorker,
    Port,
    RunningLink,
    RunningWorker,
    TopologyReport,
)
from splitserve.doctor.table import table
from splitserve.doctor.text import report_lines

from .made import H200, MODEL, deployment, link, links, machine, pair

ADVICE = (
    Advice("note", "a", "first", "do a"),
    Advice("error", "b", "second", ""),
)


def row(lines: list[str], *begins: str) -> str:
    """The one line whose first words these are."""
    (found,) = [line for line in lines if line.split()[: len(begins)] == list(begins)]
    return found


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert list(table([("a", "b", ""), ("long", "c", "d")])) == ["a     b", "long  c  d"]


def test_a_machine_is_shown_with_its_links_compared_with_memcpy() -> None:
    missing = link("cuda_ipc", ("cuda:0", "cuda:1"), state="missing", why="no torch")
    found = (*links(), missing)
    lines = list(report_lines(MachineReport("machine", machine(gpus=(H200,)), found, ())))
    assert "0 H200 (139 GiB of 140 GiB free)" in row(lines, "gpus")
    assert "cores 0-3" in row(lines, "cpu")
    assert row(lines, "vllm") == "vllm        -"
    assert row(lines, "shm", "cpu").split()[3:] == ["6", "75%", "100", "us", "5", "ms"]
    assert row(lines, "nixl", "cpu").endswith("probably by shm")
    assert row(lines, "cuda_ipc").endswith("missing: no torch")
    assert lines[-1] == "nothing to complain of"


def test_the_worst_is_said_first() -> None:
    lines = list(report_lines(MachineReport("machine", machine(), links(), ADVICE)))
    assert lines[-3:] == ["error (b): second", "note (a): first", "  do: do a"]


def test_a_topology_is_shown_with_what_prompts_cost() -> None:
    report = TopologyReport(
        kind="topology",
        topology="t.toml",
        ttft_target_ms=1000.0,
        machine=machine(),
        links=links(),
        model=MODEL,
        workers=(
            PlannedWorker("prefill-0", "prefill", "native", "cpu", (0, 1), "shm", 1000),
            PlannedWorker("decode-0", "decode", "vllm", "", (), "", None, "http://a"),
        ),
        pairs=(pair(),),
        ports=(Port("h", 8000, "gateway", "http", "free", False),),
        prompts=prompt_costs(MODEL, links(), 1000.0),
        advice=(),
    )
    lines = list(report_lines(report))
    assert row(lines, "prefill-0", "prefill").split()[2:] == [
        "native",
        "cpu",
        "0-1",
        "shm",
        "1,000",
    ]
    assert row(lines, "decode-0").split() == ["decode-0", "decode", "vllm", "http://a"]
    assert row(lines, "prefill-0", "decode-0").endswith("w")
    assert row(lines, "h:8000").split()[1:] == ["gateway", "http", "free", "no"]
    costs = next(line for line in lines if line.startswith("shm") and "%)" in line)
    assert "137 ms (13.7%)" in costs
    assert any("8,192 = 781 MiB" in line for line in lines)


def test_a_topology_that_would_not_start_has_no_table_of_workers() -> None:
    report = TopologyReport(
        kind="topology",
        topology="t.toml",
        ttft_target_ms=1000.0,
        machine=machine(),
        links=links(),
        model=None,
        workers=(),
        pairs=(),
        ports=(),
        prompts=(),
        advice=ADVICE,
    )
    lines = list(report_lines(report))
    assert not [line for line in lines if line.startswith("worker")]
    assert row(lines, "model:")


def test_a_deployment_is_shown() -> None:
    report = deployment(
        workers=(RunningWorker("d0", True, "closed", 2.0, 1.0, 0.0, {"free": 5.0, "held": 0.0}),),
        links=(RunningLink("p0", "d0", "tcp", "tcp", "shm"),),
        handoffs=Handoffs(4, 1 << 20, 2.5, {}),
        clock=ClockOffset(0.25, 0.6),
    )
    lines = list(report_lines(report))
    assert row(lines, "d0").split() == ["d0", "yes", "closed", "2", "1", "5", "free"]
    assert row(lines, "p0").split() == ["p0", "d0", "tcp", "tcp", "(shm", "could", "be", "taken)"]
    assert "4 with 1 MiB, 2.5 ms exposed" in row(lines, "handoffs")
    assert "+0.25 s" in row(lines, "clock")
