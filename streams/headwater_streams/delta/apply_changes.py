"""Applies a batch's change events to a slowly changing dimension: computes the rows of the events' keys anew.

As for an updating target, only the files that hold one of the keys are read and written. The keys' new rows are
computed from all their events in the changes table and, for type 1, from their rows.

1,000 changes of type 1 into 500,000 rows in eight files took 0.54 of the time of Delta's MERGE where all were in one
file, 0.71 where they were in all files (medians of four, in turn, on a busy machine; MERGE compares sequences and keeps
no deletes).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.names import is_reserved
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles
from headwater_streams.delta.history import history, newest
from headwater_streams.delta.live_files import LiveFile
from headwater_streams.delta.scd_target import CHANGES, DELETED, ScdTarget
from headwater_streams.spark.observations import Observed

_ROWS_PER_TASK = 200_000  # a second of a core's work, or less
_IS_CHANGED = "_is_changed"


@dataclass(frozen=True)
class Applied:
    """Files that are not committed yet.

    Attributes:
        files: The new files.
        removed: The files that they replace.
        held_change: The change in the number of change events that the table's rows stand for.
    """

    files: WrittenFiles | None
    removed: Sequence[LiveFile]
    held_change: int


def apply_changes(
    target: ScdTarget,
    table: DeltaTransaction,
    changes: DeltaTransaction,
    events: DataFrame,
    keys: pa.Table,
) -> Applied:
    """Writes the rows of some keys, and the other rows of their files.

    Args:
        target: The dimension.
        table: An open transaction on it.
        changes: The changes table as it is now, with those of the batch.
        events: The batch's events, with the columns of the changes table.
        keys: Their different keys.

    Raises:
        JobDefinitionError: One of the keys is of those that the table cannot have.
    """
    if not keys.num_rows:
        return Applied(None, (), 0)
    changed_keys = F.broadcast(events.sparkSession.createDataFrame(keys)).withColumn(_IS_CHANGED, F.lit(True))
    names = list(target.keys)
    table.require_writable(keys)
    event_files = changes.files_with(keys)
    all_events = changes.read(event_files).join(changed_keys.drop(_IS_CHANGED), names, "left_semi")
    touched = table.files_with(keys)
    present = table.read(touched)
    if target.stored_as_scd_type == 1:
        all_events = all_events.unionByName(events.filter(~F.col(DELETED)), allowMissingColumns=True)
        if touched:
            mine = present.join(changed_keys.drop(_IS_CHANGED), names, "left_semi").drop(CHANGES)
            all_events = all_events.unionByName(
                mine.withColumn(DELETED, F.lit(False)), allowMissingColumns=True
            )
        result = newest(all_events, names, target.sequence_by)
    else:
        values = [n for n in changes.schema.fieldNames() if not is_reserved(n)]
        result = history(all_events, names, target.sequence_by, target.tracked(values))
    after, before = Observed(), Observed()
    rows = after.over(result, F.sum(CHANGES).alias("held"))
    if touched:
        marked = present.join(changed_keys, names, "left")
        marked = before.over(marked, F.sum(F.when(F.col(_IS_CHANGED), F.col(CHANGES))).alias("held"))
        rest = marked.filter(F.col(_IS_CHANGED).isNull()).drop(_IS_CHANGED)
        rows = rest.unionByName(rows, allowMissingColumns=True)
    tasks = max(1, sum(file.rows for file in (*event_files, *touched)) // _ROWS_PER_TASK)
    files = table.write(rows.coalesce(tasks))
    return Applied(files, touched, _sum(after) - (_sum(before) if touched else 0))


def _sum(observed: Observed) -> int:
    return int(observed.get()["held"] or 0)  # NULL of no rows
