"""A table that a job reads commit by commit, where a backfill put other rows in the place of all of them.

    version      7    8    9    10        11   12   13
                 o    o    o    rebuilt   o    o    put back (the rebuild was rolled back)
                           ^                          |
                           a job read up to here      what 11 and 12 brought is not there any more

A job that begins now reads what is there as one, and goes on from it. One that has read rows which are not there any
more would keep what it made of them, and is refused. One that has not goes on, and leaves out what was taken back.

A repair puts other rows in the place of some. A job that has read these passes over it, and is repaired, too; one that
begins now reads what is there as one, for the commits that it could read have the rows that are gone. So it is with
rows that have expired.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.ledger.expired import is_expiry
from headwater_streams.ledger.log import Commit, commits, first_version, lineage, replacements
from headwater_streams.ledger.repairs import ROLLBACK, SWAP, repairs_among
from headwater_streams.sources.coordinates import BATCH, GENERATION
from headwater_streams.storage.delta_files import partition_columns


def is_read_as_one(table: Path, begin: int) -> bool:
    """Whether a query that begins now cannot read a table's rows commit by commit: they came all at once, the log of
    the commits that brought them was cut, or the table has other partitions since. Delta reads no stream over these.

    Args:
        table: The table's folder.
        begin: The version of its first row's commit, were all there.
    """
    if first_version(table) > begin or replacements(commits(table, since=max(0, begin - 1))):
        return True
    said = {c.partitions for c in commits(table, since=begin) if c.partitions is not None}
    return bool(said) and said != {partition_columns(table, begin)}


def begins_as_one(table: Path, begin: int) -> bool:
    """Whether a query that begins now reads what is there as one: also where a repair that was not taken back put other
    rows in the place of some, or some have expired, since commit by commit it would read those that are gone. Arguments
    as above."""
    if is_read_as_one(table, begin):
        return True
    history = [*commits(table, since=begin)]
    swapped = any(SWAP in done and ROLLBACK not in done for done in repairs_among(history).values())
    return swapped or any(is_expiry(commit.entry) for commit in history)


def replaced_by(target: Path, name: str, table: Path, version: int) -> Commit | None:
    """The commit that replaced the rows that a job has read; None where these are still in the table.

    Args:
        target: The folder of the table that the job writes, whose ledger says what it has read.
        name: The name of the table that it reads.
        table: Its folder.
        version: The first version of it that the job has not read.
    """
    replacing = replacements(commits(table, since=version))
    read = _read_by(target, name, table, version) if replacing else []
    for commit in replacing:
        assert commit.entry is not None
        if Extra.SHADOW.is_in(commit.entry) or any(was_taken_back(each, [commit.entry]) for each in read):
            return commit
    return None


def taken_back_since(table: Path, version: int) -> tuple[LedgerEntry, ...]:
    """The beginnings of generations, since a version that a job has read up to, that undid batches which it has not."""
    beginnings = [commit.entry for commit in replacements(commits(table, since=version))]
    return tuple(entry for entry in beginnings if entry is not None and not Extra.SHADOW.is_in(entry))


def _read_by(target: Path, name: str, table: Path, version: int) -> list[Commit]:
    """The commits up to a version whose rows a job has read. Rows that replaced others it has read only if it began
    with them; otherwise it has passed over them, because they had been taken back by then. It has also passed over
    commits behind these that a batch names."""
    sources = [
        source
        for commit in lineage(target)
        for source in (commit.entry.sources if commit.entry is not None else ())
        if source.table == name
    ]
    ends = [each.versions[1] for each in sources if each.versions is not None and each.versions[0] == 0]
    since = max(ends, default=0)
    history = lineage(table, until=version)
    came = {c.version for c in history if c.entry is not None and Extra.SHADOW.is_in(c.entry)}
    passed_over = {each for each in came if each >= since} | {
        each for source in sources for each in source.left_out
    }
    return [c for c in history if c.version not in passed_over]


def was_taken_back(commit: Commit, beginnings: Iterable[LedgerEntry]) -> bool:
    """Whether a commit is of a batch that one of the beginnings undid."""
    return commit.entry is not None and any(is_undone(commit.entry, each) for each in beginnings)


def taken_back_rows(beginnings: Sequence[LedgerEntry]) -> Column:
    """The same as a condition on rows; `beginnings` has at least one."""
    return reduce(Column.__or__, [_rows_undone(each) for each in beginnings])


def _rows_undone(beginning: LedgerEntry) -> Column:
    generation, batch = F.col(GENERATION), F.col(BATCH)
    last = Extra.AFTER.of(beginning)
    after = (generation > last["generation"]) | ((generation == last["generation"]) & (batch > last["batch"]))
    undone: Column = (generation < beginning.generation) & after
    return undone
