"""Lets go of rows that are older than their table keeps them, by event time.

    keep = 90 days        horizon                              newest event
    expired               |  kept                              |
    ----------------------+------------------------------------+

The horizon is the time that `keep` lies before the newest event time that the job has seen, at the last full day (hour,
minute, where `keep` is short). What a table loses depends on the events alone, so a job that waits, or is run again,
loses nothing more; but a time that is ahead of the clock counts as now, or one wrong record would take all others with
it. Of most tables whole files go; of others their rows behind the horizon are written anew. One commit
does it, whose entry says how many rows of each batch are gone, so that the audit expects the others and no more.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.base.errors import DataLossError
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import EXPIRY, NO_WATERMARK_MS, LedgerEntry
from headwater_streams.delta.delta_table import DeltaTransaction, WrittenFiles, conflicts
from headwater_streams.delta.live_files import LiveFile, files_between
from headwater_streams.ledger.expired import BatchId
from headwater_streams.ledger.log import last_entry
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.stages.watermark import Watermark
from headwater_streams.sources.coordinates import BATCH, GENERATION, PLACE, ROWS
from headwater_streams.spark.columns import col
from headwater_streams.storage.delta_files import data_file, reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import data_files

_log = logging.getLogger(__name__)
_US_PER_MS, _US_PER_S = 1_000, 1_000_000
_STEPS_US = tuple(seconds * _US_PER_S for seconds in (86_400, 3_600, 60))  # a day, an hour, a minute


class SomeOffsets(Protocol):
    """Some offsets of some partitions, as `backfill.offsets` has them."""

    def condition(self) -> Column:
        """True where a row's coordinates are among them, never NULL."""

    def mask(self, coordinates: pa.Table) -> pa.Array:
        """True at the rows of a table `_topic, _partition, _offset` that are among them."""

    def to_json(self) -> list[list[Any]]:
        """Each stretch as `[topic, partition, start, end]`."""


def is_behind(column: str, horizon_us: int, among: SomeOffsets | None) -> Column:
    """True for a row that has expired; NULL where it has no time.

    Args:
        column: The column that says how old a row is.
        horizon_us: The time before which rows have expired, microseconds.
        among: The offsets whose rows have; None: those of all.
    """
    old = col(column) < F.timestamp_micros(F.lit(horizon_us))
    return old if among is None else old & among.condition()


def horizon_of(newest_us: int, keep_us: int) -> int:
    """The time before which rows have expired, in microseconds.

    Example:
        >>> day = 86_400_000_000
        >>> horizon_of(100 * day + 5, 90 * day) == horizon_of(101 * day - 1, 90 * day) == 10 * day
        True
    """
    step_us = next((step for step in _STEPS_US if 2 * step <= keep_us), _STEPS_US[-1])
    return (newest_us - keep_us) // step_us * step_us


def newest_of(entry: LedgerEntry) -> int | None:
    """The newest event time that a job had seen at a commit, or its watermark, in microseconds; None before the
    first."""
    if entry.max_event_time_us is not None:
        return entry.max_event_time_us
    seen_us = Watermark.of(entry).seen_us
    if seen_us is not None:
        return seen_us
    known_ms = [at for at in entry.input_watermarks_ms.values() if at is not None] or [entry.watermark_ms]
    return None if min(known_ms) == NO_WATERMARK_MS else min(known_ms) * _US_PER_MS


@dataclass(frozen=True)
class Aged:
    """A data file with rows that have expired.

    Attributes:
        file: The file.
        expired: How many they are, by the batch that wrote them.
        counted: How many rows of its input they count, where they are windows.
    """

    file: LiveFile
    expired: Mapping[BatchId, int]
    counted: int

    @property
    def rows(self) -> int:
        """How many of its rows have expired."""
        return sum(self.expired.values())

    @property
    def is_whole(self) -> bool:
        """Whether all of its rows have."""
        return self.rows == self.file.rows


def aged(
    table: Path, file: LiveFile, column: str, horizon_us: int, among: SomeOffsets | None = None
) -> Aged | None:
    """A file as it is at a horizon; None where all of its rows are kept. A row without a time is.

    Args:
        table: Where the table is.
        file: The file.
        column: The column that says how old a row is.
        horizon_us: The time before which rows have expired, microseconds.
        among: The offsets whose rows have; those of all by default.
    """
    dataset = data_files([data_file(table, file.name)])
    names = set(dataset.schema.names)
    if column not in names:
        return None
    horizon = pa.scalar(horizon_us, pa.timestamp("us", "UTC"))
    counted = [ROWS] if ROWS in names else []
    places = [*PLACE] if among is not None else []
    with reading(table):
        rows = dataset.to_table(
            [GENERATION, BATCH, *counted, *places], filter=pc.field(column).cast(horizon.type) < horizon
        )
    if among is not None:
        rows = rows.filter(among.mask(rows.select(places)))
    if not rows.num_rows:
        return None
    of_batches = rows.group_by([GENERATION, BATCH]).aggregate([([], "count_all")]).to_pylist()
    expired = {(each[GENERATION], each[BATCH]): each["count_all"] for each in of_batches}
    return Aged(file, expired, (pc.sum(rows[ROWS]).as_py() or 0) if counted else 0)


def expiry_entry(
    plan: JobPlan,
    generation: int,
    table: str,
    found: Sequence[Aged],
    horizon_us: int,
    *,
    column: str,
    among: SomeOffsets | None = None,
) -> LedgerEntry:
    """What the commit says that lets go of rows of some files; see `expire`.

    Args:
        plan: The job.
        generation: The generation that it runs in.
        table: The table.
        found: The files, each with what has expired of it.
        horizon_us: The time before which rows have expired, microseconds.
        column: The column that says how old a row is.
        among: The offsets whose rows have.
    """
    of_batches: Counter[BatchId] = Counter()
    for each in found:
        of_batches.update(each.expired)
    terms = {"expired": sum(of_batches.values())}
    if plan.kind == "window":
        terms["counted"] = sum(each.counted for each in found)
    listed = [[*batch, rows] for batch, rows in sorted(of_batches.items(), key=str)]
    return LedgerEntry(
        job=plan.job.name,
        generation=generation,
        batch=-1,
        table=table,
        kind=EXPIRY,
        accounting={table: terms},
        fingerprint=plan.job.fingerprint,
        extra={
            Extra.EXPIRED_BEFORE_US: horizon_us,
            Extra.EXPIRED_BY: column,
            Extra.EXPIRED: listed,
            **({Extra.EXPIRED_AMONG: among.to_json()} if among is not None else {}),
        },
    )


class Expiry:
    """Lets go of the old rows of a job's tables, between its batches."""

    def __init__(self, context: StageContext, plan: JobPlan, generation: int) -> None:
        """Args: the home; the job; the generation that it runs in."""
        self._context, self._plan, self._generation = context, plan, generation
        self._keeping = {t.name: keep for t in plan.job.targets if (keep := t.layout.keep_us) is not None}
        self._done: dict[str, int] = {}

    def after_batch(self, batch: int) -> None:
        """Lets go of what has expired since the last time. Where others commit to a table meanwhile, it waits for the
        next batch."""
        if not self._keeping:
            return
        target = self._context.home.table(self._plan.job.target.name)
        entry = last_entry(target, self._plan.job.name, self._generation)
        newest_us = newest_of(entry) if entry is not None else None
        if newest_us is None:
            return
        now_us = self._context.now_ms() * _US_PER_MS
        for table, keep_us in self._keeping.items():
            horizon_us = horizon_of(min(newest_us, now_us), keep_us)
            if horizon_us <= self._done.get(table, horizon_us - 1):
                continue
            self._context.step(self._plan.job.name, "before expiry", batch)
            try:
                expire(self._context, self._plan, self._generation, table, horizon_us)
            except conflicts() as error:
                _log.info(
                    "job %r: %s was changed by others, and keeps its old rows until the next batch: %s",
                    self._plan.job.name,
                    table,
                    type(error).__name__,
                )
                continue
            self._done[table] = horizon_us
            self._context.step(self._plan.job.name, "after expiry", batch)


def expire(
    context: StageContext,
    plan: JobPlan,
    generation: int,
    table: str,
    horizon_us: int,
    *,
    column: str | None = None,
    among: SomeOffsets | None = None,
) -> int:
    """Lets go of the rows of a table that are older than a horizon, by one commit; of none where there are none.

    Args:
        context: The session, the home.
        plan: The job.
        generation: The generation that it runs in.
        table: The table.
        horizon_us: The time before which rows have expired, microseconds.
        column: The column that says how old a row is; the one that the job declares by default.
        among: The offsets whose rows have, which the entry then names; those of all by default.

    Returns:
        How many they were.

    Raises:
        DataLossError: The rows that stay are not as many as were counted; nothing is committed.
    """
    path, by = context.home.table(table), column or _column(plan, table)
    if not has_versions(path):
        return 0
    transaction = context.transaction(path)
    near = set(files_between(path, transaction.version, by, None, horizon_us))
    if not near:
        return 0
    files = (file for file in transaction.all_files() if file.name in near)
    found = [each for file in files if (each := aged(path, file, by, horizon_us, among)) is not None]
    if not found:
        return 0
    expired = is_behind(by, horizon_us, among)
    mixed = [each for each in found if not each.is_whole]
    written = _rest(transaction, mixed, expired) if mixed else None
    entry = expiry_entry(plan, generation, table, found, horizon_us, column=by, among=among)
    transaction.commit(
        f"{plan.job.name}/expiry",
        horizon_us // _US_PER_S,
        entry.to_json(),
        written,
        removed=[each.file for each in found],
    )
    return entry.totals["expired"]


def _rest(transaction: DeltaTransaction, mixed: Sequence[Aged], expired: Column) -> WrittenFiles:
    """Writes the rows that stay of files of which others go."""
    rows = transaction.read([each.file for each in mixed])
    written = transaction.write(rows.filter(~F.coalesce(expired, F.lit(False))))
    expected = sum(each.file.rows - each.rows for each in mixed)
    if written.rows != expected:
        raise DataLossError(
            f"{written.rows} rows to keep where {expected} were counted beside expired ones; nothing was committed, "
            "and the job can be started again"
        )
    return written


def _column(plan: JobPlan, table: str) -> str:
    column = plan.age_column(table)
    assert column is not None  # checked when the job was planned
    return column
