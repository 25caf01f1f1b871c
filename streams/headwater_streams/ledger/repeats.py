"""The records of which several rows stand in a table, and how many records rows are of."""

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

# A topic that was made again has the same offsets once more, in another generation.
_KIND, _OFFSET = ("_generation", "_topic", "_partition"), "_offset"
_ROW = "_row"
"""The place of a row in its record, where records may become several rows; NULL in rows of before."""
_MOST_KINDS, _MOST_BYTES_A_ROW = 1 << 20, 16


def more_than_once(rows: pa.Table) -> pa.Table:
    """The coordinates that several rows share, each once, and how many these are (`count_all`).

    Args:
        rows: `_generation`, `_topic`, `_partition` and `_offset`, the last one without NULLs. Where they have `_row`,
            it is one of the coordinates.
    """
    named = [*_KIND, _OFFSET, *([_ROW] if _ROW in rows.column_names else [])]
    if are_apart(rows):
        none = rows.select(named).slice(0, 0)
        return none.append_column("count_all", pa.array([], pa.int64()))
    # Arrow counts them: as Python objects ten million rows take gigabytes.
    counts = _encoded(rows).group_by(named).aggregate([([], "count_all")])
    twice = counts.filter(pc.greater(counts["count_all"], 1))
    return twice.set_column(
        twice.schema.get_field_index("_topic"), "_topic", twice["_topic"].cast(pa.string())
    )


def records_in(rows: pa.Table, *, below: int = 0) -> Counter[tuple[str | None, int | None]]:
    """Of how many records rows are, by topic and partition: rows that share all but `_row` are of one.

    Args:
        rows: `_generation`, `_topic`, `_partition`, `_offset` and `_row`.
        below: Where the records are rows of a table, which have a `_row` of their own: by what theirs was multiplied
            before the place in them was added.
    """
    named = [*_KIND, _OFFSET]
    rows = _encoded(rows)
    if below:
        numbers = pc.fill_null(rows[_ROW].combine_chunks(), 0)
        rows = rows.set_column(rows.schema.get_field_index(_ROW), _ROW, pc.divide(numbers, below))
        named.append(_ROW)
    records = rows.group_by(named).aggregate([])
    counts = records.group_by(["_topic", "_partition"]).aggregate([([], "count_all")])
    columns = (counts[name].to_pylist() for name in ("_topic", "_partition", "count_all"))
    return Counter({(topic, partition): count for topic, partition, count in zip(*columns, strict=True)})


def _encoded(rows: pa.Table) -> pa.Table:
    """The rows with their topics as a dictionary, by which they are grouped in a third of the time."""
    encoded = rows["_topic"].dictionary_encode()
    return rows.set_column(rows.schema.get_field_index("_topic"), "_topic", encoded).unify_dictionaries()


def are_apart(rows: pa.Table) -> bool:
    """Whether no two rows share their coordinates, looked at in an array of all offsets; False, too, where offsets lie
    too far apart for one. It takes a fifth of the time of counting."""
    if not rows.num_rows:
        return True
    kinds, count = np.zeros(rows.num_rows, np.int64), 1
    for name in _KIND:
        codes, values = _codes(rows[name])
        kinds, count = kinds * values + codes, count * values
        if count > _MOST_KINDS:
            return False
    offsets = rows[_OFFSET].to_numpy()
    present = np.flatnonzero(np.bincount(kinds, minlength=count))
    low = int(offsets.min())
    span = int(offsets.max()) - low + 1
    if len(present) * span > _MOST_BYTES_A_ROW * rows.num_rows + _MOST_KINDS:
        return False
    starts = np.zeros(count, np.int64)
    starts[present] = np.arange(len(present)) * span
    seen = np.zeros(len(present) * span, np.uint8)
    seen[starts[kinds] + (offsets - low)] = 1
    return bool(np.count_nonzero(seen) == rows.num_rows)


def _codes(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], int]:
    """Numbers that are equal where values are, and below how many they are."""
    chunks = column.dictionary_encode().unify_dictionaries().chunks
    values = max(len(chunk.dictionary) for chunk in chunks)
    codes = [pc.fill_null(chunk.indices, values).to_numpy(zero_copy_only=False) for chunk in chunks]
    return np.concatenate(codes).astype(np.int64), values + 1
