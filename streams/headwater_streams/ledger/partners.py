"""Which rows of a join's batch have found their first partner: the ledger counts a row as matched once.

A row is known by its *place*: `side` (0 for the left one of its pair, or 1), `topic`, `partition` and `offset`; and by
its time where the results have that, for rows of windows or pairs share their places with others. A batch may hold many
pairs, and its table many more that a row of the batch may be in, so both stay in Arrow's columns, and of the table no
more is kept than what has the offset of a row of the batch.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.sources.coordinates import SOURCES

PLACE = ["side", "topic", "partition", "offset", "time_us"]
_SCHEMA = pa.schema(
    [
        ("side", pa.int8()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time_us", pa.int64()),
    ]
)
_MICROSECONDS = pa.timestamp("us", "UTC")
LEFT, RIGHT = 0, 1


class Partners(NamedTuple):
    """The rows in a batch's pairs, each once, as places.

    Attributes:
        first: Those that were in no pair before.
        before: Those that were.
    """

    first: pa.Table
    before: pa.Table

    def count_first(self, side: int) -> int:
        """The rows of a side that were in no pair before."""
        return int(pc.sum(pc.equal(self.first["side"], side)).as_py() or 0)


def find_partners(
    pairs: pa.Table, earlier: Iterable[pa.RecordBatch], sides: tuple[int, ...], times: Sequence[str] = ()
) -> Partners:
    """Splits the rows of a batch's pairs by whether an earlier pair has them.

    Args:
        pairs: The batch's results with their `_sources`: of each pair the left row's range, then the right one's; a row
            that stands alone has NULL for the other and is in no pair.
        earlier: The table's results that may share a row with those, likewise.
        sides: The sides to look at; of a semi join the left one, as its results name no right row.
        times: The column of the results that is each side's time, where they have them.
    """
    now = places_of(pairs, sides, times).group_by(PLACE).aggregate([])
    if not now.num_rows:
        return Partners(now, now)
    before = pa.concat_tables([_SCHEMA.empty_table(), *_of_offsets(now["offset"], earlier, sides, times)])
    return Partners(
        now.join(before, PLACE, join_type="left anti"), now.join(before, PLACE, join_type="left semi")
    )


def _of_offsets(
    offsets: pa.ChunkedArray, earlier: Iterable[pa.RecordBatch], sides: tuple[int, ...], times: Sequence[str]
) -> Iterator[pa.Table]:
    for batch in earlier:
        places = places_of(pa.Table.from_batches([batch]), sides, times)
        yield places.filter(pc.is_in(places["offset"], value_set=offsets))


def places_of(results: pa.Table, sides: tuple[int, ...], times: Sequence[str] = ()) -> pa.Table:
    """The places of the rows in the results that are pairs; see `find_partners`."""
    sources = results[SOURCES]
    pairs = results.filter(reduce(pc.and_, [pc.list_element(sources, side).is_valid() for side in sides]))
    named = [times[side] if times else None for side in sides]
    places = [_of_side(pairs, side, time) for side, time in zip(sides, named, strict=True)]
    return pa.concat_tables([_SCHEMA.empty_table(), *places])


def _of_side(pairs: pa.Table, side: int, time: str | None) -> pa.Table:
    ranges = pc.list_element(pairs[SOURCES], side)
    columns = [pc.struct_field(ranges, name) for name in ("topic", "partition", "start")]
    time_us = pa.repeat(0, len(pairs)) if time is None else pairs[time].cast(_MICROSECONDS, safe=False)
    return pa.table([pa.repeat(side, len(pairs)), *columns, time_us], names=PLACE).cast(_SCHEMA)
