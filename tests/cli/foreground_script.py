"""Runs stand-ins in the foreground, as ``serve`` does: ``foreground_script.py LOGS KIND...``."""

import sys
from pathlib import Path

from rich.console import Console

from splitserve.cli.foreground import keep_running
from splitserve.launch.hosts.local import LocalHost
from splitserve.launch.running import Prepared
from splitserve.lifecycle import StartFailed

sys.path.insert(0, str(Path(__file__).parents[1]))

from launch.deployments import plan_of, spec

if __name__ == "__main__":
    workers = [spec(f"{kind}-{number}", kind) for number, kind in enumerate(sys.argv[2:])]
    ready = Prepared(plan_of(*workers), LocalHost(Path(sys.argv[1])))
    try:
        sys.exit(keep_running(ready, Console(width=200), Console(stderr=True, width=200)))
    except StartFailed as error:
        sys.exit(f"error: {error}")
