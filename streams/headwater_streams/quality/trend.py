"""The results of checks over time, as lines that a terminal and a page can draw. Nothing here reads a table."""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_BARS = "▁▂▃▄▅▆▇█"
_HELD, _BROKEN = "·", "✗"
_WIDTH, _HEIGHT = 600, 48


@dataclass(frozen=True, kw_only=True)
class Point:
    """One result.

    Attributes:
        at: When.
        outcome: What it came to: held, within or broken.
        share: The share of rows that failed.
        observed: What was seen.
        where: The batch or the version that was judged.
    """

    at: datetime
    outcome: str
    share: float
    observed: str
    where: str


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A check over time, oldest first."""

    table: str
    check: str
    points: Sequence[Point]

    @property
    def last(self) -> Point:
        """The newest result."""
        return self.points[-1]

    @property
    def broken(self) -> int:
        """How many results were broken."""
        return sum(point.outcome == "broken" for point in self.points)

    @property
    def since(self) -> datetime | None:
        """Since when the check has been broken without a break; None where it holds now."""
        began = None
        for point in reversed(self.points):
            if point.outcome != "broken":
                break
            began = point.at
        return began


def trends(rows: Iterable[Mapping[str, Any]]) -> list[Trend]:
    """The trend of each check of each table, from rows of `quality.results` that are in order of time."""
    points: dict[tuple[str, str], list[Point]] = {}
    for row in rows:
        judged = row["judged"] or 0
        where = f"version {row['version']}" if row["kind"] == "suite" else f"batch {row['batch']}"
        point = Point(
            at=row["at"],
            outcome=row["outcome"],
            share=(row["failed"] or 0) / judged if judged else 0.0,
            observed=row["observed"] or _counted(row["failed"] or 0, judged),
            where=f"{where}, stopped" if row["kind"] == "stopped" else where,
        )
        points.setdefault((row["table"], row["check"]), []).append(point)
    return [
        Trend(table=table, check=check, points=tuple(each)) for (table, check), each in sorted(points.items())
    ]


def spark_line(trend: Trend, width: int = 40) -> str:
    """The trend in so many characters: a dot where it held, a bar by the share that failed, a cross where it broke.

    Several results may fall into one character, which then shows the worst of them.
    """
    points, cells = trend.points, list[str]()
    most = max((point.share for point in points), default=0.0)
    columns = min(width, len(points))
    for column in range(columns):
        part = points[column * len(points) // columns : (column + 1) * len(points) // columns]
        share = max(point.share for point in part)
        if any(point.outcome == "broken" for point in part):
            cells.append(_BROKEN)
        elif share and most:
            cells.append(_BARS[min(len(_BARS) - 1, int(share / most * (len(_BARS) - 1)))])
        else:
            cells.append(_HELD)
    return "".join(cells)


def page(found: Sequence[Trend], title: str) -> str:
    """The trends as one page that needs no network; what records hold is text in it."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>",
    ]
    for trend in found:
        broken = f"{trend.broken:,} of {len(trend.points):,} broken"
        state = "broken" if trend.last.outcome == "broken" else "well"
        parts.append(
            f"<section class={state}><h2>{html.escape(trend.check)}</h2>"
            f"<p>{html.escape(trend.table)}: {broken}; last: {html.escape(trend.last.observed)}</p>"
            f"{_drawing(trend)}</section>"
        )
    return "\n".join([*parts, "</html>\n"])


def _drawing(trend: Trend) -> str:
    most = max((point.share for point in trend.points), default=0.0) or 1.0
    step = _WIDTH / max(1, len(trend.points))
    marks = []
    for place, point in enumerate(trend.points):
        tall = _HEIGHT if point.outcome == "broken" else max(2.0, point.share / most * _HEIGHT)
        label = html.escape(f"{point.at:%Y-%m-%d %H:%M:%S}, {point.where}: {point.observed}")
        marks.append(
            f'<rect class="{html.escape(point.outcome)}" x="{place * step:.2f}" y="{_HEIGHT - tall:.1f}" '
            f'width="{max(0.5, step - 0.5):.2f}" height="{tall:.1f}"><title>{label}</title></rect>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(marks)}</svg>'


def _counted(failed: int, judged: int) -> str:
    return f"{failed:,} of {judged:,} rows failed"


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "h2{margin:1.5rem 0 0;font-size:1rem}p{margin:0;color:#555}svg{width:100%;height:3rem}"
    "rect.held{fill:#9ab}rect.within{fill:#d9a441}rect.broken{fill:#c33}"
    "section.broken h2::after{content:' ✗';color:#c33}"
)
