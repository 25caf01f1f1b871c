"""The rows of a row-by-row job, recomputed: its function over all records that were picked, at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import accumulate
from random import Random

from pyspark.sql import Column, DataFrame

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Compared, Order, compare
from headwater_streams.backfill.recompute.copies import without_copies
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.reading import in_order, without
from headwater_streams.backfill.recompute.row_inputs import RowInputs, TableRows
from headwater_streams.backfill.recompute.sampling import limit_of, pick_offsets
from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.plural import quantity
from headwater_streams.operators.exploding import hide_rows, reveal_rows
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, LookupVersion, Versions
from headwater_streams.runtime.stages.narrowing import failing
from headwater_streams.sources.coordinates import ROW_COLUMNS
from headwater_streams.spark.frames import compute
from headwater_streams.spark.hidden_columns import reveal


@dataclass(frozen=True)
class WrittenRows:
    """What a run of a row job wrote, and what it was to read.

    Attributes:
        rows: The rows.
        columns: Those of their columns that are compared.
        batches: The job's batches, in their order, each offset in one of them.
        wanted: The offsets whose rows are there; None for those of all batches.
        lookups: The look-ups that were read at one version; the others as each batch read them.
        table: The table, where the job writes several; the target by default.
        tables: What was read of the tables among the job's inputs, by input.
        kept: Which rows the table keeps, where others have expired, as a condition over rows of the result.
    """

    rows: DataFrame
    columns: Sequence[str]
    batches: Sequence[LiveBatch]
    wanted: Ranges | None
    lookups: Versions
    table: str | None = None
    tables: Mapping[str, TableRows] = field(default_factory=dict)
    kept: Column | None = None


@dataclass(frozen=True)
class _Part:
    """Records that the function is given at once: those of batches that read the same look-ups."""

    versions: Versions
    read: Offsets
    compared: Offsets
    batches: tuple[int, ...]


_Good = Mapping[str, DataFrame]
"""Good records, each once, with their coordinates, by input."""


class RowRecomputation:
    """Recomputes rows of a row job's target."""

    def __init__(self, context: StageContext, plan: JobPlan, written: WrittenRows) -> None:
        """Args: what the job is, and what was written.

        Raises:
            NotRecomputableError: Its rows cannot be recomputed.
        """
        self._context, self._plan, self._job, self._written = context, plan, plan.job, written
        self._table = written.table or plan.job.target.name
        self._inputs = RowInputs(context, plan, written.batches, written.tables)
        self._lookups = Lookups(context, plan)

    def run(self, how: Recompute, seed: str) -> Recomputed:
        """Recomputes all rows, or a sample.

        Raises:
            NotRecomputableError: There is nothing that can be.
            StreamsError: Nobody answers, or a look-up is gone.
        """
        everything = self._everything()
        parts = self._parts()
        held = sum(part.compared.count for part in parts)
        if not held:
            raise NotRecomputableError(
                f"none of {everything.count:,} offsets is in {everything.topics} any more"
            )
        limit = limit_of(everything.count)
        if how == "sample" and held > limit:
            parts = self._sampled(parts, limit, Random(seed))
        made = self._rows_of(parts)
        read = Offsets.union([part.compared for part in parts])
        rows = self._written.rows
        rows = rows if read == everything else rows.filter(read.condition())
        try:
            found = self._compared(parts, made, rows)
        except Exception as error:
            found = self._compared(parts, self._without_failing(parts, made, read, error), rows)
        outcome = judged(found, quantity(found.rows, "row"), read, everything, everything.count - held)
        if not found.extra:
            return outcome
        # A compacted topic forgets records between the others.
        lost = without(rows, self._inputs.places(Offsets.union([part.read for part in parts]))).count()
        kept = replace(found, extra=found.extra - lost)
        outcome = judged(kept, quantity(found.rows, "row"), read, everything, everything.count - held)
        of_rows = quantity(lost, "written row")
        note = f"{everything.topics} does not hold the records of {of_rows} any more"
        return replace(outcome, notes=(*outcome.notes, note)) if lost else outcome

    def _compared(self, parts: Sequence[_Part], made: Sequence[_Good], rows: DataFrame) -> Compared:
        return compare(
            lambda order: self._results(parts, made, order),
            rows,
            self._plan.place(self._table),
            self._written.columns,
            by_hash=True,
        )

    def _without_failing(
        self, parts: Sequence[_Part], made: Sequence[_Good], read: Offsets, error: Exception
    ) -> list[_Good]:
        """The records but those for which the function raises, which the job sends to quarantine.

        Raises:
            Exception: The error, where no record is to blame.
            RowErrorsError: There are more of them than the job allows.
        """

        def among(which: Column) -> list[_Good]:
            return [{name: rows.filter(which) for name, rows in good.items()} for good in made]

        def compute_those(which: Column) -> None:
            compute(self._results(parts, among(which), None))

        who, batches = f"job {self._job.name!r}, recomputed", sum(len(part.batches) for part in parts)
        found = failing(self._job, compute_those, read.spans, who, error, batches)
        return among(~found.condition)

    def _everything(self) -> Offsets:
        """The offsets that the rows come from."""
        return self._wanted(Offsets.of([batch.id.ranges for batch in self._written.batches]))

    def _wanted(self, offsets: Offsets) -> Offsets:
        return offsets if self._written.wanted is None else offsets.inside(self._written.wanted)

    def _parts(self) -> list[_Part]:
        """What of the batches can be read, apart where they read other look-ups.

        Raises:
            NotRecomputableError: A look-up's version is not known, or copies of what is gone cannot be told.
        """
        there = self._inputs.there
        found: dict[tuple[tuple[str, LookupVersion], ...], list[int]] = {}
        for number, batch in enumerate(self._written.batches):
            of_batch = Offsets.of([batch.id.ranges])
            is_whole = of_batch.inside(there) == of_batch
            if self._inputs.by_key and not is_whole:
                raise NotRecomputableError(
                    f"offsets are gone from {of_batch.topics}, and which of the others' rows are copies of theirs is "
                    "not known"
                )
            # Copies that headers tell are told beside the other records of their batch.
            if (is_whole or not self._inputs.by_headers) and self._wanted(of_batch.inside(there)).count:
                versions = {name: self._version(name, batch) for name in self._plan.lookups}
                found.setdefault(tuple(sorted(versions.items(), key=str)), []).append(number)
        return [self._part(dict(versions), numbers, there) for versions, numbers in found.items()]

    def _version(self, name: str, batch: LiveBatch) -> LookupVersion:
        version = self._written.lookups.get(name) or batch.lookups.get(name)
        if version is None:
            raise NotRecomputableError(f"which version of the look-up {name} was read is not known")
        return version

    def _part(self, versions: Versions, numbers: Sequence[int], there: Ranges) -> _Part:
        read = Offsets.of([self._written.batches[number].id.ranges for number in numbers]).inside(there)
        compared = self._wanted(read)
        return _Part(versions, read if self._inputs.by_headers else compared, compared, tuple(numbers))

    def _sampled(self, parts: Sequence[_Part], limit: int, rng: Random) -> list[_Part]:
        if self._inputs.by_key:
            return self._first(parts, limit)
        (part,) = rng.choices(parts, weights=[part.compared.count for part in parts])
        if not self._inputs.by_headers:
            picked = pick_offsets(part.compared, limit, rng)
            return [replace(part, read=picked, compared=picked)]
        # Whole batches that follow each other, one at least.
        first = rng.randrange(len(part.batches))
        numbers: list[int] = []
        for number in (*part.batches[first:], *reversed(part.batches[:first])):
            more = Offsets.of([self._written.batches[n].id.ranges for n in (*numbers, number)])
            if numbers and more.count > limit:
                break
            numbers.append(number)
        return [self._part(part.versions, sorted(numbers), part.read.spans)]

    def _first(self, parts: Sequence[_Part], limit: int) -> list[_Part]:
        """The first batches: which of a key's rows stays depends on all that came before."""
        sizes = (Offsets.of([batch.id.ranges]).count for batch in self._written.batches)
        until = sum(read <= limit for read in accumulate(sizes))
        if not until:
            raise NotRecomputableError(
                "which of a key's rows stays depends on all that came before, and the first batch has more of them "
                "than a sample; --recompute all reads them"
            )
        some = [(part.versions, [number for number in part.batches if number < until]) for part in parts]
        return [self._part(versions, numbers, self._inputs.there) for versions, numbers in some if numbers]

    def _rows_of(self, parts: Sequence[_Part]) -> list[_Good]:
        """The records of each part."""
        copies = None
        if self._inputs.by_key:
            numbers = sorted(number for part in parts for number in part.batches)
            copies = self._inputs.copies(Offsets.union([part.read for part in parts]), numbers)
        made: list[_Good] = []
        for part in parts:
            good: _Good = self._inputs.good(part.read)
            if part.read != part.compared:
                good = {name: rows.filter(part.compared.condition()) for name, rows in good.items()}
            if self._inputs.by_headers:
                copies = self._inputs.copies(part.read, part.batches)
            if copies is not None:
                good = {name: without_copies(rows, copies) for name, rows in good.items()}
            made.append(good)
        return made

    def _results(self, parts: Sequence[_Part], made: Sequence[_Good], order: Order | None) -> DataFrame:
        """What the function makes of them."""
        found = []
        for part, good in zip(parts, made, strict=True):
            frames = self._lookups.at(part.versions).frames
            inputs = {name: hide_rows(in_order(rows, order), ROW_COLUMNS) for name, rows in good.items()}
            with self._lookups.looked_at():
                results = self._job.results(**inputs, **frames)
            shown = reveal_rows if self._table in self._plan.numbered else reveal
            found.append(shown(results[self._table], ROW_COLUMNS))
        rows = reduce(DataFrame.unionByName, found)
        return rows if self._written.kept is None else rows.filter(self._written.kept)
