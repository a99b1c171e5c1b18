"""Starts an arm, prints its process ids, waits to be killed: ``topology_pids.py STUDY FOLDER``."""

import asyncio
import sys
from pathlib import Path

from splitserve.lab.arms.topology import TopologyArm
from splitserve.lab.plan.resolve import read_plan


async def main() -> None:
    plan = read_plan(Path(sys.argv[1]))
    arm = TopologyArm(plan.split, Path(sys.argv[2]), reset_cache=False)
    await arm.start()
    print(*sorted(arm.members), flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
