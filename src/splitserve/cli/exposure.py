"""Says aloud when anybody may use an API."""

import os
import sys
from pathlib import Path

from splitserve.launch.addresses import exposure_warning


def warn_if_exposed(host: str, api_key_file: Path | None) -> None:
    """One line on stderr when others reach ``host`` and no key is asked for."""
    # Not at the top: the command line starts without what only servers need.
    from splitserve.frontend.access import keys_asked

    warning = exposure_warning(host)
    if warning is not None and not keys_asked(api_key_file, os.environ):
        print(f"warning: {warning}; see --api-key-file", file=sys.stderr)
