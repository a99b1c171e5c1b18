"""One line per attempt at a run, as CSV."""

import csv
import io
from dataclasses import astuple, fields
from typing import Final

from splitserve.lab.report.escape import plain
from splitserve.lab.report.model import StudyReport
from splitserve.lab.report.rows import RunRow

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Spreadsheets take a text that begins so for a formula."""


def runs_csv(report: StudyReport) -> str:
    """Header and rows. Empty: no sample; ``inf``: failures; ``refused``: the sample is too small
    for the quantile."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([one.name for one in fields(RunRow)])
    for row in report.runs:
        writer.writerow([_written(value) for value in astuple(row)])
    return out.getvalue()


def _written(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
