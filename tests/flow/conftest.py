"""What flow tests share."""

from collections.abc import Iterator

import pytest
from cluster import SLOW_PAIR, Cluster, running
from tiny_model import make_model_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tokenizer and no weights: enough for the fake engine."""
    return str(make_model_folder(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture
def split(model: str) -> Iterator[Cluster]:
    """One prefill and one decode worker, slow enough that a test can act in every state."""
    with running(model, *SLOW_PAIR) as cluster:
        yield cluster
