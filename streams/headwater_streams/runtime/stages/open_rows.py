"""The rows of count windows that are not written yet: kept below the checkpoint, a part for each batch.

    <checkpoint>/open_rows/17/*.parquet     what batch 17 added: the columns that the windows are made of, `_number`

A row that the watermark has reached has its final number among those of its key; one beyond it has none yet. A part is
written before its batch's commit, whose ledger entry names the parts that make up the state, `extra.open_rows`, each
with its number of rows: after a crash in between, the batch runs again and writes its part anew.

Parts are only added to. The state itself says which of their rows are void: a row without a number is void once
the watermark has passed it, for it was numbered then; a numbered one, once its window is full, but for the last of a
key, which holds the number that was reached. Void rows go when the parts are written anew as one, which has a file
`_whole` beside its rows: no batch from there on needs a part before it. Such parts stay until Spark, too, has let go of
the offsets of every batch that needs them, so that a job can be put back to any batch that its checkpoint knows.
"""

from pathlib import Path

import pyarrow.dataset as ds
from pyarrow import ArrowInvalid
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.operators.windows.count import NUMBER, CountWindow, key_of, order_of
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.sources.coordinates import changing
from headwater_streams.spark.checkpoint import batches_retained
from headwater_streams.spark.columns import col, cols
from headwater_streams.storage.files import exists, matching, remove_tree, touch

_FOLDER = "open_rows"
_WHOLE = "_whole"  # Spark and Arrow read no file whose name begins so
_MOST_PARTS = 16
_MANY = 200_000
"""To sort so many rows takes half a second, so the keys that a batch touches are looked up first."""
_OLD, _REACHED, _BEFORE, _ADDED, _OPEN = "_old", "_reached", "_before", "_added", "_open"


class OpenRows:
    """The state of a running job with count windows."""

    def __init__(self, spark: SparkSession, checkpoint: Path, job: str) -> None:
        self._spark, self._folder, self._job = spark, checkpoint / _FOLDER, job
        self._batches_kept = batches_retained(spark)
        self._parts: dict[int, int] = {}
        self._placed: DataFrame | None = None
        self._is_compacting = False

    def resume(self, entry: LedgerEntry) -> None:
        """Takes up the parts that a commit named.

        Raises:
            DataLossError: A part is not there as it was written.
        """
        self._parts = {int(batch): rows for batch, rows in Extra.OPEN_ROWS.get(entry, {}).items()}
        for batch, rows in self._parts.items():
            actual = _rows_in(self._folder / str(batch))
            if actual != rows:
                raise DataLossError(
                    f"job {self._job!r}: {self._folder / str(batch)} has {actual} rows where {rows} wait for their "
                    "windows to be full; put the checkpoint back, or begin a new generation with an empty table: "
                    f"headwater jobs rebuild {self._job}"
                )

    def place(self, rows: DataFrame, spec: CountWindow, before: Watermark, now: Watermark) -> DataFrame:
        """The rows of a batch, and of those that waited, whose windows are full, each with its number.

        Args:
            rows: The batch's rows, with the columns to keep.
            spec: The windows.
            before: The watermark of the last commit.
            now: The watermark now.
        """
        sizes = list(self._parts.values())
        self._is_compacting = len(sizes) >= _MOST_PARTS or sum(sizes[1:]) > sum(sizes[:1])
        fresh = rows.withColumn(NUMBER, F.lit(None).cast("long")).withColumn(_OLD, F.lit(False))
        every = self._with_waiting(fresh, spec, before, now) if sizes else fresh
        reached = F.coalesce(col(spec.time) <= _moment(now), F.lit(False))
        counts = F.col(NUMBER).isNull() & reached
        key = Window.partitionBy(*key_of(spec))
        so_far = key.orderBy(*order_of(rows, spec)).rowsBetween(Window.unboundedPreceding, Window.currentRow)
        with_count = every.withColumn(_REACHED, F.sum(F.when(counts, 1).otherwise(0)).over(so_far))
        with_bounds = with_count.withColumns(
            {
                _BEFORE: F.coalesce(F.max(NUMBER).over(key) + 1, F.lit(0)),
                _ADDED: F.max(_REACHED).over(key),
                _OLD: F.col(_OLD) & ~counts,  # what is numbered now was not kept so before
            }
        )
        number = F.when(counts, F.col(_BEFORE) + F.col(_REACHED) - 1).otherwise(F.col(NUMBER))
        # The first window that is not full: rows before it were written, or are now.
        marked = with_bounds.withColumns(
            {NUMBER: number, _ADDED: F.col(_BEFORE) + F.col(_ADDED), _BEFORE: spec.index(_BEFORE)}
        )
        self._placed = marked.withColumn(_OPEN, spec.index(_ADDED)).persist()
        full = (spec.index(NUMBER) >= F.col(_BEFORE)) & (spec.index(NUMBER) < F.col(_OPEN))
        return self._placed.filter(full).select(*cols((*rows.columns, NUMBER)))

    def write(self, batch: int, spec: CountWindow) -> ExtraValues:
        """Writes the part of a batch whose rows were placed; gives what its ledger entry must say."""
        assert self._placed is not None
        waits = (
            F.col(NUMBER).isNull()
            | (spec.index(NUMBER) >= F.col(_OPEN))
            | (F.col(NUMBER) + 1 == F.col(_ADDED))
        )
        remaining = waits if self._is_compacting else waits & ~F.col(_OLD)
        columns = [n for n in self._placed.columns if n not in (_OLD, _REACHED, _BEFORE, _ADDED, _OPEN)]
        path = self._folder / str(batch)
        self._placed.filter(remaining).select(*cols(tuple(columns))).write.mode("overwrite").parquet(
            str(path)
        )
        if self._is_compacting:
            touch(path / _WHOLE)
        parts, rows = {} if self._is_compacting else dict(self._parts), _rows_in(path)
        if rows:
            parts[batch] = rows
        self._parts = parts
        return {Extra.OPEN_ROWS: {str(part): size for part, size in parts.items()}}

    def release(self) -> None:
        """Forgets the rows that were placed."""
        if self._placed is not None:
            self._placed.unpersist()
            self._placed = None

    def committed(self, batch: int) -> None:
        """Removes parts that are not in the state after any batch that Spark still knows."""
        parts = {int(path.name): path for path in matching(self._folder) if path.name.isdigit()}
        settled = [number for number in parts if number <= batch - self._batches_kept]
        whole = max((number for number in settled if exists(parts[number] / _WHOLE)), default=-1)
        for number, path in parts.items():
            if number < whole:
                remove_tree(path, wholly=True)

    def _with_waiting(
        self, fresh: DataFrame, spec: CountWindow, before: Watermark, now: Watermark
    ) -> DataFrame:
        """The fresh rows, and of the state those that matter to them."""
        columns = T.StructType([T.StructField(f.name, f.dataType) for f in fresh.schema if f.name != _OLD])
        paths = [str(self._folder / str(batch)) for batch in self._parts]
        state = self._spark.read.schema(columns).parquet(*paths).withColumn(_OLD, F.lit(True))
        time, is_numbered = col(spec.time), F.col(NUMBER).isNotNull()
        waits = ~is_numbered & F.coalesce(time > _moment(before), F.lit(True))
        if self._is_compacting:
            return fresh.unionByName(state.filter(is_numbered | waits))
        reached = state.filter(waits & (time <= _moment(now)))
        numbered = state.filter(is_numbered)
        if spec.by and sum(self._parts.values()) > _MANY:
            names = {name: f"_key_{place}" for place, name in enumerate(spec.by)}
            renamed = [col(name).alias(alias) for name, alias in names.items()]
            touched = fresh.unionByName(reached).select(*renamed).distinct()
            same = F.lit(True)
            for name, alias in names.items():
                same &= col(name).eqNullSafe(F.col(alias))
            numbered = numbered.join(touched, same, "left_semi")
        return fresh.unionByName(reached).unionByName(numbered)


def _rows_in(path: Path) -> int:
    try:
        return int(ds.dataset(str(path), format="parquet").count_rows()) if exists(path) else 0
    except (OSError, ArrowInvalid):  # none of them is known to be there
        return 0


def _moment(watermark: Watermark) -> Column:
    return F.timestamp_micros(changing(F.lit(watermark.at_us).cast("long")))
