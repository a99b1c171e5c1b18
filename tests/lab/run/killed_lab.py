"""Runs a study until it is killed: ``killed_lab.py STUDY OUT``."""

import asyncio
import sys
from pathlib import Path

from lab.run.rig import begun, go

study, out = Path(sys.argv[1]), Path(sys.argv[2])
plan, folder = begun(study, out)
asyncio.run(go(study, plan, folder))
