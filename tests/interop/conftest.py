"""What the tests against real vLLM share: instances live as long as they are of use, since each
takes half a minute to come up."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "flow"))

from vllm_fleet import Fleet, example_fleet, pull_fleet, push_fleet
from vllm_model import model_folder

FIRST = ("test_vllm_lab_client", "test_vllm_example", "test_vllm_push", "test_vllm_turns")
LAST = "test_vllm_deaths"
LAST_IN_FILE = (
    "two_prefill",
    "without_a_tokenizer",
    "prefill_instance_that_is_killed",
    "decode_instance_that_is_killed",
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """As few instances as possible at once: first come the files that have instances of their own.
    Tests that start or kill instances come after those that need them as they were. The order of
    all others, however random, stays."""
    files = list(dict.fromkeys(item.path for item in items))
    items.sort(
        key=lambda item: (
            item.path.stem not in FIRST,
            item.path.stem == LAST,
            files.index(item.path),
            [part in item.name for part in reversed(LAST_IN_FILE)],
        )
    )


@pytest.fixture(scope="session")
def folder() -> Path:
    return model_folder()


@pytest.fixture(scope="session")
def pulling(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A prefill and a decode instance, and another prefill instance ``p1`` that is not started."""
    with pull_fleet(folder, tmp_path_factory.mktemp("pull")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def pushing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with push_fleet(folder, tmp_path_factory.mktemp("push")) as fleet:
        yield fleet


@pytest.fixture(scope="module")
def sharing(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Two instances that share a folder."""
    with example_fleet(folder, tmp_path_factory.mktemp("example")) as fleet:
        yield fleet
