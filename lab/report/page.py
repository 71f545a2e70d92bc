"""One page of an experiment's figures: HTML that needs no other file, and Markdown with pictures beside it.

Both say the same: how many claims hold by chapter, then each figure with what was asked, what was run, its
pictures, its claims as a table, and why something does not hold.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lab.experiment import Claim, ProductVerdict
from lab.report.figures import ReportedExperiment, Table
from lab.report.journal import StoredFigure

_CLAIM_COLUMNS = ("what is claimed", "source", "wanted", "measured", "verdict")
_STYLES = {"holds": "holds", "does not hold": "fails"}
_COUNTED = {
    "holds": "hold",
    "impossible": "impossible",
    "does not hold": "do not hold",
    "undecided": "undecided",
}
_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2321; background: #fff; max-width: 62rem;
       margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 2rem; margin-bottom: .3rem; } h2 { margin-top: 3rem; border-bottom: 2px solid #0b6e4f; }
h3 { margin-top: 2.5rem; } img { max-width: 100%; height: auto; display: block; margin: 1rem 0; }
blockquote { border-left: 4px solid #0b6e4f; margin: 1rem 0; padding: .2rem 1rem; background: #f2f7f5; }
table { border-collapse: collapse; font-size: .9rem; margin: 1rem 0; } .wide { overflow-x: auto; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d7dedb; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.holds { color: #0b6e4f; font-weight: 600; } .fails { color: #b3261e; font-weight: 600; }
.open { color: #7a6a00; }
.verdict { white-space: nowrap; } .small { color: #55605c; font-size: .9rem; } a { color: #0b6e4f; }
"""


@dataclass(frozen=True)
class Page:
    """What is on a report's page; `failed` maps a part that did not end to the reason."""

    about: ReportedExperiment
    figures: Sequence[StoredFigure]
    failed: dict[str, str]
    facts: Sequence[str]  # when, where, on what

    @property
    def claims(self) -> list[Claim]:
        return [claim for figure in self.figures for claim in figure.claims]

    def chapters(self) -> Iterator[tuple[str, list[StoredFigure]]]:
        """Headings with their figures, in the experiment's order."""
        for prefix, heading in self.about.chapters.items():
            found = [figure for figure in self.figures if figure.id.split("-")[0] == prefix]
            if found:
                yield heading, found

    def summary(self) -> Table:
        """How many claims hold, by chapter."""
        by_chapter = {
            heading: [claim for figure in figures for claim in figure.claims]
            for heading, figures in self.chapters()
        }
        found = {claim.verdict for claim in self.claims} | {"holds", "does not hold", "open"}
        shown = {word: name for word, name in _COUNTED.items() if word in found} | {"open": "open"}
        rows: list[list[str | float | int | None]] = [
            [heading, *(sum(claim.verdict == word for claim in claims) for word in shown), len(claims)]
            for heading, claims in (*by_chapter.items(), ("in all", self.claims))
        ]
        return Table(("", *shown.values(), "claims"), rows)

    def verdict(self) -> str:
        """In one sentence."""
        holding = sum(claim.holds is True for claim in self.claims)
        impossible = sum(claim.verdict == "impossible" for claim in self.claims)
        told = f" {impossible} are impossible, by a calculation." if impossible else ""
        return f"{holding} of {len(self.claims)} claims hold; {self.about.required} must.{told}"


def html(page: Page, pictures: Path) -> str:
    """The page as one file: pictures are inside it."""
    parts = [
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{escape(page.about.title)}</title>",
        "<meta name='viewport' content='width=device-width, initial-scale=1'>",
        f"<style>{_STYLE}</style><body><h1>{escape(page.about.title)}</h1><p>{escape(page.about.intro)}</p>",
        f"<p><strong>{escape(page.verdict())}</strong></p>",
        _html_table(page.summary()),
        *(f"<p class='small'>{escape(fact)}</p>" for fact in page.facts),
        *(
            f"<p class='fails'>Did not end: {escape(part)}: {escape(why)}</p>"
            for part, why in page.failed.items()
        ),
        "<ul>",
        *(f"<li><a href='#{one.id}'>{escape(one.title)}</a>{_marks(one)}</li>" for one in page.figures),
        "</ul>",
    ]
    for heading, figures in page.chapters():
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts += [_html_figure(figure, page.about.said_by, pictures) for figure in figures]
    return "\n".join([*parts, "</body></html>\n"])


def _html_figure(figure: StoredFigure, said_by: str, pictures: Path) -> str:
    parts = [
        f"<h3 id='{figure.id}'>{escape(figure.title)}</h3>",
        f"<blockquote><strong>{escape(said_by)}:</strong> {escape(figure.statement)}</blockquote>",
        f"<p><strong>What was run:</strong> {escape(figure.setting)}</p>",
    ]
    for name in figure.pictures:
        data = b64encode((pictures / name).read_bytes()).decode()
        parts.append(f"<img alt='{escape(figure.title, quote=True)}' src='data:image/png;base64,{data}'>")
    if figure.claims:
        columns = _columns(figure)
        rows = "".join(_html_claim(claim, len(columns)) for claim in figure.claims)
        heads = "".join(f"<th>{name}</th>" for name in columns)
        parts.append(f"<div class='wide'><table><tr>{heads}</tr>{rows}</table></div>")
    parts += [f"<p>{escape(reason)}</p>" for reason in _reasons(figure)]
    if figure.table is not None:
        parts.append(_html_table(figure.table))
    return "\n".join([*parts, *(f"<p class='small'>{escape(note)}</p>" for note in figure.notes)])


def _html_claim(claim: Claim, columns: int) -> str:
    cells = [f"<td>{escape(cell)}</td>" for cell in _cells(claim)[:columns]]
    style = _STYLES.get(claim.verdict, "open")
    cells[4] = f"<td class='verdict {style}'>{claim.verdict}</td>"
    return f"<tr>{''.join(cells)}</tr>"


def _html_table(table: Table) -> str:
    heads = "".join(f"<th>{escape(name)}</th>" for name in table.columns)
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td{'' if isinstance(cell, str) else ' class=number'}>{escape(shown(cell))}</td>"
            for cell in row
        )
        + "</tr>"
        for row in table.rows
    )
    return f"<div class='wide'><table><tr>{heads}</tr>{rows}</table></div>"


def _marks(figure: StoredFigure) -> str:
    """Of the list of figures: how many of its claims hold."""
    if not figure.claims:
        return ""
    holding = sum(claim.holds is True for claim in figure.claims)
    style = "holds" if holding == len(figure.claims) else "open"
    return f" <span class='{style}'>{holding} of {len(figure.claims)}</span>"


def markdown(page: Page, pictures: str) -> str:
    """The same as Markdown; `pictures` is the folder of its pictures, as seen from the file."""
    parts = [
        f"# {page.about.title}",
        page.about.intro,
        f"**{page.verdict()}**",
        _markdown_table(page.summary().columns, page.summary().rows),
        *page.facts,
        *(f"Did not end: {part}: {why}" for part, why in page.failed.items()),
    ]
    for heading, figures in page.chapters():
        parts.append(f"## {heading}")
        for figure in figures:
            parts += [
                f"### {figure.title}",
                f"> **{page.about.said_by}:** {figure.statement}",
                figure.setting,
            ]
            parts += [f"![{figure.title}]({pictures}/{name})" for name in figure.pictures]
            if figure.claims:
                columns = _columns(figure)
                rows = [_cells(claim)[: len(columns)] for claim in figure.claims]
                parts.append(_markdown_table(columns, rows))
            parts += _reasons(figure)
            if figure.table is not None:
                parts.append(_markdown_table(figure.table.columns, figure.table.rows))
            parts += figure.notes
    return "\n\n".join(parts) + "\n"


def _markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str | float | int | None]]) -> str:
    lines = [columns, ["---"] * len(columns), *([shown(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# What both say


def _columns(figure: StoredFigure) -> tuple[str, ...]:
    """Of its claims; the last only where the reference engine decides and the product stands beside it."""
    beside = any(claim.product is not None for claim in figure.claims)
    return (*_CLAIM_COLUMNS, "the product") if beside else _CLAIM_COLUMNS


def _cells(claim: Claim) -> list[str]:
    """A claim as a row: says, source, wanted, measured, verdict, and what the product does."""
    aim = "" if claim.aim is None else f" (aim {shown(claim.aim)})"
    wanted = f"{claim.op} {shown(claim.target)} {claim.unit}{aim}"
    product = ""
    if claim.product is not None:
        word = {True: "holds", False: "does not hold", None: "open"}[claim.product.holds]
        product = f"{_measured(claim.product)}: {word}" if claim.product.measured is not None else word
    return [claim.says, claim.source, wanted, _measured(claim), claim.verdict, product]


def _measured(found: Claim | ProductVerdict) -> str:
    measured = "" if found.measured is None else shown(found.measured)
    if found.runs > 1 and found.low is not None and found.high is not None:
        measured += f" ({shown(found.low)} to {shown(found.high)}, {found.runs} runs)"
    return measured


def _reasons(figure: StoredFigure) -> list[str]:
    return [
        f"{claim.verdict.capitalize()}: {claim.says}. {claim.impossible or claim.why}"
        for claim in figure.claims
        if claim.holds is not True and (claim.impossible or claim.why)
    ]


def shown(value: str | float | None) -> str:
    """A cell of a table.

    >>> [shown(v) for v in ("q20", 1234567, 0.12345, 12.345, 150.0, None)]
    ['q20', '1,234,567', '0.123', '12.3', '150', '']
    """
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"
