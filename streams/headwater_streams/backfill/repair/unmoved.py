"""Whether commits of others left the affected rows of a table alone, and what a swap made of the table's files.

Both are told by the files of the commits: a file that stays is the same file, and none of its rows is read.
"""

from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame

from headwater_streams.backfill.diff import content_of
from headwater_streams.backfill.repair.kept import Kept
from headwater_streams.backfill.store import BackfillError
from headwater_streams.delta.delta_table import read_files, read_version
from headwater_streams.delta.file_swap import live_files
from headwater_streams.delta.live_files import LiveFile, all_files
from headwater_streams.ledger.log import commits, first_version
from headwater_streams.runtime.context import StageContext
from headwater_streams.storage.delta_files import data_file
from headwater_streams.storage.files import exists, is_same_file


def is_unmoved(context: StageContext, table: Path, affected: Column, since: int, version: int) -> bool:
    """Whether the affected rows are at a version what they were at another one.

    Args:
        context: The session.
        table: The table's folder.
        affected: Which rows; true or false, never NULL.
        since: The version that is known.
        version: The version that is looked at.

    Raises:
        BackfillError: The table's log does not reach back to the known version any more.
    """
    if since + 1 < (oldest := first_version(table)):
        raise BackfillError(
            f"the log of {table.parent.name}.{table.name} begins at version {oldest} by now, so nobody can tell "
            f"whether the affected rows are those of version {since} still; plan again"
        )
    newer = [c for c in commits(table, since=since + 1, until=version + 1) if c.data_changed]
    if not newer:
        return True
    now = read_version(context.spark, table, version)
    if not any(commit.removed_files for commit in newer):
        added = [data_file(table, path) for commit in newer for path in commit.added_paths]
        if all(exists(file) for file in added):
            return not added or read_files(context.spark, now.schema, added).filter(affected).isEmpty()
    known = read_version(context.spark, table, since)
    return content_of(known, affected)[0] == content_of(now, affected)[0]


def proof_of(
    context: StageContext, table: Path, shadow: Path, affected: Column, version: int, kept: Kept | None = None
) -> dict[str, Any]:
    """What a swap's commit did, as its result tells it.

    Args:
        context: The session.
        table: The table's folder.
        shadow: The folder of the table whose files it added.
        affected: Which rows it replaced.
        version: The version that it made.
        kept: What was copied aside for it: where these copies came, as they were proved, no row is read.

    Returns:
        `{"rows_outside", "outside_unchanged", "inside_is_the_shadow"}`.
    """
    before = {file.name: file for file in all_files(table, version - 1)}
    after = {file.name: file for file in all_files(table, version)}
    now, made = read_version(context.spark, table, version), [add["path"] for add in live_files(shadow)]
    rows, inside = sum(file.rows for file in after.values()), now.filter(affected).count()
    rewritten = [file for name, file in after.items() if name not in before and name not in made]
    replaced = [file for name, file in before.items() if name not in after]
    return {
        "rows_outside": rows - inside,
        "outside_unchanged": _came_as_proved(kept, table, replaced, rewritten)
        or _same_outside(now, table, affected, replaced, rewritten),
        "inside_is_the_shadow": after.keys() >= set(made)
        and inside == sum(after[name].rows for name in made)
        and all(_is_same(data_file(table, name), data_file(shadow, name)) for name in made),
    }


def _came_as_proved(
    kept: Kept | None, table: Path, replaced: list[LiveFile], rewritten: list[LiveFile]
) -> bool:
    """Whether of the files that are gone those with rows to keep were the ones copied aside, and the copies came."""
    if kept is None or not kept.proved or any(file.name not in kept.counts for file in replaced):
        return False
    mixed = {file.name for file in replaced if kept.counts[file.name][0] < kept.counts[file.name][1]}
    copies = {add["path"] for add in live_files(kept.rows.table)}
    return (
        mixed == kept.rows.files
        and {file.name for file in rewritten} == copies
        and all(_is_same(data_file(table, name), data_file(kept.rows.table, name)) for name in copies)
    )


def _same_outside(
    now: DataFrame, table: Path, affected: Column, replaced: list[LiveFile], rewritten: list[LiveFile]
) -> bool:
    """Whether the rows that stood in one file with replaced ones are in the files that came for these."""
    if not replaced:
        return True
    spark, schema = now.sparkSession, now.schema
    kept = read_files(spark, schema, [data_file(table, file.name) for file in replaced]).filter(~affected)
    if not rewritten:
        return kept.isEmpty()
    again = read_files(spark, schema, [data_file(table, file.name) for file in rewritten])
    return content_of(kept, affected) == content_of(again, affected)


def _is_same(file: Path, made: Path) -> bool:
    """Whether a file is the one of the shadow: linked, or a copy where the file system has no links."""
    return exists(made) and is_same_file(file, made)
