"""Whether a function made at most one row of each record, or of each place in it, which the totals do not show.

A look-up with two rows for one key, and none for another, gives as many rows as it was given. So the coordinates in the
files that a batch wrote are looked at before its commit, where the function does more than compute and filter. Where it
explodes its records, these are counted by the same coordinates.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headwater_streams.base.errors import LookupKeyError
from headwater_streams.ledger.repeats import more_than_once
from headwater_streams.sources.coordinates import GENERATION, OFFSET, PARTITION, PLACE, ROW, TOPIC
from headwater_streams.storage.delta_rows import data_files

_WRITTEN = pa.schema(
    [
        (TOPIC, pa.dictionary(pa.int32(), pa.string())),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        (GENERATION, pa.int32()),
    ]
)
PLACED = _WRITTEN.append(pa.field(ROW, pa.int64()))
"""What `places_in` gives of rows that have their places in their records."""
COPIES_READ = "_copies_read"
"""How many rows a function was given of a record."""
_TIMES = "_times"
_OF_INPUT = pa.schema(
    [(TOPIC, pa.string()), (PARTITION, pa.int32()), (OFFSET, pa.int64()), (COPIES_READ, pa.int64())]
)
_OF_PLACED_INPUT = _OF_INPUT.append(pa.field(ROW, pa.int64()))
_SHOWN = 3


def places_in(folder: Path, files: Sequence[str], *, has_rows: bool = False) -> pa.Table:
    """The coordinates and generations of the rows in some data files.

    Args:
        folder: The table's folder.
        files: Their paths in it.
        has_rows: Whether they have their places in their records, `_row`.
    """
    schema = PLACED if has_rows else _WRITTEN
    if not files:
        return schema.empty_table()
    return data_files([folder / name for name in files], schema, dictionaries=[TOPIC]).to_table()


def places_of(rows: DataFrame) -> pa.Table:
    """The same of rows that are not written, and have their places in their records."""
    return rows.select(*PLACED.names).toArrow().cast(PLACED)


def require_once(table: str, written: pa.Table, copies_read: Callable[[], pa.Table] | None) -> None:
    """Checks that no record has more rows than the function was given of it.

    Args:
        table: What the rows are for.
        written: Their coordinates and generations, as `places_in` gives them, `_row` among them where they have it.
        copies_read: Of inputs whose rows may share coordinates: gives these, and how many rows each has
            (`_copies_read`), with `_row` where the result has that. It is called where rows share theirs.

    Raises:
        LookupKeyError: One has.
    """
    twice = more_than_once(written)
    if not twice.num_rows:
        return
    place = [*PLACE, ROW] if ROW in written.column_names else [*PLACE]
    times = twice.group_by(place).aggregate([("count_all", "sum")]).rename_columns([*place, _TIMES])
    if copies_read is not None:
        of_input = _OF_PLACED_INPUT if ROW in place else _OF_INPUT
        both = times.join(copies_read().select(of_input.names).cast(of_input), place, join_type="left outer")
        times = both.filter(pc.greater(both[_TIMES], pc.fill_null(both[COPIES_READ], 1)))
        if not times.num_rows:
            return
    first = times.sort_by([(name, "ascending") for name in place]).slice(0, _SHOWN).to_pylist()
    samples = ", ".join(f"{_named(row)}: {row[_TIMES]}" for row in first)
    more = f" and {times.num_rows - _SHOWN} more" if times.num_rows > _SHOWN else ""
    what = "one row of a record" if ROW in place else "one record"
    raise LookupKeyError(
        f"the function made several rows for {table} of {what} ({samples}{more}): it joined something with several "
        "rows for one key; nothing of the batch was committed (hw.enrich names the keys)"
    )


def _named(row: dict[str, Any]) -> str:
    of_record = f" row {row[ROW]}" if ROW in row else ""
    return f"{row[TOPIC]} {row[PARTITION]} offset {row[OFFSET]}{of_record}"
