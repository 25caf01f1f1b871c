"""One pass of a row job over records: decoded, marked, counted, split, given to the function, counted again.

The live job and a backfill make the same pass; only what they read and where they write differ.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.base.errors import CheckFailedError, DataLossError, LookupKeyError
from headwater_streams.base.ledger_entry import EXPLODED, Partitions, Ranges, merge_ranges
from headwater_streams.ledger.repeats import records_in
from headwater_streams.operators.dedup import ByKey, ByOffset, BySequence
from headwater_streams.operators.dedup.recent_keys import key_columns
from headwater_streams.operators.dedup.runs import coordinates
from headwater_streams.operators.dedup.verdicts import DUPLICATE, IMPLAUSIBLE
from headwater_streams.operators.exploding import hide_rows, place_of_table, reveal_rows
from headwater_streams.plan.chain import empty
from headwater_streams.plan.exploding import Exploding
from headwater_streams.plan.plan import JobPlan
from headwater_streams.quality.check_result import CheckResult, merged
from headwater_streams.quality.columns import speaking_of
from headwater_streams.runtime.stages.check_memory import Before
from headwater_streams.runtime.stages.gates import CheckGate
from headwater_streams.runtime.stages.once import COPIES_READ, require_once
from headwater_streams.runtime.stages.rejected_blocks import BLOCKS, noted, standing_in
from headwater_streams.runtime.stages.rejected_rows import KEPT, kept, records_of, with_texts
from headwater_streams.sources.coordinates import (
    INPUT,
    OFFSET,
    ORIGIN,
    PARTITION,
    PLACE,
    ROW,
    ROW_COLUMNS,
    TOPIC,
)
from headwater_streams.sources.decode import (
    BAD,
    HEADERS,
    HEADERS_TYPE,
    KEY,
    RAW,
    Decoded,
    RecordDecoder,
    RowDecoder,
)
from headwater_streams.sources.inputs import TopicInput
from headwater_streams.sources.problems import PROBLEMS, Problem
from headwater_streams.sources.sequence import sequence_of, sequence_problem
from headwater_streams.spark.columns import col
from headwater_streams.spark.frames import compute
from headwater_streams.spark.hidden_columns import reveal
from headwater_streams.spark.observations import Observed
from headwater_streams.spark.projection import only_projects

_VERDICT = "_verdict"
_NUMBER = "_number_in_batch"
_MOST_PARTITIONS = 64  # each costs a handful of aggregates in the pass


class RowPass:
    """How a row job reads its inputs.

    Of several inputs the records stand in one frame, so that a batch is read once: their coordinates, headers where
    records have some, `_input`, and the rest in a struct for each input.
    """

    def __init__(self, plan: JobPlan) -> None:
        self._job, self._plan = plan.job, plan
        self._names = tuple(plan.job.inputs)
        self._is_union = len(self._names) > 1
        dedup = plan.job.dedup
        self._origin = isinstance(dedup, ByOffset) and dedup.origin
        self._by_sequence = isinstance(dedup, BySequence)
        self._is_numbered = isinstance(dedup, ByKey) and bool(plan.job.tables)
        self._decoders: dict[str, RecordDecoder | RowDecoder] = {}
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
        self._has_origin = self._origin or any(
            not isinstance(i, TopicInput) for i in plan.job.inputs.values()
        )
        # Whether a change event has a key is seen in the function's result, and its record must be at hand then.
        self._hidden = (*ROW_COLUMNS, KEY, RAW, HEADERS) if plan.kind == "scd" else ROW_COLUMNS

    def stream(self, inputs: Mapping[str, DataFrame]) -> DataFrame:
        """The inputs as they come, as one frame for `located`."""
        if not self._is_union:
            return inputs[self._names[0]]
        tagged = []
        for place, (name, raw) in enumerate(inputs.items()):
            located = self._decoder(name, raw).locate(raw)
            apart = (*ROW_COLUMNS, HEADERS)
            headers = F.col(HEADERS) if HEADERS in located.columns else F.lit(None).cast(HEADERS_TYPE)
            rest = F.struct(*[col(column) for column in located.columns if column not in apart])
            own = (F.lit(name).alias(INPUT), headers.alias(HEADERS), rest.alias(_of(place)))
            tagged.append(located.select(*ROW_COLUMNS, *own))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), tagged)

    def located(self, df: DataFrame) -> DataFrame:
        """Records, or an ingest table's rows, with their coordinates; `df` is what `stream` gave."""
        return df if self._is_union else self._decoder(self._names[0], df).locate(df)

    def coordinates(self, located: DataFrame) -> pa.Table:
        """Where each record first stood, as `operators.dedup.verdicts.judge` wants it."""
        return coordinates(located, self._origin_key, self._origin_at)

    def numbered(self, located: DataFrame) -> DataFrame:
        """The rows; those that `keys` distinguishes by more than their coordinates have a number each.

        Rows of a table may share them. The numbers hold while the rows are kept as they are.
        """
        return located.withColumn(_NUMBER, F.monotonically_increasing_id()) if self._is_numbered else located

    def keys(self, located: DataFrame, columns: Sequence[str]) -> pa.Table:
        """The keys of the rows that are not bad, as `operators.dedup.recent_keys.RecentKeys.judge` wants them.

        Args:
            located: What `numbered` gives, of a job with one input.
            columns: The key's columns.
        """
        (name,) = self._names
        decoded = self._decoded(name, located)
        kinds = self._plan.inputs[name]
        of_key = [(kinds[column].dataType, decoded.columns[column]) for column in columns]
        good = decoded.frame.filter(~F.col(BAD))
        number = [_NUMBER] if self._is_numbered else []
        named = key_columns(of_key, self._event_time_us(name, decoded))
        return good.select(*named, *PLACE, *place_of_table(good), *number).toArrow()

    def over(
        self,
        located: DataFrame,
        verdicts: pa.Table | None,
        ranges: Mapping[str, Ranges],
        lookups: Mapping[str, DataFrame] | None = None,
        *,
        rejects_some: bool = False,
        failing: Problem | None = None,
    ) -> "PassedRows":
        """Prepares the pass; it is made when `rows` are written.

        Args:
            located: What `located` gives.
            verdicts: The records that are not new, as `judge` gives them; None for none.
            ranges: The offsets that are read of each input, to count by partition.
            lookups: The tables that the function looks things up in.
            rejects_some: Whether records are likely to be rejected, few of many: these are kept on the way then.
            failing: Those for which the function raises; see `narrowing`.
        """

        def decoded_of(name: str, rows: DataFrame) -> Decoded:
            decoded = self._marked(self._decoded(name, rows), verdicts)
            return decoded if failing is None else decoded.with_problem(decoded.frame, failing)

        counts = _Counts(merge_ranges(list(ranges.values())), of_tables=bool(self._job.tables))
        bad = F.col(BAD)
        repeated = F.coalesce(F.col(_VERDICT) == DUPLICATE, F.lit(False))
        terms = {"quarantined": bad, "passed": ~bad}
        if verdicts is not None:
            terms = {"duplicate": repeated} | {term: ~repeated & of for term, of in terms.items()}
        frames, gates_in, persisted = dict(lookups or {}), {}, []
        for place, name in enumerate(self._names):
            decoded = decoded_of(name, self._rows_of(place, located))
            newest = F.max(F.when(terms["passed"], self._event_time_us(name, decoded)))
            more = [F.count(F.lit(1)).alias("read"), newest.alias("max_event_time_us")]
            more.append(noted(terms["quarantined"]))
            met = decoded.frame
            if rejects_some and isinstance(self._job.inputs[name], TopicInput):
                met = with_texts(met, terms["quarantined"])
                more.append(kept())
            frame = counts.observe(("read", name), met, terms, more, ranges.get(name, {}))
            good = self._good(name, decoded, frame.filter(terms["passed"]))
            gate = CheckGate(self._job, "input")
            gates_in[name] = gate.over(good) if self._is_union else gate
            if gates_in[name]:
                good = counts.observe(("input", name), good, {}, gates_in[name].aggregates(located=True), {})
            if self._job.branches:
                good = good.persist()
                persisted.append(good)
            frames[name] = self._hidden_in(good)
        results, gates = {}, {}
        written: dict[str, Column] = {"rows": F.lit(True)}
        if self._is_union:
            written |= {f"rows_of_{place}": F.col(INPUT) == name for place, name in enumerate(self._names)}
        for table, result in self._job.results(**frames).items():
            gates[table] = self._gate(result)
            results[table], judging = self._revealed(table, result), gates[table].aggregates(located=True)
            if self._job.result_time is not None:
                judging = [
                    *judging,
                    F.max(F.unix_micros(col(self._job.result_time))).alias("max_event_time_us"),
                ]
            if judging or self._is_union or not counts.derive(table, result, self._names[0]):
                results[table] = counts.observe(
                    ("result", table), results[table], written, judging, counts.ranges
                )

        def copies_read() -> pa.Table:
            with self._function_inputs(located, verdicts) as rows:
                each = reduce(DataFrame.unionByName, [self._places_of(frame) for frame in rows.values()])
                return each.groupBy(*each.columns).agg(F.count(F.lit(1)).alias(COPIES_READ)).toArrow()

        def rejected() -> DataFrame:
            rejects = []
            for place, name in enumerate(self._names):
                mine, read = self._rows_of(place, located), counts.get("read", name)
                around = records_of(read[KEPT], read["quarantined"], mine) if KEPT in read else None
                if around is None:
                    around = standing_in(mine, read[BLOCKS])
                decoded = decoded_of(name, around)
                rows = decoded.rejected(decoded.apart(terms["quarantined"]))
                rejects.append(rows.select(PROBLEMS, KEY, RAW, HEADERS, *ROW_COLUMNS))
            return reduce(DataFrame.unionByName, rejects)

        target = self._job.target.name
        return PassedRows(
            results,
            rejected,
            gates_in,
            gates,
            counts,
            target,
            self._names,
            tuple(persisted),
            self._plan.joining,
            copies_read if self._job.tables else None,
            self._plan.exploding,
            {name: frozenset(of_input) for name, of_input in ranges.items()},
        )

    @contextmanager
    def in_parts(
        self, located: DataFrame, verdicts: pa.Table | None, lookups: Mapping[str, DataFrame]
    ) -> Iterator[Callable[[Column], None]]:
        """Gives a function that computes the job's function for the records of a pass that meet a condition; the result
        is thrown away.

        The job's inputs are persisted meanwhile. Arguments as for `over`.
        """
        with self._function_inputs(located, verdicts) as inputs:

            def compute_those(which: Column) -> None:
                parts = {name: self._hidden_in(rows.filter(which)) for name, rows in inputs.items()}
                for table, result in self._job.results(**parts, **lookups).items():
                    compute(self._revealed(table, result))

            yield compute_those

    @contextmanager
    def _function_inputs(
        self, located: DataFrame, verdicts: pa.Table | None
    ) -> Iterator[dict[str, DataFrame]]:
        """The rows of each input that the function gets, persisted while the block runs."""
        passed = ~F.col(BAD)
        if verdicts is not None:
            passed &= ~F.coalesce(F.col(_VERDICT) == DUPLICATE, F.lit(False))
        inputs = {}
        for place, name in enumerate(self._names):
            decoded = self._marked(self._decoded(name, self._rows_of(place, located)), verdicts)
            inputs[name] = self._good(name, decoded, decoded.frame.filter(passed)).persist()
        try:
            yield inputs
        finally:
            for rows in inputs.values():
                rows.unpersist()

    def to_write(self, rows: DataFrame) -> DataFrame:
        """Results as they are written to files: without `_origin` where it is always NULL.

        It is four columns, each judged for every row: 3 % of a copying job.
        """
        return rows if self._has_origin else rows.drop(ORIGIN)

    @property
    def _all_hidden(self) -> list[str]:
        """The hidden columns that the function gets beside the values."""
        return [*self._hidden, INPUT] if self._is_union else [*self._hidden]

    def _hidden_in(self, good: DataFrame) -> DataFrame:
        """What `_good` gave, as the function gets it."""
        return hide_rows(good, self._all_hidden)

    def _revealed(self, table: str, result: DataFrame) -> DataFrame:
        """The function's result for a table, with the columns that were hidden."""
        shown = reveal_rows if table in self._plan.numbered else reveal
        return shown(result, self._all_hidden)

    def _places_of(self, good: DataFrame) -> DataFrame:
        """The coordinates of the rows that the function got, with places in records where results have any."""
        if not self._plan.numbered:
            return good.select(*PLACE)
        row = F.col(ROW) if ROW in good.columns else F.lit(0).cast("long")
        return good.select(*PLACE, row.alias(ROW))

    def _good(self, name: str, decoded: Decoded, rows: DataFrame) -> DataFrame:
        """Decoded rows of an input with the columns that the function gets."""
        good = rows.select(*decoded.columns.values(), *self._hidden, *place_of_table(rows))
        return good.withColumn(INPUT, F.lit(name)) if self._is_union else good

    def _gate(self, result: DataFrame) -> CheckGate:
        gate = CheckGate(self._job, "output")
        return gate.over(result) if self._job.branches else gate

    def _rows_of(self, place: int, located: DataFrame) -> DataFrame:
        if not self._is_union:
            return located
        name = self._names[place]
        mine = located.filter(F.col(INPUT) == name)
        headers = [HEADERS] if isinstance(self._job.inputs[name], TopicInput) else []
        return mine.select(*ROW_COLUMNS, *headers, f"{_of(place)}.*")

    def _decoder(self, name: str, rows: DataFrame) -> "RecordDecoder | RowDecoder":
        """The input's decoder; made once."""
        if name not in self._decoders:
            declared, schema = self._job.inputs[name], self._plan.inputs[name]
            checks = self._job.quarantining
            if self._is_union:
                like = empty(rows.sparkSession, schema, has_row=ROW in rows.columns)
                checks = speaking_of(like, checks)
            unused = self._plan.unused.get(name, frozenset())
            self._decoders[name] = (
                RecordDecoder(declared, checks, origin=self._origin, unused=unused)
                if isinstance(declared, TopicInput)
                else RowDecoder(declared, schema.fieldNames(), checks)
            )
        return self._decoders[name]

    def _decoded(self, name: str, located: DataFrame) -> Decoded:
        decoded = self._decoder(name, located).decode(located)
        return decoded.with_problem(decoded.frame, sequence_problem()) if self._by_sequence else decoded

    def _marked(self, decoded: Decoded, verdicts: pa.Table | None) -> Decoded:
        if verdicts is None:
            return decoded
        # Of a table in pieces Spark reads none behind one without rows, such as a batch without a copy gives: seen in
        # 4.1.3 and 4.2.0. Rows with places in their records are judged in the order of these, and known by a number.
        rows = decoded.frame.sparkSession.createDataFrame(verdicts.combine_chunks()).drop(ROW)
        key = [name for name in rows.columns if name != _VERDICT]
        marked = decoded.frame.join(F.broadcast(rows), key, "left")
        name = "sequence" if self._by_sequence else "origin"
        reason = (
            "the sequence is far beyond all that was seen of its producer"
            if self._by_sequence
            else "the origin offset is far beyond all that was seen of its partition"
        )
        return decoded.with_problem(marked, Problem(name, F.col(_VERDICT) == IMPLAUSIBLE, reason))

    def _event_time_us(self, name: str, decoded: Decoded) -> Column:
        time = self._job.inputs[name].event_time if self._job.result_time is None else None
        return F.lit(None).cast("long") if time is None else F.unix_micros(decoded.columns[time])


def _of(place: int) -> str:
    return f"_of_{place}"


@dataclass(frozen=True)
class PassedRows:
    """A pass that is about to be made.

    Attributes:
        results: The function's results with the coordinates, by table; the target's must be written first.
        rejected: Gives the rows for quarantine, with `_problems`, once the results are written; reading them is a
            pass of its own, which decodes what stands near them.
        gates_in: The checks that judge what comes in by each input.
        gates_out: The checks that judge each result.
    """

    results: Mapping[str, DataFrame]
    rejected: Callable[[], DataFrame]
    gates_in: Mapping[str, CheckGate]
    gates_out: Mapping[str, CheckGate]
    _counts: "_Counts"
    _target: str
    _names: tuple[str, ...]
    _persisted: tuple[DataFrame, ...] = ()
    _joining: frozenset[str] = frozenset()
    _copies_read: Callable[[], pa.Table] | None = None
    _exploding: Mapping[str, Exploding] = field(default_factory=dict)
    _topics: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _exploded: dict[str, Counter[tuple[str | None, int | None]]] = field(default_factory=dict)

    @property
    def rows(self) -> DataFrame:
        """What goes to the target."""
        return self.results[self._target]

    @property
    def warnings(self) -> list[str]:
        """What the checks with `action="warn"` said."""
        gates = (*self.gates_in.values(), *self.gates_out.values())
        return [text for gate in gates for text in gate.warnings]

    def release(self) -> None:
        """Forgets the rows that several results were made of."""
        for rows in self._persisted:
            rows.unpersist()

    def judge(
        self,
        batch: int,
        tables: Iterable[str] | None = None,
        *,
        before: Before | None = None,
        now_ms: int | None = None,
    ) -> None:
        """Looks at the checks of those tables whose rows were written; of all by default.

        Args:
            batch: The batch.
            tables: The tables.
            before: Gives what rules measured of earlier batches; None in a backfill.
            now_ms: The time; by default the clock's.

        Raises:
            CheckFailedError: One does not hold that stops the job; the error has what all came to.
        """
        judging = [(self.gates_in[name], "input", name) for name in self.gates_in]
        judging += [(self.gates_out[t], "result", t) for t in (self.gates_out if tables is None else tables)]
        stopped: CheckFailedError | None = None
        for gate, kind, name in judging:
            try:
                gate.judge(self._counts.get(kind, name), batch, before=before, now_ms=now_ms)
            except CheckFailedError as error:
                stopped = stopped or error
        if stopped is not None:
            stopped.results = tuple(self.check_results.values())
            raise stopped

    @property
    def check_results(self) -> dict[str, CheckResult]:
        """What the checks came to that were judged so far, by their names."""
        return merged([gate.results for gate in (*self.gates_in.values(), *self.gates_out.values())])

    @property
    def input_results(self) -> dict[str, CheckResult]:
        """The same of those that judge what comes in."""
        return merged([gate.results for gate in self.gates_in.values()])

    @property
    def passed(self) -> int:
        """How many records and rows were neither duplicates nor rejected."""
        return sum(int(self._counts.get("read", name).get("passed", 0)) for name in self._names)

    def accounting(
        self, written: int, places: Callable[[], pa.Table], table: str | None = None
    ) -> dict[str, dict[str, int]]:
        """The terms of the row identity of a table, the target's by default, by input.

        Args:
            written: The rows that the table's files hold.
            places: Gives their coordinates, as `once.places_in` does; called where the function may multiply rows.
            table: The table. Where its rows are several to a record, the records that became rows are counted by the
                rows' coordinates, as the files have them.

        Raises:
            DataLossError: The files do not hold what came out of the function.
            LookupKeyError: The function made several rows of one.
        """
        table = table or self._target
        if table in self._joining:
            found = places()
            require_once(table, found, self._copies_read)
            if table in self._exploding:
                self._exploded[table] = records_in(found, below=self._exploding[table].below)
        result = self._counts.get("result", table)
        rows = (
            [written] if len(self._names) == 1 else [result[f"rows_of_{i}"] for i in range(len(self._names))]
        )
        if written != result["rows"] or written != sum(rows):
            raise DataLossError(
                f"{written} rows were written where {result['rows']} came out of the function for {table}; "
                "nothing was committed, and the job can be started again"
            )
        accounts = {}
        for name, count in zip(self._names, rows, strict=True):
            read = self._counts.get("read", name)
            terms = _terms(read["read"], read, count, "", self._records(table, name))
            if terms["filtered"] < 0:
                raise LookupKeyError(
                    f"the function made {count} rows for {table} of {read['passed']}: it joined something with several "
                    "rows for one key; nothing of the batch was committed (hw.enrich names the keys)"
                )
            accounts[name] = terms
        return accounts

    def _records(self, table: str, name: str) -> int | None:
        """How many records of an input became rows of a table; None where each becomes one at most."""
        if table not in self._exploding:
            return None
        # Of several inputs each has topics of its own, see `plan.exploding`.
        topics = self._topics.get(name, frozenset()) if len(self._names) > 1 else None
        return sum(n for (topic, _), n in self._exploded[table].items() if topics is None or topic in topics)

    @property
    def max_event_time_us(self) -> int | None:
        """The greatest event time of the rows that passed, or of the target's where the job takes it from these."""
        read = [self._counts.get("read", name) for name in self._names]
        newest = (
            counts.get("max_event_time_us") for counts in (*read, self._counts.get("result", self._target))
        )
        return max((time_us for time_us in newest if time_us is not None), default=None)

    def partitions(self, table: str | None = None) -> Partitions:
        """The terms by topic and partition, once `accounting` has counted the table's records; empty where there are
        too many partitions to count."""
        table = table or self._target
        result = self._counts.get("result", table)
        reads = [self._counts.get("read", name) for name in self._names]
        by_topic: dict[str, dict[int, dict[str, int]]] = {}
        for i, (topic, partition) in enumerate(self._counts.places):
            read = {
                f"{term}_{i}": sum(each.get(f"{term}_{i}", 0) for each in reads)
                for term in ("duplicate", "quarantined", "passed")
            }
            # A record is exactly one of the three; to count it once more by partition would cost and prove nothing.
            records = self._exploded[table][topic, partition] if table in self._exploding else None
            terms = _terms(sum(read.values()), read, result[f"rows_{i}"], f"_{i}", records)
            by_topic.setdefault(topic, {})[partition] = terms
        return by_topic


def _terms(
    count: int, read: Mapping[str, Any], written: int, suffix: str, records: int | None
) -> dict[str, int]:
    """Args: how many were read, and what was observed of them; the rows written; the records that became several."""
    became = written if records is None else records
    return {
        "read": count,
        **({} if records is None else {EXPLODED: records}),
        "written": written,
        "filtered": read[f"passed{suffix}"] - became,
        "duplicate": read.get(f"duplicate{suffix}", 0),
        "quarantined": read[f"quarantined{suffix}"],
    }


def _count(condition: Column) -> Column:
    # count_if is rewritten with a column for each condition, which is written into every row.
    return F.count(F.when(condition, F.lit(1)))


class _Counts:
    """What is observed at some places on the way, in all and by partition."""

    def __init__(self, ranges: Ranges, *, of_tables: bool) -> None:
        places = [(topic, partition) for topic, partitions in ranges.items() for partition in partitions]
        self.ranges, self.places = ranges, places if len(places) <= _MOST_PARTITIONS else []
        self._of_tables = of_tables
        self._observed: dict[tuple[str, str], Observed] = {}
        self._as_passed: dict[str, str] = {}

    def observe(
        self,
        where: tuple[str, str],
        df: DataFrame,
        conditions: dict[str, Column],
        more: list[Column],
        ranges: Ranges,
    ) -> DataFrame:
        terms = [_count(condition).alias(term) for term, condition in conditions.items()]
        by_partition = {term: c for term, c in conditions.items() if not term.startswith("rows_of_")}
        for i, (topic, partition) in enumerate(self.places):
            if partition in ranges.get(topic, {}):
                here = F.col(PARTITION) == partition
                # A table's rows may be of topics that its newest commits read nothing of.
                if len(ranges) > 1 or self._of_tables:
                    here &= F.col(TOPIC) == topic
                terms += [_count(here & c).alias(f"{term}_{i}") for term, c in by_partition.items()]
        self._observed[where] = observed = Observed()
        return observed.over(df, *terms, *more)

    def derive(self, table: str, result: DataFrame, name: str) -> bool:
        """Uses the count of what passed of an input for what comes out for a table, if the two must be equal."""
        if not only_projects(result, self._observed["read", name].name):
            return False
        self._as_passed[table] = name
        return True

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """What was observed at a place; nothing where no observation was made."""
        if kind == "result" and name in self._as_passed:
            read = self.get("read", self._as_passed[name])
            return {
                term.replace("passed", "rows"): n for term, n in read.items() if term.startswith("passed")
            }
        observed = self._observed.get((kind, name))
        return {} if observed is None else observed.get()
