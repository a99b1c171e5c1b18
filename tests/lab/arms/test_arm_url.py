"""An arm that runs already."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.run.served import Served, served
from lab.run.tiny_study import url_study
from splitserve.errors import ConfigError, UnavailableError
from splitserve.lab.arms.url import UrlArm
from splitserve.lab.plan.resolve import read_plan


@pytest.fixture
async def server() -> AsyncIterator[Served]:
    async with served() as running:
        yield running


def arm_at(url: str, folder: Path, *, reset_cache: bool = False, key: Path | None = None) -> UrlArm:
    plan = read_plan(url_study(folder, "http://127.0.0.1:2", url))
    return UrlArm(plan.split, key, reset_cache)


async def test_it_is_described_by_what_it_says_and_what_the_plan_says(
    server: Served, tmp_path: Path
) -> None:
    arm = arm_at(f"{server.url}/v1", tmp_path)
    await arm.start()
    described = await arm.describe()
    assert described.live == {"model.max_model_len": 4096, "software.version": "1.0"}
    assert described.config["prefill.connector"] == "shm"
    assert await arm.metrics() == {}


async def test_it_runs_on_when_the_study_is_over(server: Served, tmp_path: Path) -> None:
    arm = arm_at(server.url, tmp_path)
    await arm.start()
    await arm.stop()
    assert await arm.alive() is None


async def test_an_address_where_nobody_answers_is_named(tmp_path: Path) -> None:
    arm = arm_at("http://127.0.0.1:1", tmp_path)
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1/v1/models does not answer"):
        await arm.start()


async def test_a_server_of_another_model_is_refused(server: Served, tmp_path: Path) -> None:
    server.model = "huge"
    with pytest.raises(ConfigError, match="serves huge and not tiny; set the arm's served_as"):
        await arm_at(server.url, tmp_path).start()


async def test_a_cache_that_cannot_be_reset_is_said_so(server: Served, tmp_path: Path) -> None:
    arm = arm_at(server.url, tmp_path, reset_cache=True)
    with pytest.raises(UnavailableError, match=r"reset_prefix_cache answers 404; take another"):
        await arm.reset()


async def test_its_key_is_sent_and_told_to_nobody(server: Served, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a-secret-key\n")
    arm = arm_at(server.url, tmp_path, key=key)
    assert arm.endpoint.headers == {"Authorization": "Bearer a-secret-key"}
    assert "a-secret-key" not in repr(arm.endpoint)
    assert "a-secret-key" not in repr(await arm.describe())
