"""What every host promises: starting, ending and hearing of one process."""

import os
import sys
from pathlib import Path

import pytest

from launch.deployments import gone, spec
from splitserve.launch.hosts import HOSTS
from splitserve.launch.hosts.base import Host
from splitserve.launch.spec import ProcessSpec
from splitserve.loading import load


@pytest.fixture(params=sorted(HOSTS))
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Host:
    made: Host = load(HOSTS[request.param])(tmp_path)
    return made


def script(name: str, code: str, **env: str) -> ProcessSpec:
    return ProcessSpec(
        name=name, role="", argv=(sys.executable, "-c", code), address="", env=dict(env)
    )


async def test_output_of_all_lives_is_kept_in_order(host: Host) -> None:
    for word in ("one", "two"):
        code = f"import sys; print({word!r}); print('err', file=sys.stderr)"
        process = await host.start(script("a", code))
        assert not (await process.report()).ready
        assert await process.wait() == 0
    assert host.logs("a", 10) == ["one", "err", "two", "err"]
    assert host.logs("a", 1) == ["err"]
    assert host.logs("unheard", 1) == []


async def test_the_environment_is_added_to(host: Host) -> None:
    code = "import os; print(os.environ['OMP_NUM_THREADS'], os.environ['PATH'])"
    process = await host.start(script("a", code, OMP_NUM_THREADS="3"))
    await process.report()
    assert host.logs("a", 1) == [f"3 {os.environ['PATH']}"]


async def test_it_is_in_a_session_of_its_own(host: Host) -> None:
    process = await host.start(script("a", "import os; print(os.getsid(0) == os.getpid())"))
    await process.report()
    assert host.logs("a", 1) == ["True"]


async def test_stop_and_kill_of_an_ended_process_do_nothing(host: Host) -> None:
    process = await host.start(script("a", ""))
    await process.report()
    assert not process.alive()
    process.stop()
    process.kill()
    assert await process.wait() == 0


async def test_kill_reaches_its_helpers(host: Host) -> None:
    process = await host.start(spec("a", "family"))
    helper = int((await process.report()).facts["helper"])
    process.kill()
    assert await process.wait() == -9
    assert gone([helper], within_s=5)


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_no_file_descriptors_are_left_open(host: Host) -> None:
    async def one_life() -> None:
        process = await host.start(spec("a", "refuses"))
        await process.report()
        await process.wait()

    await one_life()
    before = open_files()
    await one_life()
    assert open_files() == before
