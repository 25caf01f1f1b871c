"""A backfill's verdict as one HTML page that needs nothing beside it: findings, diff with samples, timeline."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Any

from headwater.cli._common import value_text

_KINDS = ("added", "removed", "changed", "unchanged")
_WIDTH, _ROW, _LABEL, _MARGIN = 900, 26, 260, 12
_STYLE = """
body { font: 15px/1.5 sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #223; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; } td, th { padding: .25rem .7rem; text-align: left;
vertical-align: top; border-bottom: 1px solid #dde3ea; } code { font-size: 13px; } .no { color: #b00020; }
.yes { color: #14713d; } del { color: #b00020; } ins { color: #14713d; text-decoration: none; }
"""


@dataclass(frozen=True)
class Bar:
    """One stretch of the timeline: half-open, in microseconds or in offsets."""

    label: str
    start: float
    end: float
    span: str


def page(plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """The page.

    Args:
        plan: The plan as it is stored.
        verdict: The verdict as it is stored.
    """
    outcome = "passed" if verdict["passed"] else "did not pass"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f"<title>{escape(plan['id'])}: {outcome}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{escape(plan['id'])} {_mark(verdict['passed'], outcome)}</h1>",
        (
            f"<p>A {escape(plan['mode'])} of <b>{escape(plan['target'])}</b>, which the job "
            f"<b>{escape(plan['job'])}</b> "
            f"writes (code <code>{escape(plan['fingerprint'])}</code>), planned "
            f"{escape(plan['created_at'])} on version {plan['base_version']}, verified "
            f"{escape(verdict['verified_at'])}.</p>"
        ),
        "<h2>Findings</h2>",
        _table(
            ("", "finding", "seen"),
            [
                (_mark(f["ok"], "✓" if f["ok"] else "✗"), escape(f["name"]), escape(f["detail"]))
                for f in verdict["findings"]
            ],
        ),
        "<h2>Accounting</h2>",
        *_accounts(plan, verdict),
        "<h2>Diff</h2>",
        *_diffs(plan, verdict),
        *_timeline(plan, verdict),
    ]
    if verdict["notes"]:
        notes = "".join(f"<li>{escape(note)}</li>" for note in verdict["notes"])
        parts.append(f"<h2>Notes</h2><ul>{notes}</ul>")
    return "\n".join([*parts, "</body></html>", ""])


def _accounts(plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> Iterator[str]:
    """The terms of the run; of a repair with several tables those of each."""
    beside = {
        name: each["accounting"] for name, each in verdict.get("beside", {}).items() if "accounting" in each
    }
    for name, terms in {plan["target"]: verdict["accounting"], **beside}.items():
        if beside:
            yield f"<h3>{escape(name)}</h3>"
        yield _table(("term", "rows"), [(escape(term), f"{rows:,}") for term, rows in terms.items()])


def _mark(ok: bool, text: str) -> str:
    return f'<span class="{"yes" if ok else "no"}">{text}</span>'


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of cells that are HTML already."""
    top = "".join(f"<th>{cell}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><tr>{top}</tr>{body}</table>"


def _diffs(plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> Iterator[str]:
    """The diff, or that of each table where the job writes several."""
    beside = verdict.get("beside", {})
    if beside:
        yield f"<h3>{escape(plan['target'])}</h3>"
    yield from _diff(verdict["diff"])
    for name, change in beside.items():
        yield f"<h3>{escape(name)}</h3>"
        yield from _diff(change["diff"])
    digest = verdict.get("digest", verdict["diff"]["digest"])
    yield f"<p>Digest <code>{escape(digest)}</code>, for <code>swap --accept-diff</code>.</p>"


def _diff(diff: Mapping[str, Any]) -> Iterator[str]:
    counts = ", ".join(f"{diff[kind]:,} {kind}" for kind in _KINDS)
    yield f"<p>By {escape(', '.join(diff['keys']))}: {counts}.</p>"
    for kind in _KINDS:
        samples = diff["samples"].get(kind, [])
        if samples:
            rows = [(_named(sample["key"]), _changes(sample)) for sample in samples]
            yield f"<h3>{kind.capitalize()}, the first {len(samples)} of {diff[kind]:,}</h3>" + _table(
                ("key", "row"), rows
            )


def _changes(sample: Mapping[str, Any]) -> str:
    before, after = sample.get("before"), sample.get("after")
    if before is None:
        return f"<ins>{_named(after or {})}</ins>"
    if after is None:
        return f"<del>{_named(before)}</del>"
    return ", ".join(
        f"{escape(name)}: <del>{escape(value_text(value))}</del> <ins>{escape(value_text(after[name]))}</ins>"
        for name, value in before.items()
        if value != after[name]
    )


def _named(value: Mapping[str, Any]) -> str:
    return ", ".join(f"{escape(name)}={escape(value_text(part))}" for name, part in value.items())


def _timeline(plan: Mapping[str, Any], verdict: Mapping[str, Any]) -> Iterator[str]:
    """What is replaced along the event time, and what is read along the offsets; half-open, as everywhere.

    A repair's plan says what it reads; a rebuild reads all that there is when it runs.
    """
    windows = [
        Bar("windows", _micros(start), _micros(end), f"[{start}, {end})")
        for start, end in plan.get("windows", [])
    ]
    offsets = [
        Bar(f"{topic} {partition}", start, end, f"[{start:,}, {end:,})")
        for topic, partitions in (plan.get("ranges") or verdict.get("ranges", {})).items()
        for partition, (start, end) in partitions.items()
    ]
    if windows:
        yield "<h2>Replaced, by event time</h2>" + _svg(windows)
    if offsets:
        yield "<h2>Read again, by offset</h2>" + _svg(offsets)


def _svg(bars: Sequence[Bar]) -> str:
    first, last = min(bar.start for bar in bars), max(bar.end for bar in bars)
    scale = (_WIDTH - _LABEL - _MARGIN) / max(last - first, 1)
    labels = list(dict.fromkeys(bar.label for bar in bars))
    height = len(labels) * _ROW + 2 * _MARGIN
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="13">']
    for row, label in enumerate(labels):
        middle = _MARGIN + row * _ROW + 14
        parts.append(f'<text x="0" y="{middle + 4}">{escape(label)}</text>')
    for bar in bars:
        top = _MARGIN + labels.index(bar.label) * _ROW + 4
        left, wide = _LABEL + (bar.start - first) * scale, max((bar.end - bar.start) * scale, 2)
        parts.append(
            f'<rect x="{left:.1f}" y="{top}" width="{wide:.1f}" height="{_ROW - 8}" fill="#d8e8f7" stroke="#334455">'
            f"<title>{escape(bar.label)} {escape(bar.span)}</title></rect>"
        )
    return "".join([*parts, "</svg>", f"<p>{escape(bars[0].span)}{_more(bars)}</p>"])


def _more(bars: Sequence[Bar]) -> str:
    return f" to {escape(bars[-1].span)}" if len(bars) > 1 else ""


def _micros(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() * 1_000_000
