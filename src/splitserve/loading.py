"""Resolves the ``module:attr`` strings of the seam tables, importing late.

So a heavy package is imported by the process that uses it and by no other.
"""

from importlib import import_module
from typing import Any


def load(target: str) -> Any:
    """The object that ``package.module:attr`` names. Raises ImportError or AttributeError as is."""
    module_name, _, attr = target.partition(":")
    return getattr(import_module(module_name), attr)
