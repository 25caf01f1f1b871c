"""Keeps the rows of a table's files in the order of some columns, so that readers skip files, and pages of them.

Delta's own CLUSTER BY is a feature of writers (writer version 7), and deltalake does not write it, so that a table with
it could not be looked after without Spark. The order is kept by sorting, and the table has every reader's protocol:

- a batch's rows are sorted within each file that it writes;
- small files of a partition become one that is sorted;
- where many large files reach over the same values, they become as many that do not: each of a stretch of its own.

    files of one partition, by the first column        after
    a ----------------------- z                        a ----- h
      b ------------------ x                                  h ---- p
    a -------------------- y                                        p ------ z
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headwater_streams.base.layout import CLUSTERED_BY, TARGET_FILE_SIZE
from headwater_streams.delta.delta_table import DeltaTransaction, conflicts
from headwater_streams.delta.live_files import LiveFile, Values, files_with_bounds
from headwater_streams.spark.columns import cols
from headwater_streams.storage.delta_files import properties_of

_TARGET_BYTES = 100 << 20  # deltalake's own, to which it compacts other tables
_MOST_BYTES = 1 << 30  # of one commit, which the job waits for
_DEEPEST = 8  # large files that have one value before they are sorted together


@dataclass(frozen=True)
class Extent:
    """A data file, and how far its rows reach by the first of the columns.

    Attributes:
        file: The file.
        least: Its least value; None where its statistics do not say.
        greatest: Its greatest value.
    """

    file: LiveFile
    least: Any = None
    greatest: Any = None


def clustered_by(table: Path) -> tuple[str, ...]:
    """The columns in whose order a table keeps its rows; none for most tables."""
    text = properties_of(table).get(CLUSTERED_BY, "")
    return tuple(text.split(",")) if text else ()


def compact_clustered(spark: SparkSession, table: Path, columns: Sequence[str]) -> int:
    """Sorts what has to be, as commits that change no row; returns how many files were replaced.

    Where another commit has changed the same files, nothing is done until the next call.
    """
    target_bytes = _target_bytes(table)
    transaction = DeltaTransaction(spark, table)
    extents = [Extent(*each) for each in files_with_bounds(table, transaction.version, columns[0])]
    replaced = 0
    for files in sets_to_sort(extents, target_bytes):
        rows = in_stretches(table, transaction.read(files), columns, files)
        try:
            transaction.commit_same(transaction.write(rows), files, f"the same, by {', '.join(columns)}")
        except conflicts():
            return replaced
        replaced += len(files)
        transaction = DeltaTransaction(spark, table)
    return replaced


def in_stretches(
    table: Path, rows: DataFrame, columns: Sequence[str], files: Sequence[LiveFile]
) -> DataFrame:
    """The rows of some files in as many stretches of the order as they are large files."""
    count = round(sum(file.size_bytes for file in files) / _target_bytes(table))
    return rows.repartitionByRange(count, *cols(columns)) if count > 1 else rows.coalesce(1)


def _target_bytes(table: Path) -> int:
    text = properties_of(table).get(TARGET_FILE_SIZE, "")
    return int(text) if text.isdecimal() else _TARGET_BYTES


def sets_to_sort(
    extents: Sequence[Extent], target_bytes: int, *, most_bytes: int = _MOST_BYTES, deepest: int = _DEEPEST
) -> Iterator[list[LiveFile]]:
    """The sets of files, each of one partition, whose rows are to be sorted together.

    Args:
        extents: A table's files.
        target_bytes: How large a file is to be; files of less than half of that are small.
        most_bytes: How large a set may be.
        deepest: How many large files may have one value.
    """
    of_partitions: dict[Values, list[Extent]] = {}
    for extent in extents:
        of_partitions.setdefault(extent.file.values, []).append(extent)
    for mine in of_partitions.values():
        small = [each.file for each in mine if each.file.size_bytes < target_bytes // 2]
        together = list(_up_to(most_bytes, small))
        if len(together) > 1:
            yield together
            continue
        large = [each for each in mine if each.file.size_bytes >= target_bytes // 2]
        deep = list(_up_to(most_bytes, [each.file for each in _deepest(large)]))
        if len(deep) >= deepest:
            yield deep


def _up_to(most_bytes: int, files: Sequence[LiveFile]) -> Iterator[LiveFile]:
    """The smallest of some files that are not too large together."""
    size = 0
    for file in sorted(files, key=lambda file: file.size_bytes):
        size += file.size_bytes
        if size > most_bytes:
            return
        yield file


def _deepest(extents: Sequence[Extent]) -> list[Extent]:
    """The files that reach over the value which most of them reach over.

    A file of a single value, or one of which that is not known, would not become narrower.
    """
    wide = [each for each in extents if each.least is not None and each.least != each.greatest]
    sets = ([each for each in wide if each.least <= one.least <= each.greatest] for one in wide)
    return max(sets, key=len, default=[])
