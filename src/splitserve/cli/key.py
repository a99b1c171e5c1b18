"""``splitserve key``: a new key for a client."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def key(
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="Whose key it is.", show_default=False)
    ],
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Add the line to this key file, which is made where there is none.",
            show_default="print it on stderr",
        ),
    ] = None,
) -> int:
    """Make a key and print it on stdout, once: only its hash is kept.

    The line `OWNER:sha256:...` belongs into the file that `--api-key-file` names. Gateways read
    that file when they start.
    """
    from splitserve.frontend.access import append_key, new_key

    made, line = new_key(owner)
    if file is None:
        print(line, file=sys.stderr)
    else:
        append_key(file, line)
    print(made)
    return 0
