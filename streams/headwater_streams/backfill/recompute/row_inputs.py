"""The inputs of a row-by-row job, read again: the good records of some offsets, and which of them are copies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.backfill.history import LiveBatch
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.recompute.copies import copies_by_headers, copies_by_key
from headwater_streams.backfill.recompute.outcome import NotRecomputableError
from headwater_streams.backfill.recompute.reading import RawTable, RawTopic, checks_on
from headwater_streams.base.ledger_entry import Ranges, merge_ranges
from headwater_streams.operators.dedup import ByKey
from headwater_streams.operators.exploding import place_of_table
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.context import StageContext
from headwater_streams.sources.coordinates import PLACE, ROW_COLUMNS, ROW_FIELD, ROW_FIELDS
from headwater_streams.sources.decode import BAD, HEADERS
from headwater_streams.sources.inputs import TableInput, TopicInput


@dataclass(frozen=True)
class TableRows:
    """What a run read of a table.

    Attributes:
        rows: The rows of the last version that it read.
        read: The offsets behind those that it read.
    """

    rows: DataFrame
    read: Ranges


class RowInputs:
    """The inputs of one job."""

    def __init__(
        self,
        context: StageContext,
        plan: JobPlan,
        batches: Sequence[LiveBatch],
        tables: Mapping[str, "TableRows"],
    ) -> None:
        """Args: what the job is; its batches; what was read of the tables among its inputs, by input.

        Raises:
            NotRecomputableError: They cannot be read again.
        """
        self._spark, self._plan, self._batches = context.spark, plan, batches
        self.by_headers = plan.job.dedup is not None and plan.job.dedup.by_headers
        self.by_key = isinstance(plan.job.dedup, ByKey)
        self._inputs: dict[str, RawTopic | RawTable] = {}
        for name, declared in plan.job.inputs.items():
            table = tables.get(name)
            kept = None if table is None else table.rows
            checks = checks_on(context.spark, plan.job, plan.inputs[name], kept)
            if isinstance(declared, TopicInput):
                self._inputs[name] = RawTopic(context, declared, plan.job.dedup, checks)
                continue
            if table is None and len(plan.job.inputs) == 1:
                raise NotRecomputableError(f"nothing of {declared.name} was read")
            if table is not None:
                columns = plan.inputs[name].fieldNames()
                self._inputs[name] = RawTable(declared, columns, table.rows, table.read, checks)

    @cached_property
    def there(self) -> Ranges:
        """The offsets that there are now.

        Raises:
            StreamsError: Nobody answers, or a topic is gone.
        """
        return merge_ranges(list(self._each.values()))

    @cached_property
    def _each(self) -> Mapping[str, Ranges]:
        return {name: source.there() for name, source in self._inputs.items()}

    def places(self, offsets: Offsets) -> DataFrame:
        """The coordinates of the records of some offsets; a compacted topic has fewer of them."""
        return _united(self._located(offsets).values()).select(*PLACE)

    def good(self, offsets: Offsets) -> dict[str, DataFrame]:
        """The good records of some offsets, with their coordinates, by input."""
        found = {name: self._nothing(name) for name in self._plan.job.inputs}
        for name, located in self._located(offsets).items():
            decoded = self._inputs[name].decoded(located)
            good = decoded.frame.filter(~F.col(BAD))
            found[name] = good.select(*decoded.columns.values(), *ROW_COLUMNS, *place_of_table(good))
        return found

    def copies(self, offsets: Offsets, chosen: Sequence[int]) -> pa.Table | None:
        """The coordinates of the copies among the records of some batches; None where the job removes none.

        Args:
            offsets: Those of the batches.
            chosen: Their places; of a job that tells copies by key the first, without a gap.
        """
        if self.by_key:
            (good,) = self.good(offsets).values()
            return copies_by_key(self._plan, good, [self._batches[number] for number in chosen])
        if not self.by_headers:
            return None
        is_chosen = [number in chosen for number in range(len(self._batches))]
        records = _united(self._located(offsets).values())
        return copies_by_headers(self._plan, records, self._batches, is_chosen)

    def _located(self, offsets: Offsets) -> dict[str, DataFrame]:
        """The records of those inputs that have some."""
        each = {name: offsets.inside(there) for name, there in self._each.items()}
        return {name: self._inputs[name].located(mine) for name, mine in each.items() if mine.count}

    def _nothing(self, name: str) -> DataFrame:
        of_table = [ROW_FIELD] if isinstance(self._plan.job.inputs[name], TableInput) else []
        schema = T.StructType([*self._plan.inputs[name].fields, *ROW_FIELDS, *of_table])
        return self._spark.createDataFrame([], schema)


def _united(located: Iterable[DataFrame]) -> DataFrame:
    """Records of several inputs, without what is in their values."""
    frames = [rows.select(*[c for c in (*ROW_COLUMNS, HEADERS) if c in rows.columns]) for rows in located]
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
