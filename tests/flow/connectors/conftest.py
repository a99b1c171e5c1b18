"""What flow tests of connectors share."""

from collections.abc import Generator

import pytest
from cluster import Cluster, tail

from connectors.usable import CONNECTORS, need, over

LINES = 60


@pytest.fixture(scope="module", params=map(over, CONNECTORS))
def connector(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    need(name)
    return name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With what fails it tells the last words of each process, also of one that is over."""
    report = yield
    rig = item.funcargs.get("rig")
    if report.failed and isinstance(rig, Cluster):
        for log in sorted(rig.run_dir.glob("*.log")) + sorted(rig.run_dir.glob("*.broke")):
            report.sections.append((log.name, tail(log, LINES)))
    return report
