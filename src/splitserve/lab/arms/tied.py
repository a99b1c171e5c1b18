"""Becomes another program that ends when the lab does, in whatever way.

``python -m splitserve.lab.arms.tied PARENT_PID -- COMMAND ...``
"""

import os
import sys
from collections.abc import Sequence

from splitserve.errors import UnavailableError
from splitserve.lifecycle import EXIT_UNAVAILABLE, end_with_parent


def tied_command(command: Sequence[str]) -> tuple[str, ...]:
    """``command``, to be started by this process's main thread, tied to this process."""
    return (sys.executable, "-m", __name__, str(os.getpid()), "--", *command)


def main(arguments: Sequence[str]) -> int:
    """Returns only when the parent is gone or the program cannot be run."""
    parent, _, *command = arguments
    try:
        end_with_parent(int(parent))
        # The kernel keeps the tie across execve(2).
        os.execv(command[0], command)
    except (UnavailableError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 -- the arm's log is what reads it
    return EXIT_UNAVAILABLE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
