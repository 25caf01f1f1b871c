"""Rows that are several to a record: order lines of an order, each with its place in it, `_row`.

orders      --- {lines: [a, b]} ------ {lines: []} ----- {lines: [c]} -->    offsets 0, 1, 2
explode            a      b                                   c
_offset, _row     0, 0   0, 1                                2, 0

The place is that in the array or map, whatever is filtered behind it, so it stays a row's own in a retry, a repair and
a rebuild, however the rows are spread over a cluster. Where one generator stands behind another, or the record is a row
of a table whose rows have places already, the outer place is multiplied by `LEVEL`, and the inner one added: `3000002`
is the third discount of the fourth line. A row that explode_outer makes of an empty array has the place 0.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.sources.coordinates import OFFSET, ROW
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.generators import has_generator, way_to, with_positions
from headwater_streams.spark.hidden_columns import has_hidden, hide, reveal
from headwater_streams.spark.plan_shape import plan_shape

LEVEL = 1_000_000
"""By how much a place is multiplied for a place in it; so many rows one of several levels has at most."""
_DEEPEST = (2**63 - 1) // LEVEL


def place_of_table(rows: DataFrame) -> list[Column]:
    """The places of a table's rows in their records, a column; none where the table has no places. A row of before it
    had any is its record's first."""
    return [F.coalesce(ROW, F.lit(0)).alias(ROW)] if ROW in rows.columns else []


def hide_rows(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """Hides the columns `names`, and the places of rows in their records where they have any."""
    return hide(rows, [*names, *([ROW] if ROW in rows.columns else [])])


def has_rows(frame: DataFrame) -> bool:
    """Whether rows of a frame, which have coordinates, may be several to a record: they have places already, or came
    through a generator. What is looked up may have come through one, too, and is no record."""
    return has_hidden(frame, ROW) or (has_generator(frame) and _is_exploded(frame))


def _is_exploded(frame: DataFrame) -> bool:
    return way_to(plan_shape(reveal(frame, [OFFSET])).root, OFFSET).levels > 0


def reveal_rows(result: DataFrame, names: Sequence[str]) -> DataFrame:
    """Puts the hidden columns `names` behind the visible ones, and `_row` behind these.

    Where the rows have `_row` already, as those of a table or behind an operator, what was exploded since is added.

    Args:
        result: Rows of which `has_rows` holds.
        names: The coordinates.

    Raises:
        JobDefinitionError: The rows have lost their coordinates.
    """
    has_row = has_hidden(result, ROW)
    revealed = reveal(result, [*names, ROW] if has_row else names)
    numbered, positions = with_positions(revealed, OFFSET, ROW if has_row else None)
    if has_row and not positions:
        return revealed
    others = [name for name in revealed.columns if name != ROW]
    row = row_in(col(ROW) if has_row else None, cols(positions))
    return numbered.select(*cols(others), row.alias(ROW))


def row_in(outer: Column | None, positions: Sequence[Column]) -> Column:
    """The place of a row in its record.

    Args:
        outer: The place of what was exploded, where that was a row of several; NULL is the first.
        positions: The places in the arrays or maps, the first that was exploded first; NULL where there was nothing.
    """
    row = None if outer is None else F.coalesce(outer, F.lit(0))
    for position in positions:
        place = F.coalesce(position, F.lit(0)).cast("long")
        row = place if row is None else _inside(row, place)
    return F.lit(0).cast("long") if row is None else row.cast("long")


def _inside(row: Column, place: Column) -> Column:
    fits = (place < LEVEL) & (row < _DEEPEST)
    refused = F.raise_error(
        F.lit(f"a record has more than {LEVEL:,} rows at one of its levels, or too many levels")
    )
    return F.when(fits, row * LEVEL + place).otherwise(refused)
