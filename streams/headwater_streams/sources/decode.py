"""Records to rows: the value decoded, every reason why a record cannot be used written beside it.

A decoded frame has the coordinates (`_topic` to `_origin`), `_key`, `_raw`, `_headers`, `_value` (a struct of the
declared columns) and `_problems` (an array of `{check, reason}`, empty for a good record). Nothing is dropped here.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.durations import interval_sql, parse_duration
from headwater_streams.errors import JobDefinitionError
from headwater_streams.quality.check import Check
from headwater_streams.sources.coordinates import (
    OFFSET,
    ORIGIN,
    ORIGIN_TYPE,
    PARTITION,
    ROW_COLUMNS,
    TIMESTAMP,
    TOPIC,
)
from headwater_streams.sources.inputs import Input, TopicInput

KEY, RAW, HEADERS, VALUE, PROBLEMS = "_key", "_raw", "_headers", "_value", "_problems"
DECODED_COLUMNS = (*ROW_COLUMNS, KEY, RAW, HEADERS, VALUE, PROBLEMS)
HEADERS_TYPE = T.ArrayType(
    T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])
)
ORIGIN_HEADERS = {name: f"headwater-origin-{name}" for name in ORIGIN_TYPE.fieldNames()}

_CORRUPT = "_corrupt_record"
_PROBLEM = "array<struct<check: string, reason: string>>"


def value_schema(declared: TopicInput) -> T.StructType:
    """The declared columns of a topic's values.

    Raises:
        JobDefinitionError: The schema is not Spark DDL, or a column begins with the reserved `_`.
    """
    try:
        schema = T.StructType.fromDDL(declared.schema)
        assert isinstance(schema, T.StructType)
    except Exception as error:
        raise JobDefinitionError(
            f"topic {declared.name!r}: schema {declared.schema!r} is not Spark DDL; write 'name TYPE, name TYPE'"
        ) from error
    for name in schema.fieldNames():
        if name.startswith("_"):
            raise JobDefinitionError(
                f"topic {declared.name!r}: the column {name!r} begins with '_', which is reserved"
            )
    if declared.event_time is not None and declared.event_time not in schema.fieldNames():
        raise JobDefinitionError(
            f"topic {declared.name!r}: event_time {declared.event_time!r} is not a column; "
            f"there are {', '.join(schema.fieldNames())}"
        )
    return schema


def decode_records(
    raw: DataFrame, declared: TopicInput, checks: Sequence[Check], *, origin: bool
) -> DataFrame:
    """Decodes what a source of records gives (`RAW_SCHEMA`).

    Args:
        raw: The records.
        declared: The topic's declaration.
        checks: Row checks on the input whose violation quarantines.
        origin: Whether the origin headers are honoured.

    Returns:
        A decoded frame.
    """
    schema = value_schema(declared)
    text = F.col("value").cast("string")
    parsed = F.from_json(
        text,
        T.StructType([*schema.fields, T.StructField(_CORRUPT, T.StringType())]),
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    coordinates = [
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("offset").alias(OFFSET),
        F.col("timestamp").alias(TIMESTAMP),
        (_origin() if origin else F.lit(None).cast(ORIGIN_TYPE)).alias(ORIGIN),
    ]
    extra = [name for name in raw.columns if name.startswith("_")]
    decoded = raw.select(
        *coordinates,
        F.col("key").alias(KEY),
        F.col("value").alias(RAW),
        F.col("headers").alias(HEADERS),
        parsed.alias(VALUE),
        text.alias("_text"),
        *extra,
    )
    problems = [_value_problem(schema)]
    if origin:
        problems.append(_origin_problem())
    problems += time_problems(declared, ahead=True)
    problems += [_check_problem(check) for check in checks]
    # Checks speak of the value's columns by their bare names; none of them begins with "_".
    return (
        decoded.select("*", F.col(VALUE).dropFields(_CORRUPT).alias("_v"))
        .select("*", "_v.*")
        .select(
            *ROW_COLUMNS,
            KEY,
            RAW,
            HEADERS,
            F.col("_v").alias(VALUE),
            _gather(problems),
            *extra,
        )
    )


def decode_table_rows(
    rows: DataFrame, declared: Input, columns: Sequence[str], checks: Sequence[Check]
) -> DataFrame:
    """Brings a table's rows into the shape of a decoded frame; `_raw` is the row as JSON."""
    value = F.struct(*[F.col(f"`{name}`") for name in columns])
    extra = [name for name in rows.columns if name not in columns and name not in ROW_COLUMNS]
    decoded = rows.select(
        *ROW_COLUMNS,
        F.lit(None).cast("binary").alias(KEY),
        F.to_json(value).cast("binary").alias(RAW),
        F.lit(None).cast(HEADERS_TYPE).alias(HEADERS),
        value.alias(VALUE),
        *extra,
    )
    problems = time_problems(declared, ahead=False)
    problems += [_check_problem(check) for check in checks]
    return decoded.select("*", f"{VALUE}.*").select(
        *ROW_COLUMNS, KEY, RAW, HEADERS, VALUE, _gather(problems), *extra
    )


def time_problems(declared: Input, *, ahead: bool) -> list[Column]:
    """What can be wrong with a row's event time: missing, or (`ahead`) far beyond its record's timestamp."""
    if declared.event_time is None:
        return []
    time = F.col(f"{VALUE}.`{declared.event_time}`")
    problems = [_problem(time.isNull(), "event_time", f"{declared.event_time} is missing")]
    if ahead and isinstance(declared, TopicInput):
        limit = F.col(TIMESTAMP) + F.expr(interval_sql(parse_duration(declared.max_ahead)))
        reason = f"{declared.event_time} is more than {declared.max_ahead} ahead of the record's timestamp"
        problems.append(_problem(time > limit, "event_time", reason))
    return problems


def _gather(problems: list[Column]) -> Column:
    if not problems:
        return F.array().cast(_PROBLEM).alias(PROBLEMS)
    return F.array_compact(F.array(*problems)).cast(_PROBLEM).alias(PROBLEMS)


def _problem(condition: Column, check: str, reason: Column | str) -> Column:
    text = F.lit(reason) if isinstance(reason, str) else reason
    return F.when(condition, F.struct(F.lit(check).alias("check"), text.alias("reason")))


def _check_problem(check: Check) -> Column:
    return _problem(F.expr(check.violation_sql), check.name, f"{check.name}: {check.expression}")


def _value_problem(schema: T.StructType) -> Column:
    text, value = F.col("_text"), F.col(VALUE)
    wrong = [
        F.when(
            F.get_json_object(text, f"$['{f.name}']").isNotNull() & value.getField(f.name).isNull(),
            F.lit(f"{f.name} is not {f.dataType.simpleString().upper()}"),
        )
        for f in schema.fields
    ]
    wrong_fields = F.array_join(F.array_compact(F.array(*wrong)), ", ")
    corrupt = value.getField(_CORRUPT).isNotNull()
    # Spark's parser stops after the first object; what follows it would be lost without a word.
    bare = F.btrim(text, F.lit(" \t\r\n"))
    around = ~bare.startswith("{") | ~bare.endswith("}")
    alone = F.size(F.from_json(F.concat(F.lit("["), text, F.lit("]")), T.ArrayType(T.StringType()))) == 1
    # Where the first brace that closes is the last character there is one object, and no regular expression is needed.
    several_close = F.instr(bare, "}") < F.char_length(bare)
    doubled = several_close & text.rlike(r"\}[^\"{]*\{") & ~F.coalesce(alone, F.lit(False))
    reason = (
        F.when(text.isNull(), F.lit("the value is null"))
        .when(bare == "", F.lit("the value is empty"))
        .when(~F.is_valid_utf8(text), F.lit("the value is not UTF-8"))
        .when(around | doubled, F.lit("the value is not one JSON object"))
        .when(
            corrupt,
            F.when(F.try_parse_json(text).isNull(), F.lit("the value is not valid JSON")).otherwise(
                wrong_fields
            ),
        )
    )
    return F.when(reason.isNotNull(), F.struct(F.lit("value").alias("check"), reason.alias("reason")))


def _header(name: str) -> Column:
    wanted = F.filter(F.col("headers"), lambda header: header["key"] == ORIGIN_HEADERS[name])
    return F.try_element_at(wanted, F.lit(1))["value"].cast("string")


def _origin() -> Column:
    partition, offset = _header("partition"), _header("offset")
    numbers = partition.rlike("^[0-9]{1,9}$") & offset.rlike("^[0-9]{1,18}$")
    complete = _header("cluster").isNotNull() & _header("topic").isNotNull() & numbers
    return F.when(
        complete,
        F.struct(
            _header("cluster").alias("cluster"),
            _header("topic").alias("topic"),
            partition.cast("int").alias("partition"),
            offset.cast("long").alias("offset"),
        ),
    )


def _origin_problem() -> Column:
    named = F.exists(F.col(HEADERS), lambda header: header["key"].startswith("headwater-origin-"))
    reason = "the headwater-origin headers are incomplete or not decimal numbers"
    return _problem(named & F.col(ORIGIN).isNull(), "origin", reason)
