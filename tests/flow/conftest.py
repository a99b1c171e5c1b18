"""What flow tests share."""

from collections.abc import Iterator

import pytest
from cluster import FAKE, Cluster, running
from tiny_model import make_model_folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a tokenizer and no weights: enough for the fake engine."""
    return str(make_model_folder(tmp_path_factory.mktemp("model") / "tiny"))


@pytest.fixture
def split(model: str) -> Iterator[Cluster]:
    """One prefill and one decode worker, slow enough that a test can act in every state."""
    flags = (*FAKE, "--fake-step-ms", "5", "--fake-prefill-us-per-token", "2000")
    flags = (*flags, "--max-num-batched-tokens", "32")
    with running(model, [("prefill", "p0"), ("decode", "d0")], flags) as cluster:
        yield cluster
