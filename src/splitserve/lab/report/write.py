"""All forms of a report into a folder; each file is whole or not there."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from splitserve.lab.report.html import html
from splitserve.lab.report.json_form import json
from splitserve.lab.report.junit import junit
from splitserve.lab.report.markdown import markdown
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.runs_csv import runs_csv
from splitserve.lab.run.disk import write

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

    Nothing is written before everything is rendered. Raises UnavailableError, and then the file
    that could not be written is as it was.
    """
    contents = {folder / name: form(report) for name, form in FORMS.items()}
    for path, content in contents.items():
        write(path, content.encode() if isinstance(content, str) else content)
    return tuple(contents)
