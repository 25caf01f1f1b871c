"""What a table has let go of by its age, which no backfill brings back; see `runtime.expiry`.

A row job's repair leaves such rows out and counts them, windows that have expired are no part of a repair's range, and
a rebuild lets go of them in its shadow before it is proved. What has expired is what the ledger says, since the table
was last built from empty: rows that came after that stand, where `keep` was taken out or lengthened, however old they
are. Where rows of an input have expired, what was made of them cannot be made again, and is left as it is: a repair may
replace any other rows, also those of the same batch.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.conditions import any_of
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.input import first_to_last
from headwater_streams.backfill.repair.joins.times import reach_us
from headwater_streams.backfill.repair.pinning import pinned_table
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk
from headwater_streams.backfill.values import Span
from headwater_streams.base.durations import in_micros
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import EXPIRED, EXPLODED, LedgerEntry, Ranges, spelled
from headwater_streams.base.moments import iso
from headwater_streams.base.plural import quantity
from headwater_streams.delta.delta_table import read_version
from headwater_streams.ledger.expired import expired_before_us, expired_rows, is_expiry
from headwater_streams.ledger.log import Commit, lineage, next_commit, since_rebuilt
from headwater_streams.ledger.repairs import repairs_among
from headwater_streams.operators.windows.cumulative import CumulativeWindow
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.plan.plan import JobPlan, Operator
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.expiry import is_behind
from headwater_streams.sources.coordinates import PLACE, ROW
from headwater_streams.spark.columns import col

_OF_ROW = "_of_row"


@dataclass(frozen=True)
class Horizon:
    """A time before which rows of a table have expired.

    Attributes:
        since_us: The time, microseconds.
        among: The offsets whose rows it is of: what came to the table later stands, however old it is. None where rows
            are of no offsets, as windows.
    """

    since_us: int
    among: Offsets | None = None

    def hides(self, other: "Horizon") -> bool:
        """Whether all that is behind another one is behind this one."""
        is_among = self.among is None or (
            other.among is not None and Offsets.union([self.among, other.among]) == self.among
        )
        return self.since_us >= other.since_us and is_among


@dataclass(frozen=True)
class Kept:
    """What a table keeps, once something of it has expired.

    Attributes:
        column: The column that says how old a row is.
        horizons: What has expired, in the order in which it did; one at least.
    """

    column: str
    horizons: Sequence[Horizon]

    @property
    def since_us(self) -> int:
        """The time from which on all rows are kept, microseconds."""
        return max(each.since_us for each in self.horizons)

    def condition(self) -> Column:
        """True for a row that is kept, never NULL: one without a time is."""
        return ~any_of([is_behind(self.column, each.since_us, each.among) for each in self.horizons])


def kept_of(context: StageContext, part: JobPlan, table: str, version: int | None = None) -> Kept | None:
    """What one of a job's tables keeps at a version, its newest by default; None where nothing has expired.

    It follows from what its ledger says that has expired, whatever the job declares now.
    """
    path = context.home.table(table)
    return kept_by(path, part, table, next_commit(path) if version is None else version + 1)


def kept_by(path: Path, part: JobPlan, table: str, until: int) -> Kept | None:
    """The same, of the versions before one.

    Args:
        path: Where the table is.
        part: The job.
        table: The table's name.
        until: The version.
    """
    history = since_rebuilt(lineage(path, until=until))
    expiries = [(place, c.entry) for place, c in enumerate(history) if c.entry and is_expiry(c.entry)]
    column = _age_column(part, table, expiries[-1][1]) if expiries else None
    if column is None:
        return None
    read = _read_at(history, table) if part.kind == "row" else None
    horizons: list[Horizon] = []
    for place, entry in reversed(expiries):
        since_us, listed = Extra.EXPIRED_BEFORE_US.of(entry), Extra.EXPIRED_AMONG.get(entry)
        if listed is None and any(later.since_us >= since_us for later in horizons):
            continue  # the later one is of more batches
        among = None if read is None else Offsets.of(ranges for at, ranges in read if at < place)
        horizon = Horizon(since_us, among if listed is None else Offsets.from_json(listed))
        if not any(later.hides(horizon) for later in horizons):
            horizons = [*(later for later in horizons if not horizon.hides(later)), horizon]
    return Kept(column, horizons[::-1])


def _age_column(part: JobPlan, table: str, expiry: LedgerEntry) -> str | None:
    """The column by which rows have expired; the one that is declared now, if the job makes no such column any more."""
    column = Extra.EXPIRED_BY.of(expiry)
    return column if column in part.schemas[table].names else part.age_column(table)


def _read_at(history: Sequence[Commit], table: str) -> list[tuple[int, Ranges]]:
    """What the batches of a table read, each with its place among the commits; an offset is of one batch alone."""
    places = {
        (c.entry.generation, c.entry.batch): place
        for place, c in enumerate(history)
        if c.entry and c.entry.is_batch
    }
    batches = TableHistory(history, table).batches()
    return [(places[each.id.generation, each.id.batch], each.id.ranges) for each in batches]


@dataclass(frozen=True, kw_only=True)
class Lost:
    """Rows of a table that were made of expired rows of another one.

    Attributes:
        table: The table.
        source: The other one.
        rows: How many they are.
        ranges: Their offsets, from the first to the last of each partition.
    """

    table: str
    source: str
    rows: int
    ranges: Ranges


@dataclass(frozen=True, kw_only=True)
class ExpiredFacts:
    """What has expired of the tables of a repair.

    Attributes:
        part: The job.
        kept: What its table keeps.
        inputs_us: Of the tables that it reads, the time before which their rows have expired, microseconds.
        lost: The rows in the range that were made of these.
        partners_us: Of a join, for a table of these, from when on its rows may be partners of the other side's rows in
            the range, microseconds.
    """

    part: JobPlan
    kept: Kept | None = None
    inputs_us: Mapping[str, int] = field(default_factory=dict)
    lost: Sequence[Lost] = ()
    partners_us: Sequence[tuple[str, int]] = ()


def expired_inputs(context: StageContext, part: JobPlan) -> dict[str, int]:
    """Of the tables that a job reads, the time before which rows have expired that it may have read, microseconds."""
    found = {}
    read = [
        source
        for c in since_rebuilt(lineage(context.home.table(part.job.target.name)))
        if c.entry
        for source in c.entry.sources
    ]
    for name in (declared.name for declared in part.job.tables):
        begun = min((each.versions[1] for each in read if each.table == name and each.versions), default=0)
        history = since_rebuilt(lineage(context.home.table(name)))
        before_us = expired_before_us(c.entry for c in history if c.entry and c.version >= begun)
        if before_us is not None:
            found[name] = before_us
    return found


def expired_facts(context: StageContext, part: JobPlan, planned: BackfillPlan) -> ExpiredFacts:
    """What has expired of the tables of a repair that is planned otherwise."""
    inputs = expired_inputs(context, part)
    kept = kept_of(context, part, planned.target, planned.base_version)
    return ExpiredFacts(
        part=part,
        kept=kept,
        inputs_us=inputs,
        lost=[*_lost(context, part, planned, inputs)],
        partners_us=[*_partners_us(context, part, planned, inputs)],
    )


def _lost(
    context: StageContext, part: JobPlan, planned: BackfillPlan, tables: Mapping[str, int]
) -> Iterator[Lost]:
    """See `ExpiredFacts`; of the tables named alone, each with the time before which its rows have expired."""
    if planned.kind == "window":
        return
    ranges = planned.lefts if planned.kind == "join" else planned.ranges
    for side, of_side in ((planned.pinned, ranges), (planned.partner, planned.rights)):
        if side is None or side.table not in tables:
            continue
        history = since_rebuilt(lineage(context.home.table(side.table)))
        gone = _of_expired_batches(history).inside(of_side)
        if not gone.count:
            continue
        in_range = gone.reach() & gone.condition() & planned.affected.condition()
        held = pinned_table(context, side).filter(gone.reach() & gone.condition())
        for name, own in planned.parts.items():
            rows = read_version(context.spark, context.home.table(name), own.base_version).filter(in_range)
            below = part.exploding[name].below if name in part.exploding else 0
            rows = _without_source(rows, held, below or 1)
            # A repair of that table may have taken rows out, too, which this one is to follow.
            by = _expired_by(history)
            if _was_mended(history) and dict(rows.dtypes).get(by) == "timestamp":
                rows = rows.filter(F.unix_micros(col(by)) < tables[side.table])
            count = rows.count()
            if count:
                yield Lost(table=name, source=side.table, rows=count, ranges=first_to_last(rows))


def _of_expired_batches(history: Sequence[Commit]) -> Offsets:
    """The offsets of the batches of which rows have expired."""
    entries = [commit.entry for commit in history if commit.entry is not None]
    expired = expired_rows(entries)
    return Offsets.of(
        source.ranges
        for entry in entries
        if entry.is_batch and expired[entry.generation, entry.batch]
        for source in entry.sources
    )


def _expired_by(history: Sequence[Commit]) -> str:
    """The column by which rows of a table have expired."""
    entries = (commit.entry for commit in history if is_expiry(commit.entry))
    return [Extra.EXPIRED_BY.of(entry) for entry in entries if entry is not None][-1]


def _was_mended(history: Sequence[Commit]) -> bool:
    """Whether rows of a table went by something else than their age."""
    repairs, others = repairs_among(history), (c for c in history if not is_expiry(c.entry))
    # Of commits whose log files are gone it is not known what they removed, but a repair's entry is kept.
    return bool(repairs) or any(commit.data_changed and commit.removed_files for commit in others)


def _without_source(rows: DataFrame, held: DataFrame, below: int) -> DataFrame:
    """The rows that were made of rows of a table which it does not hold.

    Args:
        rows: The rows.
        held: What the table holds.
        below: By what the place of a row of the table in its record was multiplied in those that were made of it.
    """
    names = [*PLACE]
    if ROW in held.columns and ROW in rows.columns:
        place = F.coalesce(F.col(ROW), F.lit(0))
        rows = rows.withColumn(_OF_ROW, place - place % below)
        held = held.withColumn(_OF_ROW, place * below)
        names.append(_OF_ROW)
    return rows.join(held.select(*names), names, "left_anti")


def _partners_us(
    context: StageContext, part: JobPlan, planned: BackfillPlan, tables: Collection[str]
) -> Iterator[tuple[str, int]]:
    """See `ExpiredFacts`; of the tables named alone."""
    if planned.kind != "join" or planned.pinned is None or planned.partner is None:
        return
    left, right = part.sides
    before_us, after_us = reach_us(part.operator)
    for name, side, offsets, others, reach in (
        (left, planned.pinned, planned.lefts, planned.partner, after_us),
        (right, planned.partner, planned.rights, planned.pinned, before_us),
    ):
        if others.table not in tables:
            continue
        rows = pinned_table(context, side).filter(Offsets.of([offsets]).condition())
        time = str(part.job.inputs[name].event_time)
        (first_us,) = rows.agg(F.min(F.unix_micros(col(time)))).collect()[0]
        if first_us is not None:
            yield others.table, first_us - reach


def without_expired(planned: BackfillPlan, facts: ExpiredFacts) -> BackfillPlan | Refusal:
    """The plan without what has expired; refused where that is all, or where what it reads has expired."""
    if planned.kind == "window":
        return _windows(planned, facts)
    for lost in facts.lost:
        of = f"of {lost.table} in the range"
        return Refusal(
            f"{quantity(lost.rows, f'row {of} was', f'rows {of} were')} made of rows of {lost.source} before "
            f"{iso(facts.inputs_us[lost.source])}, which have expired, and cannot be made again: give a range without "
            f"the offsets {', '.join(spelled(lost.ranges))}"
        )
    for table, since_us in facts.partners_us:
        if since_us < facts.inputs_us[table]:
            return Refusal(
                f"rows of {table} before {iso(facts.inputs_us[table])} have expired, and rows in the range may have "
                "had partners among them, which would be missing; give a range that reaches no further back, or leave "
                f"what {planned.target} has of that time as it is"
            )
    if facts.kept is None:
        return planned
    note = f"rows whose {facts.kept.column} is before {iso(facts.kept.since_us)} have expired and do not come back"
    return replace(planned, notes=(*planned.notes, note))


def _windows(planned: BackfillPlan, facts: ExpiredFacts) -> BackfillPlan | Refusal:
    horizons = [*facts.inputs_us.values()]
    if facts.kept is not None:
        horizons.append(facts.kept.since_us - _shortest_us(facts.part.operator))
    first_us = max(horizons, default=None)
    if first_us is None or all(start >= first_us for start, _ in planned.windows):
        return planned
    whose = [*facts.inputs_us] or [planned.target]
    left = [cut for span in planned.windows if (cut := _from(span, first_us)) is not None]
    # Sessions are read by rows around them, which were chosen for all.
    if not left or not isinstance(facts.part.operator, FixedWindow):
        return Refusal(
            f"windows of the range begin before {iso(first_us)}, and what {', '.join(whose)} had of that time has "
            "expired; give a range of times after it"
        )
    chunks: list[Chunk] = []
    for chunk in planned.chunks:
        span = None if chunk.span is None else _from(chunk.span, first_us)
        if span is not None:
            chunks.append(replace(chunk, number=len(chunks), span=span))
    note = f"windows that begin before {iso(first_us)} are left out: what {', '.join(whose)} had of them has expired"
    return replace(
        planned,
        windows=tuple(left),
        chunks=tuple(chunks),
        rows=sum(chunk.rows for chunk in chunks),
        notes=(*planned.notes, note),
    )


def _shortest_us(operator: Operator | None) -> int:
    """How long the shortest window of one start is, microseconds: where it is kept, by its end, all others are."""
    if isinstance(operator, CumulativeWindow):
        return in_micros(operator.step)
    return in_micros(operator.size) if isinstance(operator, FixedWindow) else 0


def _from(span: Span, first_us: int) -> Span | None:
    start, end = max(span[0], first_us), span[1]
    return (start, end) if start < end else None


def without_rows(terms: Mapping[str, int], expired: int, wholly: int = 0) -> dict[str, int]:
    """The terms of a step of a row job whose rows are not all written.

    Args:
        terms: Those of all rows that came out of the function; of records that became several rows, `exploded` counts
            those of which some are written, and the others are `filtered`.
        expired: How many of the rows are beyond the age.
        wholly: Of how many of such records all rows are.
    """
    if not expired:
        return dict(terms)
    written = terms["written"] - expired
    if EXPLODED not in terms:
        return {**terms, "written": written, EXPIRED: expired}
    return {**terms, "written": written, "filtered": terms["filtered"] - wholly, EXPIRED: wholly}
