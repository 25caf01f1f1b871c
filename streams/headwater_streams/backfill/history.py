"""What the live job did, read from its target's ledger entries: its batches, its progress, earlier backfills."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.store import BackfillError
from headwater_streams.backfill.values import LiveBatchId, Span, micros
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import (
    EXPIRY,
    NO_WATERMARK_MS,
    LedgerEntry,
    Ranges,
    SourceRange,
    count_of,
    merge_ranges,
)
from headwater_streams.ledger.log import Commit, lineage, since_rebuilt
from headwater_streams.ledger.repairs import ROLLBACK, half_done, repairs_among
from headwater_streams.ledger.shared import recreated_topics
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.runtime.lookups import Versions, versions_of
from headwater_streams.storage.home import Home

_US_PER_MS = 1_000
_OTHERS = ("backfill", "generation", EXPIRY)  # commits that are no batches


@dataclass(frozen=True)
class LiveBatch:
    """A batch of a row job, and what the job remembered when it began.

    Attributes:
        id: Its generation, number and offsets; an offset delivered again belongs to the first batch that had it.
        seen: The offsets seen before, as the ledger holds them.
        max_event_time_us: The greatest event time seen before.
        shortfall: How many of its offsets held no record: control records, aborted and compacted ones.
        lookups: The versions of the look-ups that it read.
    """

    id: LiveBatchId
    seen: dict[str, list[tuple[int, int]]] | None
    max_event_time_us: int | None
    shortfall: int = 0
    lookups: Versions = field(default_factory=dict)


@dataclass(frozen=True)
class Folded:
    """Late rows that an earlier backfill folded in: those of its windows, up to a commit of the input."""

    windows: tuple[Span, ...]
    until: tuple[int, int]


class TableHistory:
    """The commits of a table that a job writes, up to now or to a version."""

    def __init__(self, commits: Sequence[Commit], name: str, job: str | None = None) -> None:
        """Of a given job, or of whichever job writes the table; there is a commit at least."""
        self.commits, self.name, self._job = commits, name, job

    @property
    def version(self) -> int:
        """The newest version."""
        return self.commits[-1].version

    def entries(self, *, since: int = -1) -> list[LedgerEntry]:
        """The live job's own entries, oldest first, of versions after `since`."""
        return [entry for version, entry in self._made() if version > since]

    def _made(self) -> Iterator[tuple[int, LedgerEntry]]:
        """The same, all of them, each with its version."""
        for version, entry in ((c.version, c.entry) for c in self.commits):
            if entry is not None and entry.kind not in _OTHERS and self._job in (None, entry.job):
                yield version, entry

    def last_entry(self) -> LedgerEntry:
        """The live job's newest entry.

        Raises:
            BackfillError: It has not committed anything.
        """
        entries = self.entries()
        if not entries:
            raise BackfillError(self.never_ran.sentence)
        return entries[-1]

    @property
    def never_ran(self) -> Refusal:
        """That the job has not committed anything."""
        writer = f"the job {self._job!r}" if self._job else "a job"
        return Refusal(f"{writer} has not committed anything to {self.name} yet; run the job first")

    def read_ranges(
        self, *, since: int = -1, of: Callable[[SourceRange], bool] = lambda _: True
    ) -> dict[str, dict[int, tuple[int, int]]]:
        """The offsets that the live job read, by topic and partition; of an input, or of all.

        Of a topic that was made again they are those of the newest one.
        """
        return ranges_of(s for e in self.entries(since=since) for s in self._of_newest(e) if of(s))

    def batches(self) -> list[LiveBatch]:
        """The live job's batches, each offset in one of them only; see `read_ranges`."""
        covered: dict[tuple[str, int], IntervalSet] = {}
        before: dict[int, LedgerEntry] = {}
        known: dict[int, dict[str, list[tuple[int, int]]]] = {}
        for commit in self.commits:
            begun = commit.entry
            if begun is not None and begun.kind == "generation" and self._job in (None, begun.job):
                before[begun.generation] = begun
                known[begun.generation] = dict(begun.seen or {})
        found = []
        for entry in self.entries():
            previous = before.get(entry.generation)
            before[entry.generation] = entry
            seen = dict(known[entry.generation]) if entry.generation in known else None
            # What the live job no longer keeps at hand (see `operators.dedup.memory`) it looks up, so here nothing is
            # let go.
            for changed in (entry.seen, entry.seen_changed):
                if changed is not None:
                    known.setdefault(entry.generation, {}).update(changed)
            newest = previous.max_event_time_us if previous else None
            pieces = _pieces(self._of_newest(entry), covered)
            read = sum(terms["read"] for terms in entry.accounting.values())
            shortfall = max(0, sum(count_of(ranges) for ranges in pieces) - read)
            for ranges in pieces:
                id_ = LiveBatchId(generation=entry.generation, batch=entry.batch, ranges=ranges)
                found.append(LiveBatch(id_, seen, newest, shortfall, versions_of(entry)))
                shortfall = 0
        return found

    @cached_property
    def made_again(self) -> dict[str, int]:
        """The topics that were deleted and made again since the job read them first, each with the generation that
        began to read the newest one: rows of the generations before have the same offsets, of other records."""
        entries = (c.entry for c in self.commits if c.entry is not None)
        return recreated_topics(entry for entry in entries if self._job in (None, entry.job))

    @cached_property
    def last_of_old(self) -> int:
        """The newest version with what a batch read of a topic before that was made again, which nobody can read again;
        -1 without any."""
        newest = [
            version
            for version, entry in self._made()
            if ranges_of(entry.sources).keys() - ranges_of(self._of_newest(entry)).keys()
        ]
        return max(newest, default=-1)

    def _of_newest(self, entry: LedgerEntry) -> Sequence[SourceRange]:
        """What a batch read, but for topics that were made again since."""
        if not self.made_again:
            return entry.sources
        old = {topic for topic, generation in self.made_again.items() if entry.generation < generation}
        return [
            replace(
                source, ranges={topic: found for topic, found in source.ranges.items() if topic not in old}
            )
            for source in entry.sources
        ]

    def backfill(self, backfill: str) -> dict[str, tuple[int, LedgerEntry]]:
        """The commits that a backfill made, by what they did, each with its version."""
        entries = ((c.version, c.entry) for c in self.commits)
        return {
            Extra.ACTION.of(entry): (version, entry)
            for version, entry in entries
            if entry is not None and entry.kind == "backfill" and Extra.BACKFILL.of(entry) == backfill
        }

    @property
    def closed_until_us(self) -> int:
        """The watermark at which the live job has written its windows last, in microseconds; `NO_WATERMARK_MS` before
        it had one."""
        return max((e.watermark_ms for e in self.entries()), default=NO_WATERMARK_MS) * _US_PER_MS

    def repairs(self) -> dict[str, dict[str, int]]:
        """The versions that repairs made, by their ids and what they did, the oldest repair first."""
        return repairs_among(self.commits)

    def folded(self) -> list[Folded]:
        """The late rows that swaps folded in and no rollback took out again."""
        found: dict[str, Folded] = {}
        for commit in self.commits:
            entry = commit.entry
            if entry is None or entry.kind != "backfill" or not Extra.UNTIL.is_in(entry):
                continue
            backfill = Extra.BACKFILL.of(entry)
            if Extra.ACTION.of(entry) == ROLLBACK:
                found.pop(backfill, None)
                continue
            windows = tuple((micros(start), micros(end)) for start, end in Extra.WINDOWS.of(entry))
            generation, batch = Extra.UNTIL.of(entry)
            found[backfill] = Folded(windows, (generation, batch))
        return list(found.values())


def read_history(table: Path, name: str, job: str | None = None, *, until: int | None = None) -> TableHistory:
    """Reads the log of a table once; of a given job, or of whichever job writes the table.

    Raises:
        BackfillError: The table does not exist.
    """
    made = since_rebuilt(lineage(table, until=None if until is None else until + 1))
    if not made:
        raise BackfillError(no_table(name).sentence)
    return TableHistory(made, name, job)


def no_table(name: str) -> Refusal:
    """That there is no such table."""
    return Refusal(
        f"there is no table {name}, so there is nothing to mend; run the job first, or, where the table was removed, "
        "make it anew: headwater jobs rebuild"
    )


def require_none_half_done(home: Home, target: str, others: Sequence[str], *, but: str = "") -> None:
    """Sees to it that no repair, but one, has changed another table of a job and not its target.

    Raises:
        BackfillError: One has, or one is half rolled back.
    """
    half = half_done(home, target, others, but=but)
    if half is not None:
        remedy = "roll that one back again" if half.is_back else "swap that one in, or roll it back"
        raise BackfillError(f"{half.description}; {remedy}, first")


def ranges_of(sources: Iterable[SourceRange]) -> dict[str, dict[int, tuple[int, int]]]:
    """The smallest ranges that hold all that was read."""
    merged = merge_ranges([source.ranges for source in sources])
    return {
        topic: {partition: pair for partition, pair in partitions.items() if pair[0] < pair[1]}
        for topic, partitions in merged.items()
    }


def _pieces(sources: Iterable[SourceRange], covered: dict[tuple[str, int], IntervalSet]) -> list[Ranges]:
    """What a batch read and no batch before it did; one piece, unless it lies on both sides of what was covered."""
    pieces: list[dict[str, dict[int, tuple[int, int]]]] = []
    for source in sources:
        for topic, partitions in source.ranges.items():
            for partition, (start, end) in partitions.items():
                if start >= end:
                    continue
                known = covered.setdefault((topic, partition), IntervalSet())
                at, free = start, []
                for low, high in known.overlapping(start, end):
                    if at < low:
                        free.append((at, low))
                    at = max(at, high)
                if at < end:
                    free.append((at, end))
                known.add(start, end)
                for place, pair in enumerate(free):
                    while len(pieces) <= place:
                        pieces.append({})
                    pieces[place].setdefault(topic, {})[partition] = pair
    return list(pieces)
