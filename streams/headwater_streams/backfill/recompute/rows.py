"""The rows of a row-by-row job, recomputed: its function over all records that were picked, at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from random import Random

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.comparing import Order, compare
from headwater_streams.backfill.recompute.outcome import NotRecomputableError, Recompute, Recomputed, judged
from headwater_streams.backfill.recompute.reading import (
    RawTable,
    RawTopic,
    in_order,
    require_told_copies,
    without,
    without_copies,
)
from headwater_streams.backfill.recompute.sampling import limit_of, pick_offsets
from headwater_streams.ledger.entry import Ranges, merge_ranges
from headwater_streams.plural import counted
from headwater_streams.runtime.context import StageContext
from headwater_streams.runtime.lookups import Lookups, LookupVersion, Versions
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, hide, reveal
from headwater_streams.sources.decode import BAD
from headwater_streams.sources.inputs import Input, TopicInput


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
        source: The rows of the table that was read, at the last version read; None where topics were.
    """

    rows: DataFrame
    columns: Sequence[str]
    batches: Sequence[LiveBatch]
    wanted: Ranges | None
    lookups: Versions
    table: str | None = None
    source: DataFrame | None = None


@dataclass(frozen=True)
class _Part:
    """Records that the function is given at once: those of batches that read the same look-ups."""

    versions: Versions
    read: Offsets
    compared: Offsets
    batches: tuple[int, ...] = ()


class RowRecomputation:
    """Recomputes rows of a row job's target."""

    def __init__(self, context: StageContext, plan: JobPlan, written: WrittenRows) -> None:
        """Args: what the job is, and what was written.

        Raises:
            NotRecomputableError: Its rows cannot be recomputed.
        """
        self._context, self._plan, self._job, self._written = context, plan, plan.job, written
        self._name, declared = next(iter(plan.job.inputs.items()))
        if len(plan.job.inputs) > 1:
            raise NotRecomputableError(
                f"the job reads {', '.join(plan.job.inputs)}, and so far only one input is"
            )
        require_told_copies(plan.job)
        self._input = _input_of(context, plan, declared, written)
        self._by_headers = plan.job.dedup is not None and plan.job.dedup.by_headers
        self._lookups = Lookups(context, plan)

    def run(self, how: Recompute, seed: str) -> Recomputed:
        """Recomputes all rows, or a sample.

        Raises:
            NotRecomputableError: There is nothing that can be.
            StreamsError: Nobody answers, or a look-up is gone.
        """
        everything = self._everything()
        parts = self._parts(self._input.there())
        held = sum(part.compared.count for part in parts)
        if not held:
            raise NotRecomputableError(
                f"none of {everything.count:,} offsets is in {everything.topics} any more"
            )
        limit = limit_of(everything.count)
        if how == "sample" and held > limit:
            parts = [self._sampled(parts, limit, Random(seed))]
        made = {number: self._rows_of(part) for number, part in enumerate(parts)}
        read = Offsets.union([part.compared for part in parts])
        rows = self._written.rows
        rows = rows if read == everything else rows.filter(read.condition())
        found = compare(
            lambda order: reduce(
                DataFrame.unionByName, [self._result(parts[n], made[n], order) for n in made]
            ),
            rows,
            PLACE,
            self._written.columns,
            by_hash=True,
        )
        outcome = judged(found, counted(found.rows, "row"), read, everything, everything.count - held)
        if not found.extra:
            return outcome
        # A compacted topic forgets records between the others.
        records = reduce(DataFrame.unionByName, [self._input.located(part.read) for part in parts])
        lost = without(rows, records).count()
        kept = replace(found, extra=found.extra - lost)
        outcome = judged(kept, counted(found.rows, "row"), read, everything, everything.count - held)
        of_rows = counted(lost, "written row")
        note = f"{everything.topics} does not hold the records of {of_rows} any more"
        return replace(outcome, notes=(*outcome.notes, note)) if lost else outcome

    def _everything(self) -> Offsets:
        """The offsets that the rows come from."""
        return self._wanted(Offsets.of([batch.id.ranges for batch in self._written.batches]))

    def _wanted(self, offsets: Offsets) -> Offsets:
        return offsets if self._written.wanted is None else offsets.inside(self._written.wanted)

    def _parts(self, there: Ranges) -> list[_Part]:
        """What of the batches can be read, apart where they read other look-ups."""
        found: dict[tuple[tuple[str, LookupVersion], ...], list[int]] = {}
        for number, batch in enumerate(self._written.batches):
            of_batch = Offsets.of([batch.id.ranges])
            # Copies are told beside the other records of their batch.
            is_there = not self._by_headers or of_batch.inside(there) == of_batch
            if is_there and self._wanted(of_batch.inside(there)).count:
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
        return _Part(versions, read if self._by_headers else compared, compared, tuple(numbers))

    def _sampled(self, parts: Sequence[_Part], limit: int, rng: Random) -> _Part:
        (part,) = rng.choices(parts, weights=[part.compared.count for part in parts])
        if not self._by_headers:
            picked = pick_offsets(part.compared, limit, rng)
            return replace(part, read=picked, compared=picked)
        # Whole batches that follow each other, one at least.
        first = rng.randrange(len(part.batches))
        numbers: list[int] = []
        for number in (*part.batches[first:], *reversed(part.batches[:first])):
            more = Offsets.of([self._written.batches[n].id.ranges for n in (*numbers, number)])
            if numbers and more.count > limit:
                break
            numbers.append(number)
        return self._part(part.versions, sorted(numbers), part.read.spans)

    def _rows_of(self, part: _Part) -> DataFrame:
        """The good records, each once, with their coordinates."""
        located = self._input.located(part.read)
        decoded = self._input.decoded(located)
        good = decoded.frame.filter(~F.col(BAD))
        if part.read != part.compared:
            good = good.filter(part.compared.condition())
        good = good.select(*decoded.columns.values(), *ROW_COLUMNS)
        if self._by_headers:
            chosen = [number in part.batches for number in range(len(self._written.batches))]
            good = without_copies(good, self._plan, located, self._written.batches, chosen)
        return good

    def _result(self, part: _Part, good: DataFrame, order: Order | None) -> DataFrame:
        rows = in_order(good, order)
        frames = self._lookups.at(part.versions).frames
        with self._lookups.looked_at():
            results = self._job.results(**{self._name: hide(rows, ROW_COLUMNS)}, **frames)
        return reveal(results[self._written.table or self._job.target.name], ROW_COLUMNS)


def _input_of(
    context: StageContext, plan: JobPlan, declared: Input, written: WrittenRows
) -> RawTopic | RawTable:
    if isinstance(declared, TopicInput):
        return RawTopic(context, declared, plan.job.dedup, plan.job.quarantining)
    if written.source is None:
        raise NotRecomputableError(f"nothing of {declared.name} was read")
    (schema,) = plan.inputs.values()
    read = merge_ranges([batch.id.ranges for batch in written.batches])
    return RawTable(declared, schema.fieldNames(), written.source, read, plan.job.quarantining)
