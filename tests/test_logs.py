import re
import subprocess
import sys

SCRIPT = """
import logging, sys
from splitserve.logs import configure
configure("decode-0", "info", sys.stderr)
logging.getLogger("splitserve.roles").info("up on %s", "unix:/x")
logging.getLogger("splitserve.roles").debug("not said")
logging.getLogger("library").info("not said")
logging.getLogger("library").warning("heard")
"""


def test_lines_carry_time_process_level_and_place() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    first, second = done.stderr.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z decode-0 INFO splitserve\.roles: up on unix:/x",
        first,
    )
    assert second.endswith("decode-0 WARNING library: heard")
