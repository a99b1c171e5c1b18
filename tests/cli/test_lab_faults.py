"""What stops a study: it is said in a line, and the study goes on from there, whole."""

import asyncio
import re
from pathlib import Path

from aiohttp import web

from lab.run.served import Served, served
from lab.run.tiny_study import url_study
from splitserve.lab.plan.phases import runs_of
from splitserve.lab.plan.resolve import read_plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.journal import State

from .lab_process import VERDICTS, assert_whole, lab, start_lab, states_of


def numbers(study: Path) -> set[int]:
    return {run.number for run in runs_of(read_plan(study))}


async def test_a_full_disk_is_one_line_with_its_cure_and_the_study_goes_on_afterwards(
    tmp_path: Path,
) -> None:
    # The records of a run of ten requests take some 8 kB, those of one of twenty twice that.
    async with served() as one, served() as split:
        study, out = url_study(tmp_path, one.url, split.url), tmp_path / "out"
        ended = await lab("run", study, "--out", out, room=13_000)
        error, hint = ended.err.splitlines()[-2:]
        told = re.fullmatch(
            rf"error: {out}/runs/(\d+)/requests\.jsonl cannot be written: [\w ]+; "
            r"raise the limit on the size of files \(ulimit -f\)",
            error,
        )
        assert ended.code == 40
        assert told is not None
        number, all_runs = int(told[1]), numbers(study)
        assert hint.startswith(f"{number - 1} of {len(all_runs)} runs are complete and kept")
        assert hint.endswith(f"Go on with: splitserve lab resume {study} --out {out}")
        resumed = await lab("resume", study, "--out", out)
    assert number > 1
    assert resumed.code in VERDICTS
    states = states_of(StudyFolder(out))[number]
    assert states == [State.STARTED, State.VOID, State.STARTED, State.MEASURED, State.ACCEPTED]
    assert_whole(StudyFolder(out), all_runs)
    assert not list(out.rglob("*.part"))


async def test_a_disk_that_is_full_from_the_start_begins_nothing(tmp_path: Path) -> None:
    study = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2")
    ended = await lab("run", study, "--out", tmp_path / "out", room=10)
    assert (ended.code, ended.out) == (40, "")
    error, hint = ended.err.splitlines()
    assert "plan.toml cannot be written" in error
    assert hint == "nothing was begun"


async def test_a_report_that_does_not_fit_keeps_the_runs(tmp_path: Path) -> None:
    study, out = url_study(tmp_path, "http://127.0.0.1:1", "http://127.0.0.1:2"), tmp_path / "out"
    await lab("run", study, "--out", out)
    ended = await lab("report", study, "--out", out, room=100)
    assert ended.code == 40
    error, hint = ended.err.splitlines()[-2:]
    assert "verdict.json cannot be written" in error
    assert hint.endswith(f"Go on with: splitserve lab report {study} --out {out}")


async def test_a_server_that_dies_in_a_run_is_waited_for_by_nobody_and_resumed_from(
    tmp_path: Path,
) -> None:
    async with served() as one, served() as split:
        study, out = url_study(tmp_path, one.url, split.url), tmp_path / "out"
        port, stopping = int(one.url.rpartition(":")[2]), []

        def die(number: int) -> None:
            # A run of ten requests, and into the next.
            if number == 20:
                stopping.append(asyncio.get_running_loop().create_task(one.stop()))

        one.after = die
        ended = await lab("run", study, "--out", out)
        await asyncio.gather(*stopping)
        assert ended.code == 40
        assert "void: the server did not live through it" in ended.err
        assert "error: " in ended.err
        assert "Traceback" not in ended.err
        again = Served()
        await again.start(port)
        try:
            resumed = await lab("resume", study, "--out", out)
        finally:
            await again.stop()
    assert resumed.code in VERDICTS
    assert any(State.VOID in states for states in states_of(StudyFolder(out)).values())
    assert_whole(StudyFolder(out), numbers(study))


async def test_a_killed_lab_is_resumed_by_its_command(tmp_path: Path) -> None:
    async with served() as one, served() as split:
        study, out = url_study(tmp_path, one.url, split.url), tmp_path / "out"
        measuring = asyncio.Event()
        one.after = lambda number: measuring.set() if number == 40 else None
        process = await start_lab("run", study, "--out", out)
        await measuring.wait()
        process.kill()
        await process.communicate()
        before = states_of(StudyFolder(out))
        assert any(states[-1] is not State.ACCEPTED for states in before.values())
        resumed = await lab("resume", study, "--out", out)
    assert resumed.code in VERDICTS
    assert_whole(StudyFolder(out), numbers(study))


async def test_a_url_of_something_else_is_told_in_a_line(tmp_path: Path) -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="<html>hello</html>", content_type="text/html")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        ended = await lab("run", url_study(tmp_path, url, url), "--out", tmp_path / "out")
    finally:
        await runner.cleanup()
    assert ended.code in (2, 40)
    told = next(line for line in ended.err.splitlines() if line.startswith("error: "))
    assert url in told
    assert "Traceback" not in ended.err
