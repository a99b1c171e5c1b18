"""Every connector between processes that needs no GPU. Those with a package of their own are run by
``make interop``.
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

import pytest

from splitserve.transfer.registry import PACKAGES, connectors_for

CONNECTORS: Final = connectors_for("cpu")


def need(connector: str) -> None:
    """Skips the test, visibly, where its package is not installed or cannot be used."""
    try:
        import_module(PACKAGES.get(connector, "splitserve"))
    except ImportError as error:
        pytest.skip(f"the package of extra {connector} cannot be used: {error}")


def over(connector: str, *more: object, interop: bool = False) -> Any:
    """A parameter: the connector, or a tuple of it and ``more``. ``make interop`` runs it where the
    connector needs its package, or is told to."""
    marks = pytest.mark.interop if interop or connector in PACKAGES else ()
    value = (connector, *more) if more else connector
    return pytest.param(value, marks=marks, id="-".join(map(str, (connector, *more))))


def deployments(shapes: Sequence[str], run: Mapping[str, Sequence[str]]) -> Iterator[Any]:
    """A parameter for every connector and each of ``shapes``. What ``run`` does not name is left to
    ``make interop`` for its length: each is a deployment of its own."""
    for connector in CONNECTORS:
        for shape in shapes:
            yield over(connector, shape, interop=shape not in run.get(connector, ()))
