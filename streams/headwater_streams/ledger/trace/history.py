"""What a table's ledger says of its rows: which commit wrote one, what it was read from, what became of a record.

It decides and opens nothing: a `TableHistory` is commits, and tests write them by hand.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, is_undone
from headwater_streams.base.target import CHANGES_SUFFIX, LATE_SUFFIX, QUARANTINE_SUFFIX
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.trace.places import Place, Span

if TYPE_CHECKING:
    import pyarrow as pa

_INGEST = "__ingest_"
_REMOVED = ("filtered", "duplicate", "expired")
"""The terms of records that are in no table of the job afterwards."""
_WITHOUT_RESULT = {
    "filtered": "the job's function dropped it",
    "duplicate": "it had been read before",
    "expired": "it is older than the table keeps its rows, or left the state without a partner",
    "waiting": "it waits for a partner",
    "unmatched": "no row of the other side held at its time",
    "kept": "no row of the other side has met it so far",
    "late": "it came after its window was closed, and late rows are only counted",
    "matched": "it is among the rows that found a partner, and a condition behind the join left the pair out",
    "folded": "it was taken into a window that is not written yet",
}
"""What the terms of an account say of one record, in the order in which they are likely."""


@dataclass(frozen=True)
class During:
    """A time, half-open, by a column."""

    column: str
    start: datetime
    end: datetime


class Tables(Protocol):
    """The tables of a home, as a trace asks for them."""

    def names(self) -> Sequence[str]:
        """The tables."""

    def history(self, table: str) -> "TableHistory":
        """A table's commits."""

    def rows_at(self, table: str, spans: Sequence[Span], during: "During | None" = None) -> "pa.Table":
        """The rows whose own place is in some ranges; with a time, of a table that has its column only those in it."""

    def rows_over(self, table: str, place: Place) -> "pa.Table":
        """The rows that name a place in their `_sources`, or as their own."""

    def window_time(self, job: str) -> str | None:
        """The column of its input by which a job's windows go; None where that is not known."""


@dataclass(frozen=True)
class InputOf:
    """An input of a table: the parameter of the job's function, and the topics or the table behind it."""

    input: str
    table: str | None
    topics: frozenset[str]


@dataclass(frozen=True)
class TableHistory:
    """The commits that a table's rows come from, oldest first."""

    table: str
    commits: tuple[Commit, ...]

    @classmethod
    def of(cls, table: str, commits: Iterable[Commit]) -> "TableHistory":
        """The history of commits, without batches that a later generation has undone."""
        history = [*commits]
        cleared = [c.entry for c in history if c.entry and Extra.ACTION.get(c.entry) == "clear"]
        live = (
            c
            for c in history
            if c.entry is None or not any(is_undone(c.entry, beginning) for beginning in cleared)
        )
        return cls(table, tuple(live))

    @cached_property
    def batches(self) -> tuple[Commit, ...]:
        """The commits of batches; in a side table, of what they took aside."""
        return tuple(
            c for c in self.commits if c.entry is not None and (c.entry.is_batch or c.entry.kind == "side")
        )

    @cached_property
    def last(self) -> LedgerEntry | None:
        """The entry of the newest batch."""
        return self.batches[-1].entry if self.batches else None

    @cached_property
    def _versions(self) -> Mapping[tuple[int, int], int]:
        return {(e.generation, e.batch): c.version for c in self.batches if (e := c.entry) is not None}

    @cached_property
    def inputs(self) -> tuple[InputOf, ...]:
        """What the table was made of, the inputs of the newest batches first."""
        inputs: dict[tuple[str, str | None], set[str]] = {}
        for commit in reversed(self.batches):
            assert commit.entry is not None
            for source in commit.entry.sources:
                inputs.setdefault((source.input, source.table), set()).update(_topics(source))
        return tuple(InputOf(name, table, frozenset(topics)) for (name, table), topics in inputs.items())

    def input_of(self, span: Span, side: int = 0) -> InputOf | None:
        """The input that the rows of a range came by: the one that has read its topic; of several, as in a join of a
        topic with itself, the one of that side."""
        reading = [each for each in self.inputs if span.topic in each.topics]
        if not reading:
            return None
        by_name = {each.input: each for each in reversed(reading)}
        order = [s.input for s in self.last.sources if s.input in by_name] if self.last is not None else []
        of_side = order[side] if len(order) > side and len(by_name) > 1 else reading[0].input
        return by_name[of_side]

    def version_of(self, row: Mapping[str, Any]) -> int | None:
        """The version with which a batch wrote a row; None where its commit is not known."""
        return self._versions.get((row.get("_generation"), row.get("_batch")))  # type: ignore[arg-type]

    def written_by(self, row: Mapping[str, Any], spans: Sequence[Span]) -> Commit | None:
        """The commit that a row is of: its batch's, or that of a repair which came after it and is still in effect."""
        version = self.version_of(row)
        batch = next((c for c in self.batches if c.version == version and _is_of(c.entry, row)), None)
        for repair in reversed(self._repairs):
            assert repair.entry is not None
            if (version is None or repair.version > version) and _reads_some(repair.entry, spans):
                return repair
        return batch

    @cached_property
    def _repairs(self) -> tuple[Commit, ...]:
        """The swaps of repairs that were not taken back."""
        in_effect: dict[str, Commit] = {}
        for commit in self.commits:
            if commit.entry is None or commit.entry.kind != "backfill":
                continue
            backfill = Extra.BACKFILL.get(commit.entry, str(commit.version))
            if Extra.ACTION.get(commit.entry) == "rollback":
                in_effect.pop(backfill, None)
            else:
                in_effect[backfill] = commit
        return tuple(in_effect.values())

    def reads_topic(self, topic: str) -> bool:
        """Whether the table's job reads a topic itself."""
        return any(each.table is None and topic in each.topics for each in self.inputs)

    def reads_table(self, table: str) -> bool:
        """Whether the table's job reads another table."""
        return any(each.table == table for each in self.inputs)

    def batch_of(self, place: Place) -> Commit | None:
        """The last batch that read a record from its topic."""
        return next((c for c in reversed(self.batches) if _source_with(c.entry, place)), None)

    def batch_of_version(self, table: str, version: int) -> Commit | None:
        """The last batch that read what another table's commit of some version wrote."""
        for commit in reversed(self.batches):
            assert commit.entry is not None
            for source in commit.entry.sources:
                start, end = source.versions or (0, 0)
                if source.table == table and start <= version < end and version not in source.left_out:
                    return commit
        return None

    def why_not_read(self, place: Place) -> str:
        """Why no batch has read a record of a topic, as a sentence's end."""
        ranges = [
            source.ranges[place.topic][place.partition]
            for commit in self.batches
            if commit.entry is not None
            for source in commit.entry.sources
            if source.table is None and place.partition in source.ranges.get(place.topic, {})
        ]
        if not ranges:
            return f"the job has read nothing of partition {place.partition} yet"
        first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
        if place.offset >= end:
            return f"the job has read up to offset {end} so far"
        if place.offset < first:
            return f"the job began at offset {first}"
        return (
            "no batch that the table has kept read it: the records were gone, or another generation read them"
        )

    def side(self, suffix: str) -> str:
        """The table of late or rejected rows that this table's job writes; it need not exist."""
        return self.side_owner + suffix

    @cached_property
    def side_owner(self) -> str:
        """The table whose side tables have the rows that this table's job took aside: an ingest job writes those of
        the job that it feeds, and a job with several tables those of its first one."""
        _, is_ingest, of_input = self.table.rpartition(_INGEST)
        if is_ingest:
            return self.table.removesuffix(_INGEST + of_input)
        return self.table if self.last is None else Extra.BESIDE.get(self.last, self.table)

    @property
    def is_side(self) -> bool:
        """Whether it is a table of late or rejected rows, or of a dimension's changes."""
        return self.table.endswith((LATE_SUFFIX, QUARANTINE_SUFFIX, CHANGES_SUFFIX))

    @property
    def changes(self) -> str | None:
        """The table of the events behind a slowly changing dimension; None for other tables."""
        return self.table + CHANGES_SUFFIX if self.last is not None and self.last.kind == "scd" else None

    @property
    def is_ingest(self) -> bool:
        """Whether it is the table that the library puts between a topic and a job that keeps state."""
        return _INGEST in self.table

    @property
    def sides(self) -> tuple[str, str]:
        """The tables of rejected and of late rows."""
        return self.side(QUARANTINE_SUFFIX), self.side(LATE_SUFFIX)


def terms_of(entry: LedgerEntry, place: Place | None, input_name: str | None) -> Mapping[str, int]:
    """The account that a record is in: of its partition where there is a whole one, else of its input, else of all."""
    if place is not None and entry.kind in ("row", "scd"):
        of_partition = entry.partitions.get(place.topic, {}).get(place.partition)
        if of_partition is not None:
            return of_partition
    if input_name is not None and input_name in entry.accounting:
        return entry.accounting[input_name]
    return entry.totals


def why_without_row(terms: Mapping[str, int]) -> str:
    """Why a record that was read is in none of a job's tables, by the account of its batch: one reason where only one
    is possible, else each with how many records it holds for.

    Example:
        >>> why_without_row({"read": 4, "written": 3, "filtered": 1})
        "the job's function dropped it"
        >>> why_without_row({"read": 4, "written": 1, "filtered": 2, "duplicate": 1})
        "the job's function dropped it (so of 2 records of its batch), or it had been read before (1)"
    """
    # Terms of rows that are in a table come last: the record is in none.
    removed = {term: terms[term] for term in _REMOVED if terms.get(term, 0) > 0}
    others = {term: n for term in _WITHOUT_RESULT if term not in removed and (n := terms.get(term, 0)) > 0}
    possible = removed or others
    if not possible:
        return (
            "the account of its batch has no record without a row: it was removed from the table afterwards"
        )
    if len(possible) == 1:
        return _WITHOUT_RESULT[next(iter(possible))]
    counts = [f"{_WITHOUT_RESULT[term]} ({n})" for term, n in possible.items()]
    first = next(iter(possible))
    counts[0] = f"{_WITHOUT_RESULT[first]} (so of {possible[first]} records of its batch)"
    return ", or ".join(counts)


def _topics(source: SourceRange) -> set[str]:
    return {*source.ranges, *([source.topic] if source.topic is not None else [])}


def _is_of(entry: LedgerEntry | None, row: Mapping[str, Any]) -> bool:
    return entry is not None and (entry.generation, entry.batch) == (
        row.get("_generation"),
        row.get("_batch"),
    )


def _reads_some(entry: LedgerEntry, spans: Sequence[Span]) -> bool:
    for source in entry.sources:
        for span in spans:
            start, end = source.ranges.get(span.topic, {}).get(span.partition, (0, 0))
            if max(start, span.start) < min(end, span.end):
                return True
    return False


def _source_with(entry: LedgerEntry | None, place: Place) -> SourceRange | None:
    for source in entry.sources if entry is not None else ():
        start, end = source.ranges.get(place.topic, {}).get(place.partition, (0, 0))
        if source.table is None and start <= place.offset < end:
            return source
    return None
