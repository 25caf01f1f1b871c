"""Upkeep of a job's tables between two of its batches: it compacts small files, removes old ones and cuts the log.

It runs in the job's own thread, where no commit of the job can meet it; what others commit meanwhile (a backfill's
swap) makes Delta refuse a compaction, which is then tried again later.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.compute as pc
from deltalake.exceptions import DeltaError
from pyspark.errors import PySparkException

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.layout import FILE_RETENTION, LOG_RETENTION, retention
from headwater_streams.delta.clustering import clustered_by, compact_clustered
from headwater_streams.delta.compaction import compact
from headwater_streams.ledger.cleaning import clean_log, next_versions, offered_versions
from headwater_streams.ledger.counts.store import COUNTS_TABLE
from headwater_streams.ledger.log import LEDGER_TABLE, commits, first_version, next_commit
from headwater_streams.operators.dedup.memory import SEEN_TABLE
from headwater_streams.plan.job import Job
from headwater_streams.quality.results import RESULTS_TABLE
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.progress import PROGRESS_TABLE
from headwater_streams.spark.spark_errors import JvmError, reason_of
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_files import opened_table, properties_of
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import remove_rows
from headwater_streams.storage.home import Home

_log = logging.getLogger(__name__)
_HOUR = timedelta(hours=1)
_FAULTS = (DeltaError, OSError, DamagedFileError)
_OF_SORTING = (DataLossError, PySparkException, JvmError)
_GROWING = (RESULTS_TABLE, COUNTS_TABLE)
_FILE_BYTES = 1 << 20
"""Of tables that grow for years by a few rows a batch: files of 100 MB would be written again every few minutes, and
vacuumed a week later."""
_REMOVE_EVERY = 10  # compactions: listing a table's folder costs more the longer it lives


@dataclass(frozen=True)
class Upkeep:
    """When a job's tables are looked after.

    Attributes:
        every: After how many commits of a table its small files are compacted.
        files_kept_h: For how many hours files that no version needs any more are kept, for readers of old versions.
        log_kept_days: For how many days Delta's log is kept; the ledger's copy answers for what came before.
        results_kept_days: For how many days the results of checks are kept; 0 for ever.

    A table's own properties, `delta.deletedFileRetentionDuration` and `delta.logRetentionDuration`, go before the
    latter two.
    """

    every: int = 100
    files_kept_h: int = 168
    log_kept_days: float = 30
    results_kept_days: float = 0


class TableUpkeep:
    """Looks after the tables of one job."""

    def __init__(self, context: StageContext, job: Job, upkeep: Upkeep) -> None:
        self._context, self._job, self._upkeep = context, job, upkeep
        self._target = context.home.table(job.target.name)  # each batch commits to all of them
        self._rounds = self._round()

    def after_batch(self, batch: int) -> None:
        """Does what is due. A fault is logged and does not stop the job."""
        rounds = self._round()
        if rounds == self._rounds:
            return
        self._rounds = rounds
        self._context.step(self._job.name, "before compaction", batch)
        removing = rounds % _REMOVE_EVERY == 0
        for name in (self._job.target.name, *self._job.other_tables):
            self._tend(name, compacting=True, removing=removing)
        if removing:
            for name in (self._job.target.quarantine_table, self._job.target.late_table):
                self._tend(name, compacting=False, removing=True)
        self._context.step(self._job.name, "after compaction", batch)

    def _tend(self, name: str, *, compacting: bool, removing: bool) -> None:
        """Compacts and cleans one table. The files of a side table stay as its commits name them, for a rebuild removes
        the rows of some commits."""
        home, path = self._context.home, self._context.home.table(name)
        if not has_versions(path):
            return
        try:
            if compacting:
                columns = clustered_by(path)
                if columns:
                    compact_clustered(self._context.spark, path, columns)
                else:
                    compact(path)
            if removing:
                properties = properties_of(path)
                files_kept = retention(properties, FILE_RETENTION)
                hours = self._upkeep.files_kept_h if files_kept is None else -(-files_kept // _HOUR)
                vacuum(home, name, hours)
            if compacting and removing:
                log_kept = retention(properties, LOG_RETENTION) or timedelta(days=self._upkeep.log_kept_days)
                clean_log(home, name, older_than=datetime.now(UTC) - log_kept)
        except (*_FAULTS, *_OF_SORTING) as error:
            _log.warning("job %r: upkeep of %s: %s", self._job.name, name, reason_of(error) or error)

    def _round(self) -> int:
        return next_commit(self._target) // self._upkeep.every


def tidy(home: Home, upkeep: Upkeep) -> None:
    """Looks after the library's own tables, and forgets what jobs did longer ago than a log is kept."""
    now = datetime.now(UTC)
    for name in (PROGRESS_TABLE, LEDGER_TABLE, SEEN_TABLE, RESULTS_TABLE, COUNTS_TABLE):
        path = home.table(name)
        if not has_versions(path):
            continue
        try:
            if name == PROGRESS_TABLE:
                _forget(path, "happened_at", now - timedelta(days=upkeep.log_kept_days))
            if name == RESULTS_TABLE and upkeep.results_kept_days:
                # At the last full day, so that the files that hold it are written anew once a day.
                horizon = now - timedelta(days=upkeep.results_kept_days)
                _forget(path, "at", horizon.replace(hour=0, minute=0, second=0))
            compact(path, _FILE_BYTES if name in _GROWING else None)
            vacuum(home, name, upkeep.files_kept_h)
        except _FAULTS as error:
            _log.warning("upkeep of %s: %s", name, error)


def _forget(table: Path, column: str, before: datetime) -> None:
    remove_rows(
        table, pc.field(column) < before.replace(microsecond=0), f"{column} < '{before:%Y-%m-%dT%H:%M:%SZ}'"
    )


def vacuum(home: Home, table: str, kept_h: int) -> None:
    """Removes files that no version of the last hours needs, and files of commits that were never made.

    It keeps what a rollback would put back and what a job has not read yet, however old.
    """
    path = home.table(table)
    versions = sorted({*offered_versions(path), *_unread(home, table)})
    opened_table(path).vacuum(
        kept_h, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=versions or None
    )


def _unread(home: Home, table: str) -> Iterator[int]:
    """The versions before commits that removed files, as far as a job that reads the table has not read up to these."""
    path = home.table(table)
    since = min(next_versions(home, table), default=None)
    if since is not None:
        for commit in commits(path, since=max(since, first_version(path))):
            if commit.removed_files and commit.version > since:
                yield commit.version - 1
