"""The page of tables: the columns that the library adds to a job's, and the tables of its own."""

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import types as T

from docs_reference.markdown import code, plain, table
from headwater_streams.base import table_columns as described
from headwater_streams.delta.scd_target import CHANGES, DELETED, ScdTarget
from headwater_streams.delta.side import late_schema, quarantine_schema
from headwater_streams.ledger import copy, quarantined
from headwater_streams.ledger.counts import store
from headwater_streams.ledger.log import LEDGER_TABLE
from headwater_streams.operators.dedup import memory
from headwater_streams.quality import results
from headwater_streams.runtime.progress import PROGRESS_TABLE
from headwater_streams.runtime.progress import SCHEMA as PROGRESS_SCHEMA
from headwater_streams.sources.coordinates import (
    COMMIT_FIELDS,
    RECORD_FIELDS,
    ROW_FIELD,
    ROW_FIELDS,
    ROWS,
    SEEN_UNTIL,
    SOURCES,
    SOURCES_TYPE,
)

_SIDE = {**described.SIDE_DESCRIPTIONS, **described.ROW_DESCRIPTIONS, **described.COMMIT_DESCRIPTIONS}
_OWN = {
    **described.RESULT_DESCRIPTIONS,
    **described.ROW_DESCRIPTIONS,
    **described.EXPLODED_DESCRIPTIONS,
    **described.RECORD_DESCRIPTIONS,
    **described.COMMIT_DESCRIPTIONS,
}
_EXAMPLE = T.StructType([T.StructField("key", T.StringType()), T.StructField("changed_at", T.LongType())])


def spark_tables() -> Mapping[str, tuple[list[T.StructField], Mapping[str, str]]]:
    """By what a table is called here: the library's columns of it, and what each holds."""
    commit, rows = list(COMMIT_FIELDS), list(ROW_FIELDS)
    sources = T.StructField(SOURCES, SOURCES_TYPE)
    dimension = ScdTarget("dim.x", keys=("key",), stored_as_scd_type=2, sequence_by="changed_at")
    return {
        "Table of a row-by-row job": ([*rows, *commit], _OWN),
        "Table of a row-by-row job that explodes its records": ([*rows, ROW_FIELD, *commit], _OWN),
        "Table of windows and aggregates": ([sources, T.StructField(ROWS, T.LongType()), *commit], _OWN),
        "Table of a join": ([*rows, sources, *commit], _OWN),
        "Dimension of type 1": ([*rows, T.StructField(CHANGES, T.LongType()), *commit], _OWN),
        "Dimension of type 2": (_without(dimension.table_schema(_EXAMPLE), _EXAMPLE), _OWN),
        "Ingest table, `TABLE__ingest_INPUT`": (
            [*RECORD_FIELDS, *rows, *commit, T.StructField(SEEN_UNTIL, T.TimestampType())],
            _OWN,
        ),
        "Late rows, `TABLE__late`": (list(late_schema({}, overlapping=True)), _SIDE),
        "Quarantine, `TABLE__quarantine`": (list(quarantine_schema()), _SIDE),
        "Changes of a dimension, `TABLE__changes`": (
            [T.StructField(DELETED, T.BooleanType()), *rows, *commit],
            _SIDE,
        ),
    }


def library_tables() -> Mapping[str, tuple[Any, Mapping[str, str]]]:
    """By the names of the library's own tables: their columns, and what each holds."""
    return {
        LEDGER_TABLE: (copy.SCHEMA, described.LEDGER_DESCRIPTIONS),
        PROGRESS_TABLE: (PROGRESS_SCHEMA, described.PROGRESS_DESCRIPTIONS),
        memory.SEEN_TABLE: (memory.SCHEMA, described.SEEN_DESCRIPTIONS),
        store.COUNTS_TABLE: (store.SCHEMA, described.COUNTS_DESCRIPTIONS),
        results.RESULTS_TABLE: (results.SCHEMA, described.RESULTS_DESCRIPTIONS),
        quarantined.DISCARDED_TABLE: (quarantined.DISCARDED_SCHEMA, described.DISCARDED_DESCRIPTIONS),
    }


def page() -> str:
    """The Markdown."""
    parts = [
        "# Tables",
        "",
        "A job's table has the columns of its function, and behind them columns of the library. Names that begin with",
        "an underscore are the library's: a function may not make a column of such a name.",
        "",
    ]
    for title, (columns, what) in spark_tables().items():
        rows = [
            (code(each.name), code(each.dataType.simpleString()), plain(what[each.name])) for each in columns
        ]
        parts += [f"## {title}", "", *_intro(title), table(("Column", "Type", "What it holds"), rows)]
    parts += ["## Tables of the library", ""]
    for name, (schema, what) in library_tables().items():
        rows = [(code(each.name), code(_arrow(each.type)), plain(what[each.name])) for each in schema]
        parts += [f"### {name}", "", table(("Column", "Type", "What it holds"), rows)]
    return "\n".join(parts)


def _intro(title: str) -> Iterable[str]:
    if title.startswith("Late"):
        return ("It also has the columns of the job's inputs, side by side.", "")
    if title.startswith("Changes"):
        return ("It also has the columns of the job's function.", "")
    return ()


def _without(schema: T.StructType, own: T.StructType) -> list[T.StructField]:
    return [field for field in schema if field.name not in own.fieldNames()]


def _arrow(kind: Any) -> str:
    """An Arrow type in the words of Spark's, which readers of the tables know."""
    text = str(kind).replace("item: ", "").replace("element: ", "")
    for arrow, spark in (
        ("timestamp[us, tz=UTC]", "timestamp"),
        ("int64", "bigint"),
        ("int32", "int"),
        ("list<", "array<"),
    ):
        text = text.replace(arrow, spark)
    return text.replace(": ", ":").replace(", ", ",").replace(" ('bigint')", "")
