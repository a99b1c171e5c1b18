"""From records on disk to the verdict, which is written beside them."""

from typing import Final

import msgspec

from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.folder import StudyFolder
from splitserve.lab.run.gather import gather
from splitserve.lab.verdict.decide import decide
from splitserve.lab.verdict.evidence import Evidence
from splitserve.lab.verdict.outcome import Verdict

FILE: Final = "verdict.json"


def conclude(plan: Plan, folder: StudyFolder) -> tuple[Evidence, Verdict]:
    """Evidence and verdict of what was measured so far. Raises ConfigError for files that are none
    of ours."""
    evidence = gather(plan, folder)
    verdict = decide(evidence)
    told = {
        "schema": "verdict/1",
        "digest": plan.digest,
        "exit_code": verdict.exit_code,
        **msgspec.to_builtins(verdict),
    }
    folder.write_json(FILE, told)
    return evidence, verdict
