"""The page: whole, in order, on its own, and with nothing of others in its markup."""

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import pytest
from made_results import lost, results

from lab.verdict.made_study import RULES, study
from splitserve.lab.report.build import report_of
from splitserve.lab.report.html import html
from splitserve.lab.report.results import RunResult, StudyResults
from splitserve.lab.verdict.evidence import Evidence
from splitserve.lab.verdict.rules import Resources

TITLES = (
    "Verdict",
    "Date, versions and class",
    "Question and target SLO",
    "The two configurations",
    "Fixed, may vary, recorded",
    "Methods declared before the run",
    "Results at the target cell",
    "Differences B against A",
    "Phase attribution",
    "One-axis series, in the order run",
    "Ratio, TP/PP and network",
    "Goodput per GPU",
    "Readings and advice",
    "Fault and retry visibility",
    "Rollback proof",
    "Validity",
    "Environment and how to reproduce",
    "Definitions and formulas",
)
VOID = {"meta", "br", "hr", "img", "link", "input"}
SHAPES = {"line", "rect", "polyline", "polygon", "circle"}


class Page(HTMLParser):
    """Checks nesting while it reads; keeps headings, text and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open[-1:] == ["h2"]:
            self.headings.append(data)


def page_of(made: StudyResults) -> Page:
    return Page(html(report_of(made)))


@cache
def page() -> Page:
    return page_of(results())


def test_every_section_is_there_once_in_the_order_of_reading() -> None:
    assert page().headings == [f"{number} {title}" for number, title in enumerate(TITLES, 1)]


def test_nothing_is_fetched_and_nothing_runs() -> None:
    assert not page().tags & {"script", "link", "img", "iframe", "object", "embed", "form"}
    links = [value for name, value in page().attributes if name in {"href", "src", "xlink:href"}]
    assert links
    assert all(re.fullmatch(r"#s\d+", link) for link in links)
    assert not any(name.startswith("on") for name, _ in page().attributes)
    written = html(report_of(results()))
    assert "url(" not in written
    assert "@import" not in written


def test_contents_lead_to_every_section() -> None:
    ids = {value for name, value in page().attributes if name == "id"}
    assert {f"#{one}" for one in ids} == {v for n, v in page().attributes if n == "href"}


def test_every_clause_and_every_reading_is_shown_with_its_sentences() -> None:
    made = results()
    for clause in made.verdict.clauses:
        assert clause.name in page().text
        assert all(sentence in page().text for sentence in clause.evidence)
    for heard in made.verdict.readings:
        assert heard.name in page().text
        assert heard.says in page().text
        assert heard.action in page().text


def test_a_quantile_that_the_sample_does_not_carry_is_refused() -> None:
    assert "refused (n too small: 40 of 200 needed)" in page().text
    assert "refused (n too small: 40 of 1000 needed)" in page().text


def test_failures_that_reach_a_quantile_are_infinite_and_counted() -> None:
    made = results()
    cut = tuple(replace(one, records=lost(one.records)) for one in made.runs if _is_split(one))
    others = tuple(one for one in made.runs if not _is_split(one))
    told = page_of(replace(made, runs=(*others, *cut)))
    assert "∞ (160 failures)" in told.text
    assert "160 failed" in told.text


def _is_split(result: RunResult) -> bool:
    return result.run.series == "target" and result.run.side == "B"


def test_what_servers_and_plans_say_stays_text() -> None:
    assert "the server died <b>here</b>" in page().text
    assert "b" not in page().tags


@pytest.mark.parametrize("bad", ["</style><script>alert(1)</script>", "\x00\x1b[31m\ud800", "&lt;"])
def test_any_text_is_harmless(bad: str) -> None:
    told = page_of(results(self_test=bad, commands=(bad,), commit=bad))
    assert "script" not in told.tags
    assert not re.search("[\x00-\x08\x1b\ud800-\udfff]", told.text)


def test_a_study_without_any_run_still_has_every_section() -> None:
    bare = results(Evidence(rules=RULES), runs=())
    told = page_of(bare)
    assert told.headings == page().headings
    assert "INVALID" in told.text
    assert "not measured" in told.text


def test_added_capacity_is_said_where_the_results_stand() -> None:
    added = study(rules=replace(RULES, resources=Resources.ADDED))
    assert "Added capacity" in page_of(results(added)).text
    assert "Added capacity" not in page().text


def test_what_the_study_does_not_say_is_said() -> None:
    for words in ("Out of scope: model quality", "No claim that splitting raises", "experimental"):
        assert words in page().text


def test_the_header_says_which_versions_and_commits_are_known() -> None:
    known = {"arm.software.version": "0.32.0", "arm.software.commit": "abc1234"}
    made = results(commit="0123abc")
    told = tuple(replace(one, before=known) if one.run.arm == "one" else one for one in made.runs)
    text = page_of(replace(made, runs=told)).text
    assert "0.1.0, commit 0123abc" in text
    assert "0.32.0, commit abc1234" in text
    assert "version not told" in text
    assert "installed package, no commit known" in page().text


def test_clauses_say_sentence_by_sentence_what_holds() -> None:
    text = page_of(results(study(rollback=None))).text
    assert "✓ preflight passed" in text
    assert "? no rollback was tried: [rollback] in the plan" in text


def test_long_tables_for_reference_are_folded_and_still_there() -> None:
    written = html(report_of(results()))
    assert re.search(r"<details><summary>Effective configurations[^<]* \(\d+ rows\)", written)
    assert "details" in page().tags
    assert "colocated.max_num_seqs" in page().text


def test_headers_of_tables_have_a_scope_and_plots_a_title() -> None:
    written = html(report_of(results()))
    assert not re.search(r"<th(?! scope=)[ >]", written)
    assert written.count("<svg") == len(re.findall(r'role="img"><title>[^<]', written))


def test_the_style_knows_paper_night_and_small_screens() -> None:
    written = html(report_of(results()))
    for media in ("print", "(prefers-color-scheme: dark)", "(max-width: 40rem)"):
        assert f"@media {media}" in written
