"""From records to rows: decodes the value, and decides whether the record can be used. Nothing is dropped here.

A decoded frame has the coordinates (`_topic` to `_origin`), the record's key, `_raw`, its headers, `_value` (a struct
with the declared columns) and `_bad`. `Decoded.columns` has what a job's function gets: the value's columns one by one,
the event time where it is computed of them, and `_key` and `_headers` where the job uses them. The reason why a record
is bad costs more than the test whether it is, so reasons are computed for the rejected rows alone (`Decoded.rejected`).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.check import Check
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import RECORD_COLUMNS, folded, is_reserved, may_name, quoted
from headwater_streams.base.type_name import type_name
from headwater_streams.sources.computed_time import COMPUTED, ComputedTime
from headwater_streams.sources.coordinates import (
    OFFSET,
    ORIGIN,
    ORIGIN_TYPE,
    PARTITION,
    RECORD_FIELDS,
    ROW_COLUMNS,
    SOURCES,
    TIMESTAMP,
    TOPIC,
)
from headwater_streams.sources.event_time import made_a_time
from headwater_streams.sources.headers import header_map, header_value, incomplete, is_name
from headwater_streams.sources.inputs import Input, TopicInput
from headwater_streams.sources.json_value import no_json, parse_json
from headwater_streams.sources.nested import named_twice_in, odd_text, somewhere
from headwater_streams.sources.problems import PROBLEMS, Problem, any_of, problem_array
from headwater_streams.sources.times import far, far_times, is_far_day, time_problems
from headwater_streams.sources.unreadable import unreadable
from headwater_streams.sources.values import value_columns, values_of
from headwater_streams.sources.wrong_fields import excerpt
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.guarded import may_raise, raises, violates
from headwater_streams.spark.hashed import EXACT_TIMES

KEY, RAW, HEADERS, VALUE, BAD = "_record_key", "_raw", "_record_headers", "_value", "_bad"
"""The key and the headers have names of their own here: `_key` and `_headers` are what a job's function has of them."""
_UNREAD, _TEXT = "_unread", "_text"
HEADERS_TYPE = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
ORIGIN_HEADERS = {name: f"headwater-origin-{name}" for name in ORIGIN_TYPE.fieldNames()}


@dataclass(frozen=True)
class Decoded:
    """A decoded frame and what can be wrong with its rows.

    Attributes:
        frame: The rows.
        columns: The value's columns by name, as expressions over the frame.
        problems: What makes a row bad; their conditions are over the frame's columns and the value's.
    """

    frame: DataFrame
    columns: Mapping[str, Column]
    problems: tuple[Problem, ...]

    def rejected(self, rows: DataFrame) -> DataFrame:
        """Rows of the frame with all their reasons: `_problems`, an array of `{check, reason}`."""
        return rows.select("*", *self.columns.values()).withColumn(PROBLEMS, problem_array(self.problems))

    def apart(self, which: Column) -> DataFrame:
        """The rows of the frame for which a condition holds."""
        # Spark would push the condition below the value, and parse the value once for each mention. It pushes nothing
        # below an observation.
        return self.frame.observe(Observation(), F.count(F.lit(1))).filter(which)

    def with_problem(self, frame: DataFrame, problem: Problem) -> "Decoded":
        """The same for `frame`, whose rows may have one more problem."""
        bad = F.col(BAD) | any_of([problem])
        return replace(self, frame=frame.withColumn(BAD, bad), problems=(*self.problems, problem))


class _Decoder:
    """What both decoders share: expressions are made only once, as each takes a call to the JVM."""

    def __init__(
        self,
        columns: Mapping[str, Column],
        checks: Sequence[Check],
        of_columns: Sequence[Problem],
        of_record: Sequence[Problem] = (),
    ) -> None:
        """Args: where the value's columns are; input checks that quarantine; what can be wrong with columns, and before
        them."""
        self._columns = {name: column.alias(name) for name, column in columns.items()}
        self._checks, self._of_columns, self._of_record = checks, of_columns, of_record
        self._judgement: tuple[Column, tuple[Problem, ...]] | None = None

    def _judged(self, frame: DataFrame, names: Sequence[str]) -> Decoded:
        # Checks use these columns by their bare names; the frame's own are called otherwise, also key and headers.
        wide = frame.select("*", *self._columns.values())
        bad, problems = self._judgement = self._judgement or self._make(wide)
        return Decoded(wide.select(*cols(names), bad), self._columns, problems)

    def _make(self, wide: DataFrame) -> tuple[Column, tuple[Problem, ...]]:
        later = [*self._of_columns, *[failing(wide, check) for check in self._checks]]
        # A value that could not be read has no further problem: what is missing in it follows from that.
        read = ~any_of(self._of_record)
        problems = (*self._of_record, *[replace(p, condition=p.condition & read) for p in later])
        return any_of([*self._of_record, *later]).alias(BAD), problems


class RecordDecoder(_Decoder):
    """Decodes the records of a source (`RAW_SCHEMA`)."""

    def __init__(
        self,
        declared: TopicInput,
        checks: Sequence[Check],
        *,
        origin: bool,
        unused: Collection[str] = (),
    ) -> None:
        """Makes it.

        Args:
            declared: The topic's declaration.
            checks: Input checks that quarantine.
            origin: Whether the origin headers are honoured.
            unused: Some of the `needless` columns that are probably not used. They can still be used, at the price of
                parsing the value once more.
        """
        schema = parsed_schema(declared)
        in_value = T.StructType([field for field in schema.fields if field.name not in unused])
        apart = {
            field.name: parse_json(F.col(RAW).cast("string"), T.StructType([field])).getField(field.name)
            for field in schema.fields
            if field.name in unused
        }
        of_record = (F.col(RAW), F.col(HEADERS), F.col(TIMESTAMP))
        self._values = values_of(declared, in_value, *of_record, VALUE, _UNREAD, _TEXT)
        by_name = self._values.typing.columns | apart
        parsed = {name: by_name[name] for name in schema.fieldNames()}
        own = record_columns() if declared.computed or declared.record else {}
        self._time = None if declared.computed is None else ComputedTime(declared.computed, {**parsed, **own})
        columns = parsed if self._time is None else {**parsed, str(declared.event_time): self._time.value}
        stands_in = unreadable(F.col(HEADERS))
        problem = self._values.problem
        problems = [stands_in, replace(problem, condition=problem.condition & ~stands_in.condition)]
        if origin:
            problems.append(incomplete("origin", F.col(HEADERS), F.col(ORIGIN)))
        raised = None if self._time is None else self._time.raised
        of_columns = time_problems(declared, columns, ahead=True, raised=raised)
        of_columns += [*_unreadable(schema, columns), *far_times(declared, schema, columns)]
        used = {name: column for name, column in own.items() if name in declared.record}
        super().__init__({**columns, **used}, checks, of_columns, problems)
        self._texts = origin_texts(F.col("headers")) if origin else None
        names = {"topic": TOPIC, "partition": PARTITION, "offset": OFFSET, "timestamp": TIMESTAMP}
        where = origin_of(F.col("_origin_texts")) if origin else F.lit(None).cast(ORIGIN_TYPE)
        self._located = [F.col(name).alias(ours) for name, ours in names.items()]
        self._located += [where.alias(ORIGIN), F.col("key").alias(KEY), F.col("value").alias(RAW)]
        self._located.append(F.col("headers").alias(HEADERS))

    def locate(self, raw: DataFrame) -> DataFrame:
        """The records with their coordinates, `_topic` to `_origin`, their keys, values and headers."""
        named = raw if self._texts is None else raw.withColumn("_origin_texts", self._texts)
        return named.select(*self._located)

    def decode(self, located: DataFrame) -> Decoded:
        """Decodes located records."""
        typing = self._values.typing
        names = [*ROW_COLUMNS, KEY, RAW, HEADERS, VALUE, *typing.names, _UNREAD, _TEXT]
        read = [self._values.of(located).alias(VALUE), self._values.unread.alias(_UNREAD)]
        read.append(F.col(RAW).cast("string").alias(_TEXT))
        typed = typing.of(located.select("*", *read))
        if self._time is None:
            return self._judged(typed, names)
        return self._judged(self._time.of(typed), [*names, COMPUTED])


class RowDecoder(_Decoder):
    """Brings a table's rows into the shape of a decoded frame; `_raw` is the row as JSON."""

    def __init__(self, declared: Input, columns: Sequence[str], checks: Sequence[Check]) -> None:
        """Args: the table's declaration; its own columns; input checks that quarantine."""
        where = {name: col(VALUE, name) for name in columns}
        super().__init__(where, checks, time_problems(declared, where, ahead=False))
        self._own = frozenset(columns)
        of_value = [name for name in columns if name not in RECORD_COLUMNS]
        has_key, has_headers = (name in self._own for name in RECORD_COLUMNS)
        key, headers = map(F.col, RECORD_COLUMNS)
        self._row = [
            (key if has_key else F.lit(None)).cast("binary").alias(KEY),
            F.to_json(F.struct(*cols(of_value)), EXACT_TIMES).cast("binary").alias(RAW),
            (F.map_entries(headers) if has_headers else F.lit(None)).cast(HEADERS_TYPE).alias(HEADERS),
            F.struct(*cols(columns)).alias(VALUE),
        ]

    def locate(self, rows: DataFrame) -> DataFrame:
        """The rows with their coordinates; a window has those of its first record, which other windows may share."""
        return rows if OFFSET in rows.columns else rows.withColumns(_first_record())

    def decode(self, rows: DataFrame) -> Decoded:
        """Decodes rows; columns that are neither the value's nor coordinates are kept."""
        extra = [name for name in rows.columns if name not in self._own and name not in ROW_COLUMNS]
        decoded = rows.select(*ROW_COLUMNS, *self._row, *cols(extra))
        return self._judged(decoded, [*ROW_COLUMNS, KEY, RAW, HEADERS, VALUE, *extra])


def _first_record() -> dict[str, Column]:
    first = F.get(SOURCES, F.lit(0))
    return {
        TOPIC: first["topic"],
        PARTITION: first["partition"],
        OFFSET: first["start"],
        TIMESTAMP: F.lit(None).cast("timestamp"),
        ORIGIN: F.lit(None).cast(ORIGIN_TYPE),
    }


def failing(rows: DataFrame, check: Check) -> Problem:
    """What is wrong with a row that fails a check, or for which the check raises."""
    reason: Column | str = f"{check.name}: {check.text}"
    if may_raise(rows, check.expression):
        unknown = f"{reason} cannot be worked out"
        reason = F.when(raises(check.expression), F.lit(unknown)).otherwise(F.lit(reason))
    return Problem(check.name, violates(check.expression, rows), reason)


def record_columns() -> dict[str, Column]:
    """A record's own columns as a job's function has them, over located records."""
    return dict(zip(RECORD_COLUMNS, (F.col(KEY), header_map(F.col(HEADERS))), strict=True))


def value_schema(declared: TopicInput) -> T.StructType:
    """The columns that a topic's records have for a job: the value's, the event time that is computed of them, and the
    record's own where the job uses them.

    Raises:
        JobDefinitionError: As `parsed_schema`; or the value has a column of the computed one's name.
    """
    fields = list(parsed_schema(declared).fields)
    if declared.computed is not None:
        time = str(declared.event_time)
        if folded(time) in [folded(field.name) for field in fields]:
            raise JobDefinitionError(
                f"topic {declared.name!r}: the value has a column {time!r}, and so would be the event time; write "
                f'event_time="{declared.computed} AS another_name"'
            )
        fields.append(T.StructField(time, T.TimestampType()))
    return T.StructType([*fields, *[field for field in RECORD_FIELDS if field.name in declared.record]])


def parsed_schema(declared: TopicInput) -> T.StructType:
    """The declared columns of a topic's values.

    Raises:
        JobDefinitionError: The schema is not Spark DDL, a column begins with the reserved `_`, or the event time is
            not one.
    """
    schema = value_columns(declared)
    for name in schema.fieldNames():
        if is_reserved(name):
            raise JobDefinitionError(
                f"topic {declared.name!r}: the column {name!r} begins with '_', which is reserved; leave it out of the "
                "schema, and have its producer give the field another name where it is wanted"
            )
    for field in schema.fields:
        odd = odd_text(field.dataType) or (no_json(field.dataType) if declared.value_format is None else None)
        if odd is not None:
            raise JobDefinitionError(f"topic {declared.name!r}: the column {field.name!r} {odd}")
    twice = named_twice_in(schema)
    if twice is not None:
        raise JobDefinitionError(
            f"topic {declared.name!r}: the schema has two columns named {twice!r}; rename one"
        )
    if declared.event_time is None or declared.computed is not None:
        return schema
    if declared.event_time not in schema.fieldNames():
        raise JobDefinitionError(
            f"topic {declared.name!r}: event_time {declared.event_time!r} is not a column; "
            f"there are {', '.join(schema.fieldNames())}"
        )
    if schema[declared.event_time].dataType != T.TimestampType():
        kind = type_name(schema[declared.event_time].dataType)
        raise JobDefinitionError(
            f"topic {declared.name!r}: event_time {declared.event_time!r} is {kind}, and must be TIMESTAMP"
            + made_a_time(_in_sql(declared.event_time), kind)
        )
    return schema


def _in_sql(name: str) -> str:
    return name if name.isidentifier() else quoted(name)


def needless(declared: TopicInput, schema: T.StructType) -> frozenset[str]:
    """The columns that do not matter to the judgement of a value: texts in JSON, as any value can be one, of which no
    event time is computed."""
    if declared.value_format is not None:
        return frozenset()
    texts = (field.name for field in schema.fields if field.dataType == T.StringType())
    return frozenset(name for name in texts if not may_name(declared.computed or "", name))


def _unreadable(schema: T.StructType, columns: Mapping[str, Column]) -> list[Problem]:
    """Values that Spark reads and other readers do not: deltalake opens no table with a date beyond the years 1 to 9999
    in a file's statistics, and DuckDB reads no row of a table with a map that has a key twice."""
    problems = []
    for field in schema.fields:
        value = columns[field.name]
        # `far_times` checks these, all at once.
        is_time = isinstance(field.dataType, T.TimestampType)
        beyond = None if is_time else somewhere(field.dataType, value, is_far_day)
        if beyond is not None:
            problems.append(Problem("value", beyond, far(field.name, field.dataType, value)))
        twice = somewhere(field.dataType, value, _has_a_key_twice)
        if twice is not None:
            reason = F.concat(F.lit(f"{field.name} has a key twice: "), excerpt(value.cast("string")))
            problems.append(Problem("value", twice, reason))
    return problems


def _has_a_key_twice(kind: T.DataType, value: Column) -> Column | None:
    if not isinstance(kind, T.MapType):
        return None
    keys = F.map_keys(value)
    return F.size(keys) > F.size(F.array_distinct(keys))


def origin_texts(headers: Column) -> Column:
    """The values of the origin headers as they were sent, by the last part of their names; NULL for a missing one."""
    names = list(ORIGIN_HEADERS)

    def text(value: Column) -> Column:
        return value.cast("string")

    # A sender always sends the four in the same order, and an access by place takes a tenth of the time of a search.
    places = [F.get(headers, F.lit(place)) for place in range(len(names))]
    in_order = F.lit(True)
    for name, place in zip(names, places, strict=True):
        in_order &= place["key"].eqNullSafe(F.lit(ORIGIN_HEADERS[name]))
    at_once = F.struct(*[text(place["value"]).alias(name) for name, place in zip(names, places, strict=True)])
    searched = F.struct(*[text(header_value(headers, ORIGIN_HEADERS[name])).alias(name) for name in names])
    return F.when(in_order, at_once).otherwise(searched)


def origin_of(texts: Column) -> Column:
    """The origin that the headers name, NULL where they are incomplete, not decimal numbers or not text."""
    partition, offset = texts["partition"], texts["offset"]
    complete = is_name(texts["cluster"]) & is_name(texts["topic"])
    numbers = _is_decimal(partition, "int", 9) & _is_decimal(offset, "long", 18)
    return F.when(
        complete & numbers,
        F.struct(
            texts["cluster"].alias("cluster"),
            texts["topic"].alias("topic"),
            partition.try_cast("int").alias("partition"),
            offset.try_cast("long").alias("offset"),
        ),
    )


def _is_decimal(text: Column, kind: str, digits: int) -> Column:
    # A number in Spark's own form needs no regular expression; "007" does.
    number = text.try_cast(kind)
    plain = (number >= 0) & (number.cast("string") == text) & (F.length(text) <= digits)
    return F.coalesce(plain, F.lit(False)) | F.coalesce(text.rlike(f"^[0-9]{{1,{digits}}}$"), F.lit(False))
