"""Whether the packages are installed that the lab needs and serving does not."""

from importlib.util import find_spec
from typing import Final

from splitserve.errors import UnavailableError

PACKAGES: Final = ("numpy", "scipy")


def missing() -> str:
    """What to install and why, in words; empty where nothing is missing."""
    names = [name for name in PACKAGES if find_spec(name) is None]
    if not names:
        return ""
    return f"the lab needs {' and '.join(names)}: pip install splitserve[lab]"


def require() -> None:
    """Raises UnavailableError where something is missing."""
    said = missing()
    if said:
        raise UnavailableError(said)
