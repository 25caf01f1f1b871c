"""One pass of a row job over records: decoded, marked, counted, split, given to the function, counted again.

The live job and a backfill make the same pass; only what they read and where they write differ.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from headwater_streams.dedup import ByOffset, BySequence
from headwater_streams.dedup.recent_keys import KEY_SCHEMA
from headwater_streams.dedup.runs import coordinates
from headwater_streams.dedup.verdicts import DUPLICATE, IMPLAUSIBLE
from headwater_streams.errors import DataLossError, LookupKeyError
from headwater_streams.ledger.entry import Partitions, Ranges
from headwater_streams.runtime.gates import CheckGate
from headwater_streams.runtime.plan import JobPlan
from headwater_streams.sources.coordinates import OFFSET, ORIGIN, PARTITION, ROW_COLUMNS, TOPIC, hide, reveal
from headwater_streams.sources.decode import BAD, HEADERS, KEY, RAW, Decoded, RecordDecoder, RowDecoder
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.problems import Problem
from headwater_streams.sources.sequence import sequence_of, sequence_problem

_VERDICT = "_verdict"
_MOST_PARTITIONS = 64  # each costs a handful of aggregates in the pass


class RowPass:
    """How a row job reads its input."""

    def __init__(self, plan: JobPlan) -> None:
        self._job = plan.job
        self._name, self._declared = next(iter(plan.job.inputs.items()))
        checks = [c for c in plan.job.checks_for("input", "row") if c.action == "quarantine"]
        dedup = plan.job.dedup
        origin = isinstance(dedup, ByOffset) and dedup.origin
        self._by_sequence = isinstance(dedup, BySequence)
        self._decoder: RecordDecoder | RowDecoder
        if isinstance(self._declared, TopicInput):
            self._decoder = RecordDecoder(self._declared, checks, origin=origin)
        else:
            self._decoder = RowDecoder(self._declared, plan.inputs[self._name].fieldNames(), checks)
        key = F.concat_ws(
            "\t",
            F.coalesce(F.col(f"{ORIGIN}.cluster"), F.lit("")),
            F.coalesce(F.col(f"{ORIGIN}.topic"), F.col(TOPIC)),
            F.coalesce(F.col(f"{ORIGIN}.partition"), F.col(PARTITION)).cast("string"),
        )
        at = F.coalesce(F.col(f"{ORIGIN}.offset"), F.col(OFFSET))
        if self._by_sequence:
            sent = sequence_of(F.col(HEADERS))
            numbered = F.concat_ws("\t", F.lit("producer"), sent["id"], sent["epoch"].cast("string"))
            key, at = F.when(sent.isNotNull(), numbered).otherwise(key), F.coalesce(sent["sequence"], at)
        self._origin_key, self._origin_at = key, at
        # Whether a change event has a key is seen in the function's result, and its record must be at hand then.
        self._hidden = (*ROW_COLUMNS, KEY, RAW, HEADERS) if plan.kind == "scd" else ROW_COLUMNS

    def located(self, df: DataFrame) -> DataFrame:
        """Records, or an ingest table's rows, with their coordinates."""
        return self._decoder.locate(df)

    def coordinates(self, located: DataFrame) -> pa.Table:
        """Where each record first stood, as `dedup.verdicts.judge` wants it."""
        return coordinates(located, self._origin_key, self._origin_at)

    def keys(self, located: DataFrame, columns: Sequence[str]) -> pa.Table:
        """The keys of the rows that are not bad, as `dedup.recent_keys.RecentKeys.judge` wants them.

        Args:
            located: What `located` gives.
            columns: The key's columns.
        """
        decoded = self._decoded(located)
        parts: list[Column] = []
        for name in columns:  # a hash of NULL is that of nothing, so it is told apart
            parts += [decoded.columns[name].isNull(), decoded.columns[name]]
        hashes = [F.xxhash64(F.lit(seed), *parts) for seed in (0, 1)]
        named = zip(KEY_SCHEMA.names, (*hashes, self._event_time_us(decoded)), strict=True)
        good = decoded.frame.filter(~F.col(BAD))
        return good.select(*[c.alias(name) for name, c in named], TOPIC, PARTITION, OFFSET).toArrow()

    def over(
        self,
        located: DataFrame,
        verdicts: pa.Table | None,
        ranges: Ranges,
        lookups: Mapping[str, DataFrame] | None = None,
    ) -> "PassedRows":
        """Prepares the pass; it is made when `rows` are written.

        Args:
            located: What `located` gives.
            verdicts: The records that are not new, as `judge` gives them; None for none.
            ranges: The offsets that are read, to count by partition.
            lookups: The tables that the function looks things up in.
        """
        decoded = self._marked(self._decoded(located), verdicts)
        counted = _Counts(ranges)
        terms = {"quarantined": F.col(BAD), "passed": ~F.col(BAD)}
        if verdicts is not None:
            repeated = F.coalesce(F.col(_VERDICT) == DUPLICATE, F.lit(False))
            terms = {"duplicate": repeated} | {term: ~repeated & of for term, of in terms.items()}
        newest = F.max(F.when(terms["passed"], self._event_time_us(decoded))).alias("max_event_time_us")
        read = F.count(F.lit(1)).alias("read")
        frame = counted.observe("read", decoded.frame, terms, [read, newest])
        gate_in = CheckGate(self._job, "input")
        good = frame.filter(terms["passed"]).select(*decoded.columns.values(), *self._hidden)
        if gate_in.aggregates():
            good = counted.observe("input", good, {}, gate_in.aggregates())
        kept = good.persist() if self._job.branches else None
        results, gates = {}, {}
        given = {self._name: hide(good, self._hidden), **(lookups or {})}
        for table, result in self._job.results(**given).items():
            gates[table] = self._gate(result)
            results[table] = counted.observe(
                table, reveal(result, self._hidden), {"rows": F.lit(True)}, gates[table].aggregates()
            )
        rejected = decoded.rejected(decoded.frame.filter(terms["quarantined"]))
        return PassedRows(results, rejected, gate_in, gates, counted, self._job.target.name, kept)

    def _gate(self, result: DataFrame) -> CheckGate:
        gate = CheckGate(self._job, "output")
        return gate.over(result) if self._job.branches else gate

    def _decoded(self, located: DataFrame) -> Decoded:
        decoded = self._decoder.decode(located)
        return decoded.with_problem(decoded.frame, sequence_problem()) if self._by_sequence else decoded

    def _marked(self, decoded: Decoded, verdicts: pa.Table | None) -> Decoded:
        if verdicts is None:
            return decoded
        rows = decoded.frame.sparkSession.createDataFrame(verdicts)
        marked = decoded.frame.join(F.broadcast(rows), [TOPIC, PARTITION, OFFSET], "left")
        name = "sequence" if self._by_sequence else "origin"
        reason = (
            "the sequence is far beyond all that was seen of its producer"
            if self._by_sequence
            else "the origin offset is far beyond all that was seen of its partition"
        )
        return decoded.with_problem(marked, Problem(name, F.col(_VERDICT) == IMPLAUSIBLE, reason))

    def _event_time_us(self, decoded: Decoded) -> Column:
        if self._declared.event_time is None:
            return F.lit(None).cast("long")
        return F.unix_micros(decoded.columns[self._declared.event_time])


@dataclass(frozen=True)
class PassedRows:
    """A pass that is about to be made.

    Attributes:
        results: The function's results with the coordinates, by table; the target's must be written first.
        rejected: The rows for quarantine, with `_problems`; reading them is a pass of its own.
        gate_in: The checks that judge what comes in.
        gates_out: The checks that judge each result.
    """

    results: Mapping[str, DataFrame]
    rejected: DataFrame
    gate_in: CheckGate
    gates_out: Mapping[str, CheckGate]
    _counts: "_Counts"
    _target: str
    _kept: DataFrame | None = None

    @property
    def rows(self) -> DataFrame:
        """What goes to the target."""
        return self.results[self._target]

    @property
    def warnings(self) -> list[str]:
        """What the checks with `action="warn"` said."""
        return [text for gate in (self.gate_in, *self.gates_out.values()) for text in gate.warnings]

    def release(self) -> None:
        """Forgets the rows that several results were made of."""
        if self._kept is not None:
            self._kept.unpersist()

    def judge(self, batch: int, tables: Iterable[str] | None = None) -> None:
        """Looks at the checks of those tables whose rows were written; of all by default.

        Raises:
            CheckFailedError: One with `action="fail"` does not hold.
        """
        self.gate_in.judge(self._counts.get("input"), batch)
        for table in self.gates_out if tables is None else tables:
            self.gates_out[table].judge(self._counts.get(table), batch)

    def accounting(self, written: int, table: str | None = None) -> dict[str, int]:
        """The terms of the row identity of a table, the target's by default; `written` is what the files hold.

        Raises:
            DataLossError: The files do not hold what came out of the function.
            LookupKeyError: The function made several rows of one.
        """
        table = table or self._target
        result = self._counts.get(table)
        if written != result["rows"]:
            raise DataLossError(
                f"{written} rows were written where {result['rows']} came out of the function for {table}; "
                "nothing was committed, and the job can be started again"
            )
        read = self._counts.get("read")
        terms = _terms(read["read"], read, result, "", written)
        if terms["filtered"] < 0:
            raise LookupKeyError(
                f"the function made {written} rows for {table} of {written + terms['filtered']}: it joined something "
                "with several rows for one key; nothing of the batch was committed (hw.enrich names the keys)"
            )
        return terms

    @property
    def max_event_time_us(self) -> int | None:
        """The greatest event time of the rows that passed."""
        newest: int | None = self._counts.get("read")["max_event_time_us"]
        return newest

    def partitions(self, table: str | None = None) -> Partitions:
        """The terms by topic and partition; empty where there are too many to count."""
        read, result = self._counts.get("read"), self._counts.get(table or self._target)
        found: dict[str, dict[int, dict[str, int]]] = {}
        for i, (topic, partition) in enumerate(self._counts.places):
            # A record is exactly one of the three; to count it once more by partition would cost and prove nothing.
            count = sum(read.get(f"{term}_{i}", 0) for term in ("duplicate", "quarantined", "passed"))
            terms = _terms(count, read, result, f"_{i}", result[f"rows_{i}"])
            found.setdefault(topic, {})[partition] = terms
        return found


def _terms(
    count: int, read: dict[str, Any], result: dict[str, Any], suffix: str, written: int
) -> dict[str, int]:
    return {
        "read": count,
        "written": written,
        "filtered": read[f"passed{suffix}"] - result[f"rows{suffix}"],
        "duplicate": read.get(f"duplicate{suffix}", 0),
        "quarantined": read[f"quarantined{suffix}"],
    }


def _count(condition: Column) -> Column:
    # count_if is rewritten with a column for each condition, which is written into every row.
    return F.count(F.when(condition, F.lit(1)))


class _Counts:
    """What is observed at some places on the way, in all and by partition."""

    def __init__(self, ranges: Ranges) -> None:
        places = [(topic, partition) for topic, found in ranges.items() for partition in found]
        self.places = places if len(places) <= _MOST_PARTITIONS else []
        self._one_topic = len(ranges) == 1
        self._taken: dict[str, Observation] = {}

    def observe(
        self, name: str, df: DataFrame, conditions: dict[str, Column], more: list[Column]
    ) -> DataFrame:
        terms = [_count(condition).alias(term) for term, condition in conditions.items()]
        if conditions:
            for i, place in enumerate(self.places):
                here = self._is_of(*place)
                terms += [_count(here & c).alias(f"{term}_{i}") for term, c in conditions.items()]
        self._taken[name] = Observation()
        return df.observe(self._taken[name], *terms, *more)

    def get(self, name: str) -> dict[str, Any]:
        taken = self._taken.get(name)
        return dict(taken.get) if taken is not None else {}

    def _is_of(self, topic: str, partition: int) -> Column:
        here = F.col(PARTITION) == partition
        return here if self._one_topic else here & (F.col(TOPIC) == topic)
