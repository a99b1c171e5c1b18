"""Each family's model is made once."""

import pytest
from native_rig import FAMILIES, Saved, save


@pytest.fixture(scope="session", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """One model of each family in turn: its folder, and transformers' own."""
    path = tmp_path_factory.mktemp(request.param)
    return path, save(FAMILIES[request.param], path)


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    path = tmp_path_factory.mktemp("llama")
    return path, save(FAMILIES["llama"], path)
