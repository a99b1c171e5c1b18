"""What the prompts of a study are made from, found out once."""

from pathlib import Path
from typing import Final

from splitserve.lab.load.corpus.synthetic import Vocabulary
from splitserve.lab.plan.resolve import Plan
from splitserve.lab.run.prompts import UNLIMITED, Source
from splitserve.modelstore.progress import Progress
from splitserve.modelstore.resolve import resolve

SMALLEST_VOCABULARY: Final = 32_000
"""Ids below are in the vocabulary of every model that is served today. It is what prompts for a
running URL are made of, which does not tell its own."""


def source_of(plan: Plan, studies: Path, progress: Progress) -> Source:
    """Files that the plan names are below ``studies``. Fetches the model of a topology if it is
    not here yet. Raises ConfigError and UnavailableError."""
    file = plan.study.workload.corpus.file
    size, longest = SMALLEST_VOCABULARY, plan.study.model.max_model_len
    topology = next((arm.topology for arm in plan.arms if arm.topology is not None), None)
    if topology is not None:
        folder = resolve(topology.model.name, progress=progress)
        size = int(folder.config().get("vocab_size", size))
        longest = longest or topology.model.max_model_len or folder.max_model_len()
    return Source(
        study=plan.study,
        file=None if file is None else studies / file,
        vocab=Vocabulary(size),
        max_model_len=longest or UNLIMITED,
    )
