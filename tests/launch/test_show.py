"""What the terminal shows."""

import asyncio
import io

import pytest
from rich.console import Console

from splitserve.launch.keep import State, Supervised
from splitserve.launch.narrate import Narrator, describe_start
from splitserve.launch.plan import resolve
from splitserve.launch.show import show_log, show_plan, show_running, show_url, show_warnings
from splitserve.launch.spec import ProcessSpec
from splitserve.launch.topology import ModelAsked, Topology, WorkerGroup
from splitserve.lifecycle import StartFailed

from .test_plan import MACHINE, MODEL, PATHS


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=100)


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def process(name: str, state: State, note: str = "") -> Supervised:
    spec = ProcessSpec(name=name, role="decode", argv=("x",), address="unix:/x")
    return Supervised(spec, state=state, note=note)


def test_the_plan_says_what_kv_costs_before_anything_starts(console: Console) -> None:
    topology = Topology(
        model=ModelAsked(name="smollm2"),
        workers=(WorkerGroup(role="prefill"), WorkerGroup(role="decode")),
    )
    show_plan(console, resolve(topology, MACHINE, MODEL, PATHS))
    text = shown(console)
    assert text.count("46,592") == 2
    assert "KV cache 22.5 KiB a token, 220 MiB for 10,000" in text
    assert "up to 8,192 tokens a request" in " ".join(text.split())
    for line in ("prefill-0", "decode-0", "0,1", "2,3"):
        assert line in text


def test_the_plan_says_which_gpu_and_that_its_pool_is_sized_at_start(console: Console) -> None:
    group = WorkerGroup(device="cuda", count=2, gpu_memory_utilization=0.85)
    topology = Topology(model=ModelAsked(name="m"), workers=(group,))
    show_plan(console, resolve(topology, MACHINE, MODEL, PATHS))
    rows = [line.split() for line in shown(console).splitlines() if "colocated-" in line]
    assert [row[3:5] for row in rows] == [["cuda:0", "all"], ["cuda:1", "all"]]
    assert shown(console).count("free of 85% of the GPU  sized at start") == 2


def test_a_start_under_way_names_what_is_waited_for() -> None:
    ready, loading = process("a", State.READY), process("b", State.STARTING)
    assert describe_start([ready, loading], 4.4) == "1 of 2 ready, waiting for b (4 s)"
    assert describe_start([ready], 4.6) == "1 of 1 ready, waiting for a worker to be usable (5 s)"


async def test_without_a_terminal_a_long_start_is_told_again_and_again(console: Console) -> None:
    narrator = Narrator(console, remind_s=0)
    async with narrator.waiting_for([process("decode-0", State.STARTING)]):
        # The narrator has a loop of its own: what it has said is all there is to see.
        while shown(console).count("0 of 1 ready, waiting for decode-0") < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_without_a_terminal_a_short_start_is_told_by_its_changes(console: Console) -> None:
    narrator = Narrator(console)
    async with narrator.waiting_for([process("a", State.STARTING)]):
        narrator.changed(process("a", State.READY))
    narrator.changed(process("a", State.RESTARTING, "was killed by SIGKILL [sic]"))
    first, second = shown(console).splitlines()
    assert first.endswith(" a ready")
    assert second.endswith(" a restarting: was killed by SIGKILL [sic]")


async def test_a_terminal_counts_the_seconds() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    async with Narrator(console).waiting_for([process("a", State.STARTING)]):
        pass
    assert "starting" in shown(console)


def test_the_command_to_try_it_is_one_line_for_a_shell(console: Console) -> None:
    show_url(console, "http://127.0.0.1:8000", "it's", 1.25, asks_for_keys=False)
    text = shown(console)
    assert "Ready after 1.2 s" in text
    (command,) = (line for line in text.splitlines() if "curl" in line)
    assert command.endswith('"content": "Hello!"}]}\'')
    assert "it'\"'\"'s" in command
    assert "Authorization" not in command


def test_the_command_shows_where_a_key_goes(console: Console) -> None:
    show_url(console, "http://127.0.0.1:8000", "m", 1.0, asks_for_keys=True)
    assert '-H "Authorization: Bearer $KEY" -d ' in shown(console)


def test_warnings_and_logs_are_shown_as_they_are(console: Console) -> None:
    show_warnings(console, ["[one]", "two " + "long " * 40])
    show_log(console, StartFailed("a", "r", "/x/a.log", ["  [red]line"]))
    show_log(console, StartFailed("a", "r", "/x/b.log", []))
    lines = shown(console).splitlines()
    assert lines[0] == "warning: [one]"
    assert lines[1].startswith("warning: two long")
    assert lines[2:] == ["last lines of /x/a.log:", "    [red]line"]


def test_what_the_gateway_says_is_told_while_it_is_waited_for() -> None:
    ready = process("decode-0", State.READY)
    assert describe_start([ready], 4.4) == ("1 of 1 ready, waiting for a worker to be usable (4 s)")
    assert describe_start([ready], 4.4, ["decode-0: draining"]) == (
        "1 of 1 ready, waiting for a worker to be usable: decode-0: draining (4 s)"
    )


def test_instances_that_run_already_are_in_the_plan(console: Console) -> None:
    group = WorkerGroup(engine="vllm", url=("http://10.0.0.7:8100",))
    topology = Topology(model=ModelAsked(name="m"), workers=(group,))
    show_plan(console, resolve(topology, MACHINE, MODEL, PATHS))
    assert "colocated-0  colocated  vllm    runs already" in shown(console)
    assert "http://10.0.0.7:8100" in shown(console)


def test_of_a_vllm_instance_only_where_it_listens_is_shown(console: Console) -> None:
    address = "vllm+http://127.0.0.1:8100?name=a&engine_id=e:1"
    spec = ProcessSpec(name="a", role="decode", argv=("x",), address=address)
    show_running(console, [Supervised(spec)])
    assert shown(console).rstrip().endswith("vllm+http://127.0.0.1:8100")
