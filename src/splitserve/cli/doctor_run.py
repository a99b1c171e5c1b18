"""Runs ``splitserve doctor``: looks, prints, and says by its exit code how bad it is."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from splitserve.cli.readings import print_progress
from splitserve.doctor.asking import check_url
from splitserve.doctor.deployment import examine_deployment
from splitserve.doctor.findings import Advice, Link, Machine, MachineReport, Report
from splitserve.doctor.link_advice import link_advice
from splitserve.doctor.links import measure_all
from splitserve.doctor.local_model import local_facts
from splitserve.doctor.machine import gather
from splitserve.doctor.machine_advice import machine_advice
from splitserve.doctor.places import wanted_links
from splitserve.doctor.text import report_lines
from splitserve.doctor.topology import examine_topology
from splitserve.launch.topology import read_topology
from splitserve.lifecycle import EXIT_START_FAILED

EXIT_WARNINGS = 1


def run(target: str | None, as_json: bool, ttft_ms: float, seconds: float) -> int:
    """Prints the report. Raises ConfigError for a wrong target and UnavailableError for a URL where
    nobody answers."""
    report = _report(target, ttft_ms, seconds)
    if as_json:
        print(msgspec.json.encode(report).decode())
    else:
        print("\n".join(report_lines(report)))
    return exit_code(report.advice)


def exit_code(advice: Iterable[Advice]) -> int:
    """Notes are no reason to fail."""
    levels = {one.level for one in advice}
    if "error" in levels:
        return EXIT_START_FAILED
    return EXIT_WARNINGS if "warning" in levels else 0


def _report(target: str | None, ttft_ms: float, seconds: float) -> Report:
    if target is None:
        machine, links = _measured(seconds)
        advice = (*machine_advice(machine), *link_advice(links))
        return MachineReport("machine", machine, links, advice)
    if "://" in target:
        check_url(target)
        return examine_deployment(target)
    topology = read_topology(Path(target))
    facts = local_facts(topology.model)
    machine, links = _measured(seconds)
    return examine_topology(target, topology, facts, machine, links, ttft_ms)


def _measured(seconds: float) -> tuple[Machine, tuple[Link, ...]]:
    machine = gather()
    wanted = wanted_links(machine.cores, machine.numa, len(machine.gpus))
    return machine, measure_all(wanted, seconds, print_progress)
