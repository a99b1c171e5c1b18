"""All forms of a report into a folder; each file is whole or not there."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from splitserve.lab.report.html import html
from splitserve.lab.report.json_form import json
from splitserve.lab.report.junit import junit
from splitserve.lab.report.markdown import markdown
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.runs_csv import runs_csv

FORMS: Final[Mapping[str, Callable[[StudyReport], str | bytes]]] = {
    "report.md": markdown,
    "report.json": json,
    "runs.csv": runs_csv,
    "junit.xml": junit,
    "report.html": html,
}
"""By file name. The page comes last: where it is, the others are."""


def write_report(report: StudyReport, folder: Path) -> tuple[Path, ...]:
    """Write every form into ``folder``, made where it is missing; the paths written.

    Nothing is written before everything is rendered. Raises OSError, and then a file that was there
    before is as it was.
    """
    contents = {name: form(report) for name, form in FORMS.items()}
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(_replace(folder / name, content) for name, content in contents.items())


def _replace(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        draft.chmod(0o644)
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return path
