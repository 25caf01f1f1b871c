"""The results of checks over time, as lines that a terminal and a page can draw. Nothing here reads a table.

A year of results is millions of rows: they come as a table for each file, of which three numbers a row are kept, and a
trend has as many cells as can be drawn.
"""

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater_streams.base.plural import quantity
from headwater_streams.quality.results import ORDER, order_of, place_of, ran_by_itself

COLUMNS = ("table", "check", "outcome", "kind", "batch", "judged", "failed", "observed", *ORDER)
"""The columns of `quality.results` that trends are made of."""
_BARS = "▁▂▃▄▅▆▇█"
_HELD, _BROKEN = "·", "✗"
_IN_LINE, _IN_PAGE = 40, 300
_WIDTH, _HEIGHT = 600, 48
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Results that fall together in a drawing, one or more.

    Attributes:
        since: The time of the first.
        results: How many there are.
        broken: How many of them are broken.
        share: The greatest share of rows that failed.
    """

    since: datetime
    results: int
    broken: int
    share: float


@dataclass(frozen=True, kw_only=True)
class Last:
    """The newest result of a check.

    Attributes:
        at: When.
        outcome: What it came to: held, within or broken.
        observed: What was seen.
        where: The batch or the version that was judged.
    """

    at: datetime
    outcome: str
    observed: str
    where: str


@dataclass(frozen=True, kw_only=True)
class Trend:
    """A check over time.

    Attributes:
        table: The table.
        check: The check.
        cells: Its results, the first to be recorded first.
        last: The newest of them; what a person ran, where there are no others.
        since: Since when it has been broken without a break, by the same; None where it holds now.
    """

    table: str
    check: str
    cells: Sequence[Cell]
    last: Last
    since: datetime | None

    @property
    def results(self) -> int:
        """How many results there are."""
        return sum(cell.results for cell in self.cells)

    @property
    def broken(self) -> int:
        """How many of them are broken."""
        return sum(cell.broken for cell in self.cells)


def trends(found: Iterable[pa.Table], cells: int = _IN_PAGE) -> list[Trend]:
    """The trend of each check of each table.

    Args:
        found: Rows of `quality.results` with `COLUMNS`, in parts, in any order.
        cells: At most so many cells for each.
    """
    pieces: dict[tuple[str, str], list[_Piece]] = {}
    for part in found:
        for key, piece in _pieces(part):
            pieces.setdefault(key, []).append(piece)
    return [
        _trend(table, check, sorted(mine, key=lambda piece: int(piece.keys[0])), cells)
        for (table, check), mine in sorted(pieces.items())
    ]


def spark_line(trend: Trend, width: int = _IN_LINE) -> str:
    """The trend in so many characters: a dot where it held, a bar by the share that failed, a cross where it broke.

    Several results may fall into one character, which then shows the worst of them.
    """
    most, columns = max(cell.share for cell in trend.cells), min(width, len(trend.cells))
    line = []
    for column in range(columns):
        cells = trend.cells[column * len(trend.cells) // columns : (column + 1) * len(trend.cells) // columns]
        share = max(cell.share for cell in cells)
        if any(cell.broken for cell in cells):
            line.append(_BROKEN)
        elif share:
            line.append(_BARS[min(len(_BARS) - 1, int(share / most * (len(_BARS) - 1)))])
        else:
            line.append(_HELD)
    return "".join(line)


def page(found: Sequence[Trend], title: str) -> str:
    """The trends as one page that needs no network; what records hold is text in it."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>",
    ]
    for trend in found:
        broken = f"{trend.broken:,} of {trend.results:,} broken"
        state = "broken" if trend.last.outcome == "broken" else "well"
        parts.append(
            f"<section class={state}><h2>{html.escape(trend.check)}</h2>"
            f"<p>{html.escape(trend.table)}: {broken}; last: {html.escape(trend.last.observed)}</p>"
            f"{_drawing(trend)}</section>"
        )
    return "\n".join([*parts, "</html>\n"])


@dataclass(frozen=True)
class _Piece:
    """The results of one check in one part, in order: by what they are, their times, the shares that failed, which are
    broken, which ran by themselves; and the newest row in full, with its place among those of other pieces."""

    keys: npt.NDArray[np.int64]
    at: npt.NDArray[np.int64]
    shares: npt.NDArray[np.float64]
    broken: npt.NDArray[np.bool_]
    itself: npt.NDArray[np.bool_]
    place: tuple[bool, int]
    last: dict[str, Any]


def _pieces(part: pa.Table) -> Iterator[tuple[tuple[str, str], _Piece]]:
    """The pieces of a part by table and check."""
    if not part.num_rows:
        return
    at, keys, itself = np.asarray(part["at"].cast(pa.int64())), order_of(part), ran_by_itself(part)
    judged = np.maximum(np.asarray(part["judged"].fill_null(0)), 1)
    shares = np.asarray(part["failed"].fill_null(0)) / judged
    (tables, table_names), (checks, check_names) = _codes(part["table"]), _codes(part["check"])
    outcomes, outcome_names = _codes(part["outcome"])
    broken = np.array([text == "broken" for text in outcome_names])[outcomes]
    groups = tables * len(check_names) + checks
    # Small numbers are sorted by counting them; rows are written in order, and mostly stay in it.
    small = len(table_names) * len(check_names) < np.iinfo(np.int16).max
    order = np.argsort(groups.astype(np.int16) if small else groups, kind="stable")
    sizes = np.bincount(groups)
    for mine in np.split(order, np.cumsum(sizes[sizes > 0])[:-1]):
        mine_keys = keys[mine]
        if np.any(mine_keys[1:] < mine_keys[:-1]):
            mine = mine[np.argsort(mine_keys, kind="stable")]
            mine_keys = keys[mine]
        by_itself = itself[mine]
        newest = int(mine[np.flatnonzero(by_itself)[-1] if by_itself.any() else -1])
        table, check = divmod(int(groups[newest]), len(check_names))
        yield (
            (table_names[table], check_names[check]),
            _Piece(
                keys=mine_keys,
                at=at[mine],
                shares=shares[mine],
                broken=broken[mine],
                itself=by_itself,
                place=(bool(itself[newest]), int(keys[newest])),
                last=part.slice(newest, 1).to_pylist()[0],
            ),
        )


def _trend(table: str, check: str, pieces: Sequence[_Piece], most: int) -> Trend:
    keys = np.concatenate([piece.keys for piece in pieces])
    at = np.concatenate([piece.at for piece in pieces])
    shares = np.concatenate([piece.shares for piece in pieces])
    broken = np.concatenate([piece.broken for piece in pieces])
    itself = np.concatenate([piece.itself for piece in pieces])
    if np.any(keys[1:] < keys[:-1]):
        order = np.argsort(keys, kind="stable")
        at, shares, broken, itself = at[order], shares[order], broken[order], itself[order]
    decides = itself if itself.any() else ~itself
    return Trend(
        table=table,
        check=check,
        cells=_cells(at, shares, broken, most),
        last=_last(max(reversed(pieces), key=lambda piece: piece.place).last),
        since=_broken_since(at[decides], broken[decides]),
    )


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int32], list[str]]:
    """A column of texts as numbers, and the text of each."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    numbers = np.asarray(whole.indices.fill_null(len(whole.dictionary)))
    return numbers, [*whole.dictionary.to_pylist(), ""]


def _cells(
    at: npt.NDArray[np.int64], shares: npt.NDArray[np.float64], broken: npt.NDArray[np.bool_], most: int
) -> list[Cell]:
    count = min(most, len(at))
    begins = np.arange(count) * len(at) // count
    sizes = np.diff(begins, append=len(at))
    worst, breaks = np.maximum.reduceat(shares, begins), np.add.reduceat(broken.astype(np.int64), begins)
    return [
        Cell(since=_moment(time), results=int(size), broken=int(breaking), share=float(share))
        for time, size, breaking, share in zip(at[begins], sizes, breaks, worst, strict=True)
    ]


def _broken_since(at: npt.NDArray[np.int64], broken: npt.NDArray[np.bool_]) -> datetime | None:
    if not broken[-1]:
        return None
    well = np.flatnonzero(~broken)
    return _moment(at[well[-1] + 1] if len(well) else at[0])


def _last(row: dict[str, Any]) -> Last:
    failed, judged = row["failed"] or 0, row["judged"] or 0
    return Last(
        at=row["at"],
        outcome=row["outcome"],
        observed=row["observed"] or f"{failed:,} of {judged:,} rows failed",
        where=place_of(row),
    )


def _moment(us: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=int(us))


def _drawing(trend: Trend) -> str:
    most = max(cell.share for cell in trend.cells) or 1.0
    step = _WIDTH / len(trend.cells)
    marks = []
    for place, cell in enumerate(trend.cells):
        kind = "broken" if cell.broken else "within" if cell.share else "held"
        tall = _HEIGHT if cell.broken else max(2.0, cell.share / most * _HEIGHT)
        label = (
            f"{cell.since:%Y-%m-%d %H:%M:%S}: {quantity(cell.results, 'result')}, {cell.broken:,} broken, "
            f"at most {cell.share:.2%} of the rows failed"
        )
        marks.append(
            f'<rect class="{kind}" x="{place * step:.2f}" y="{_HEIGHT - tall:.1f}" '
            f'width="{max(0.5, step - 0.5):.2f}" height="{tall:.1f}"><title>{label}</title></rect>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(marks)}</svg>'


_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem}"
    "h2{margin:1.5rem 0 0;font-size:1rem}p{margin:0;color:#555}svg{width:100%;height:3rem}"
    "rect.held{fill:#9ab}rect.within{fill:#d9a441}rect.broken{fill:#c33}"
    "section.broken h2::after{content:' ✗';color:#c33}"
)
