"""Replaces data files of a Delta table by those of a shadow table in one commit; the files are linked into its folder.

No row of the shadow is copied. Where a file holds both rows to replace and rows to keep, the rows to keep are usually
copied beforehand, and the commit changes metadata only. Otherwise they are copied now.
"""

import json
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import DataLossError, IncompatibleTableError
from headwater_streams.delta.delta_table import (
    DeltaTransaction,
    mark_action,
    read_files,
    read_version,
    remove_action,
)
from headwater_streams.delta.live_files import LiveFile, all_files
from headwater_streams.spark.delta_log import Action, Snapshot
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.files import exists, link, matching, read_text

_FEW_FILES = 16


@dataclass(frozen=True)
class Swapped:
    """The result of a swap.

    Attributes:
        version: The table's version that it made.
        removed_rows: The number of replaced rows.
        added_rows: The number of rows that came in their place.
        kept_rows: The number of rows that were in one file with replaced ones and were copied.
    """

    version: int
    removed_rows: int
    added_rows: int
    kept_rows: int


@dataclass(frozen=True)
class CopiedRows:
    """Rows of a table that were copied beforehand.

    Attributes:
        table: A Delta table of the copies.
        files: The files of the original table of which they are all rows to keep.
    """

    table: Path
    files: frozenset[str]


class FileSwap(DeltaTransaction):
    """One commit that replaces the rows of a condition; a new one is made when Delta raises one of `conflicts()`."""

    def frame(self) -> DataFrame:
        """The table at that version."""
        return read_version(self._spark, self._path, self.version)

    def replace(
        self,
        affected: Column,
        app_id: str,
        mark: int,
        user_metadata: str,
        *,
        shadow: Path | None = None,
        rows: DataFrame | None = None,
        file_counts: dict[str, tuple[int, int]] | None = None,
        copied: CopiedRows | None = None,
        may_only_add: bool = False,
    ) -> Swapped:
        """Removes the affected rows and adds those of a shadow table, or of a frame, as one version.

        Args:
            affected: Which rows of the table are replaced; true or false, never NULL.
            app_id: The mark's application id.
            mark: The mark's version.
            user_metadata: The ledger entry.
            shadow: A Delta table with the same columns, whose files are linked into this one's folder.
            rows: Rows to write instead.
            file_counts: See `count_affected`.
            copied: Copies of rows to keep, which are used if they are of exactly the files that have such rows.
            may_only_add: Whether the commit may remove no file where no row is affected. Streaming readers then read
                the commit as new rows, and it rewrites no file of another job.

        Raises:
            DataLossError: The number of rows to keep differs from the count; nothing is committed.
        """
        files = {file.name: file for file in self.all_files()}
        touched = {} if file_counts is None else file_counts
        self.count_affected(affected, touched)
        removed = {name: counts for name, counts in touched.items() if counts[0]}
        if not removed and files and not may_only_add:
            # Streaming readers would read a commit that only adds as new rows; these are not new.
            smallest = min(files, key=lambda name: files[name].size_bytes)
            removed = {smallest: touched.get(smallest, (0, 0))}
        actions = [remove_action(files[name]) for name in sorted(removed)]
        kept_rows = sum(total - gone for gone, total in removed.values())
        if kept_rows:
            mixed = [name for name, (gone, total) in removed.items() if total > gone]
            copies = self._copied(copied, mixed, kept_rows)
            actions += copies or self._written(self.rest(affected, mixed), kept_rows)
        if shadow is not None:
            adds = live_files(shadow)
            added = sum(map(_rows, adds))
            actions += self._linked(shadow, adds)
        else:
            assert rows is not None
            added = rows.count()
            actions += self._written(rows, added) if added else []
        version = self._commit(actions, app_id, mark, user_metadata)
        return Swapped(version, sum(gone for gone, _ in removed.values()), added, kept_rows)

    def exchange(
        self,
        app_id: str,
        mark: int,
        user_metadata: str,
        *,
        removed: Sequence[LiveFile],
        added: Snapshot,
        marks: Mapping[str, int],
        keeps_columns: bool = False,
    ) -> int:
        """Removes whole files and adds others, as one version, which it returns; no row is read.

        Args:
            app_id: The mark's application id.
            mark: The mark's version.
            user_metadata: The ledger entry.
            removed: Files of the table.
            added: Files of another table, which are linked into this one's folder, or earlier files of this one.
            marks: Further marks, by their application ids.
            keeps_columns: Whether the table keeps its columns and partitions; otherwise it gets those of `added`.

        Raises:
            DataLossError: A file no longer exists; nothing is committed.
        """
        self._transaction.reads_all()
        gone = [add["path"] for add in added.files if not exists(data_file(added.table, add["path"]))]
        if gone:
            raise DataLossError(
                f"{added.table}: {len(gone)} files of that version are not there any more, {gone[0]} among them; "
                "nothing was committed"
            )
        now = (self._transaction.schema, self._transaction.partition_columns)
        if not keeps_columns and (added.schema, added.partition_columns) != now:
            self._transaction.set_columns(added.schema, added.partition_columns)
        names = {add["path"] for add in added.files}
        # Delta allows one action for a file.
        unchanged = {file.name for file in removed if file.name in names}
        actions = [remove_action(file) for file in removed if file.name not in unchanged]
        actions += [mark_action(*more) for more in marks.items()]
        for add in added.files:
            if add["path"] in unchanged:
                continue
            if added.table != self._path:
                link(data_file(added.table, add["path"]), data_file(self._path, add["path"]))
            actions.append(_new(add))
        return self._commit(actions, app_id, mark, user_metadata)

    def count_affected(self, affected: Column, file_counts: dict[str, tuple[int, int]]) -> None:
        """Counts the affected rows of each file.

        Args:
            affected: See `replace`.
            file_counts: By file, the number of its affected rows and of all its rows. The counts are added to it, so
                that only new files are read the next time; files that the table no longer has are removed from it.
        """
        files = {file.name: file.rows for file in all_files(self._path, self.version)}
        for gone in file_counts.keys() - files.keys():
            del file_counts[gone]
        new = {_last_part(name): name for name in files if name not in file_counts}
        if new:
            # Of many files Delta reads those whose statistics allow an affected row.
            few = len(new) <= _FEW_FILES
            paths = [data_file(self._path, name) for name in new.values()]
            rows = read_files(self._spark, self.schema, paths) if few else self.frame()
            by_file = rows.filter(affected).groupBy(F.col("_metadata.file_name").alias("file"))
            counts = {row["file"]: row["count"] for row in by_file.count().collect()}
            file_counts.update({name: (counts.get(last, 0), files[name]) for last, name in new.items()})

    def rest(self, affected: Column, names: Collection[str]) -> DataFrame:
        """The rows of some files that are not affected; no other file is read."""
        # Delta skips no file by `_metadata.file_name`.
        files = [data_file(self._path, name) for name in sorted(names)]
        return read_files(self._spark, self.schema, files).filter(~affected)

    def _copied(self, copied: CopiedRows | None, mixed: Sequence[str], expected: int) -> list[Action]:
        """The copies' files, linked into the table's folder, where they are copies of just these files; else none."""
        if copied is None or copied.files != set(mixed):
            return []
        copies = live_files(copied.table)
        return self._linked(copied.table, copies) if sum(map(_rows, copies)) == expected else []

    def _written(self, rows: DataFrame, expected: int) -> list[Action]:
        files = self.write(rows)
        if files.rows != expected:
            raise DataLossError(
                f"{self._path}: {files.rows} rows to write where {expected} were counted; nothing was committed"
            )
        return files.actions

    def _linked(self, table: Path, adds: Sequence[Mapping[str, Any]]) -> list[Action]:
        """Another table's files, linked into this one's folder.

        Raises:
            IncompatibleTableError: They have other partitions.
        """
        others = [add for add in adds if set(add["partitionValues"]) != set(self.partition_columns)]
        if others:
            raise IncompatibleTableError(
                f"{self._path}: the table got other partitions since {table} was made; nothing was committed: plan the "
                "backfill again"
            )
        for add in adds:
            link(data_file(table, add["path"]), data_file(self._path, add["path"]))
        return [_new(add) for add in adds]

    def _commit(self, actions: Sequence[Action], app_id: str, mark: int, user_metadata: str) -> int:
        marked = [mark_action(app_id, mark), *actions]
        return self._transaction.commit_replacement(marked, f"the rows of {app_id}", user_metadata)


def _last_part(name: str) -> str:
    """A data file's name without the folders of its partition; it is its own among all files of a table."""
    return name.rpartition("/")[2]


def live_files(shadow: Path) -> list[dict[str, Any]]:
    """The `add` actions of a table that was only ever appended to, oldest first."""
    adds: list[dict[str, Any]] = []
    for log in matching(shadow / "_delta_log", "*.json"):
        actions = (json.loads(line) for line in read_text(log).splitlines())
        adds += [action["add"] for action in actions if "add" in action]
    return adds


def _new(add: Mapping[str, Any]) -> Action:
    return {"add": {**add, "dataChange": True, "modificationTime": int(time.time() * 1000)}}


def _rows(add: Mapping[str, Any]) -> int:
    return int(json.loads(add["stats"])["numRecords"])
