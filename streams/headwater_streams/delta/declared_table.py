"""A table as it is declared: its creation, what is added to it, and why it cannot have a job's columns."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from deltalake import DeltaTable as DeltaLake
from deltalake import Schema
from deltalake.exceptions import CommitFailedError
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from headwater_streams.base.errors import IncompatibleTableError
from headwater_streams.base.layout import CLUSTERED_BY, KEPT, PLAIN, Layout, partitioning_problem
from headwater_streams.base.names import column_problem, named_twice, quoted, twins
from headwater_streams.sources.nested import odd_text
from headwater_streams.spark.sql_types import sql_of
from headwater_streams.storage.atomic_file import atomic_file
from headwater_streams.storage.delta_files import opened_table, partition_columns
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.files import exists, matching, read_text

_PROPERTIES = {
    "delta.enableDeletionVectors": "false",  # deltalake and DuckDB do not read them
    "delta.enableExpiredLogCleanup": "false",  # the log is cleaned after its entries are in headwater.ledger
    "delta.dataSkippingNumIndexedCols": "-1",  # the coordinates stand behind the user's columns
    # A checkpoint rebuilds the table's state with Spark: 1 s of CPU, six times a small batch's own commit, and Delta's
    # default makes one after every ten. Fifty commit files are read in milliseconds.
    "delta.checkpointInterval": "50",
}

_COMMENT = "comment"
"""The key of a column's comment, as Spark and Delta have it."""


def ensure_table(
    spark: SparkSession, path: Path, name: str, schema: T.StructType, layout: Layout = PLAIN
) -> None:
    """Creates the table, or adds the columns, the properties and the comments that it does not have yet.

    deltalake creates it in 15 ms; Delta's own builder starts Spark jobs.

    Raises:
        IncompatibleTableError: A column has a type that cannot hold the job's values, or no table can have it; or the
            table has other partitions.
    """
    nullable = T.StructType([T.StructField(f.name, f.dataType, True) for f in schema.fields])
    problems = [f"{name}: the column {each!r} {problem}" for each, problem in name_problems(nullable).items()]
    problems += column_problems(path, name, nullable)
    problems += layout_problems_of(path, name, layout)
    if problems:
        raise IncompatibleTableError("; ".join(problems))
    if not has_versions(path):
        _create(path, nullable, layout)
        return
    existing = set(_schema_of(path).fieldNames())
    added = [f for f in nullable.fields if f.name not in existing]
    if added:
        listed = ", ".join(f"{quoted(f.name)} {sql_of(spark, f.dataType)}" for f in added)
        spark.sql(f"ALTER TABLE delta.{quoted(str(path))} ADD COLUMNS ({listed})")
    describe_table(path, layout)


def _create(path: Path, schema: T.StructType, layout: Layout) -> None:
    comments = dict(layout.comments)
    described = T.StructType(
        [
            T.StructField(
                f.name, f.dataType, True, {_COMMENT: comments[f.name]} if f.name in comments else None
            )
            for f in schema.fields
        ]
    )
    properties = _PROPERTIES | layout.stored_properties
    # deltalake creates a table with properties of Delta's alone; others are set behind that.
    of_delta = {name: value for name, value in properties.items() if name.startswith("delta.")}
    DeltaLake.create(
        str(path),
        Schema.from_json(described.json()),
        mode="ignore",
        partition_by=list(layout.partition_columns),
        configuration=of_delta,
        description=layout.comment,
    )
    describe_table(path, layout)
    write_checksums(path)


def describe_table(path: Path, layout: Layout) -> None:
    """Gives a table the properties and comments of a layout, where it has others; it keeps those that are not named.

    Each kind is a commit. One that meets another's commit is left to the job's next start.
    """
    with suppress(CommitFailedError):
        _describe(path, layout)


def _describe(path: Path, layout: Layout) -> None:
    opened = opened_table(path)
    metadata = opened.metadata()
    stored = metadata.configuration
    declared = {CLUSTERED_BY: "", KEPT: "", **layout.stored_properties}
    properties = {name: value for name, value in declared.items() if stored.get(name, "") != value}
    if properties:
        opened.alter.set_table_properties(properties, raise_if_not_exists=False)
    if layout.comment is not None and layout.comment != metadata.description:
        opened_table(path).alter.set_table_description(layout.comment)
    commented = {
        f["name"]: f.get("metadata", {}).get(_COMMENT)
        for f in json.loads(opened.schema().to_json())["fields"]
    }
    for column, comment in layout.comments:
        if column in commented and commented[column] != comment:
            opened_table(path).alter.set_column_metadata(column, {_COMMENT: comment})


def layout_problems_of(path: Path, name: str, layout: Layout) -> list[str]:
    """Why rows of a layout cannot be written to a table, if it exists: a sentence for each reason."""
    if not has_versions(path):
        return []
    problem = partitioning_problem(name, partition_columns(path), layout)
    return [] if problem is None else [problem]


def write_checksums(path: Path) -> None:
    """Writes the checksum files that deltalake leaves out, for a table that deltalake made and appended to.

    Delta's next commit derives its own from the last of them. Without it Delta rebuilds the table's state with Spark at
    the first commit and whenever it reads the version, 0.3 s each time.
    """
    state: dict[str, Any] = {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "allFiles": [],
    }
    for log in matching(path / "_delta_log", "*.json"):
        checksum = log.with_suffix(".crc")
        if exists(checksum):
            state = json.loads(read_text(checksum))
            continue
        for line in read_text(log).splitlines():
            action = json.loads(line)
            state |= {key: action[name] for name, key in _IN_CHECKSUM.items() if name in action}
            if "add" in action:
                state["allFiles"].append(action["add"])
        state["numFiles"] = len(state["allFiles"])
        state["tableSizeBytes"] = sum(add["size"] for add in state["allFiles"])
        with atomic_file(checksum) as file:
            file.write(json.dumps(state).encode())


_IN_CHECKSUM = {"metaData": "metadata", "protocol": "protocol"}


def name_problems(schema: T.StructType) -> dict[str, str]:
    """Why a table cannot have columns of these names: a predicate for each such column."""
    problems = {
        field.name: problem
        for field in schema.fields
        if (problem := column_problem(field.name) or _problem_within(field.dataType)) is not None
    }
    twice = named_twice(schema.fieldNames())
    return problems if twice is None else {**problems, twice: f"has the name of another one{_ALIKE}"}


def _problem_within(kind: T.DataType) -> str | None:
    """The same for the fields within a column's type."""
    if isinstance(kind, T.StructType):
        problems = (f"has a field {name!r} that {problem}" for name, problem in name_problems(kind).items())
        return next(problems, None)
    if isinstance(kind, T.MapType):
        return _problem_within(kind.keyType) or _problem_within(kind.valueType)
    return _problem_within(kind.elementType) if isinstance(kind, T.ArrayType) else None


def column_problems(path: Path, name: str, schema: T.StructType) -> list[str]:
    """Why rows of a schema cannot be written to a table, if it exists: a sentence for each such column.

    A column of a narrower type is written with the table's type. A table's type never changes: Delta could widen it,
    but neither deltalake nor DuckDB reads a table with that feature (`typeWidening`; deltalake 1.6.6).
    """
    problems = []
    existing = {f.name: f for f in _schema_of(path).fields} if has_versions(path) else {}
    for column, other in twins(schema.fieldNames(), existing):
        problems.append(
            f"{name}: the column {column!r} is called {other!r} in the table{_ALIKE}; call it that, or otherwise"
        )
    for field in schema.fields:
        stored, odd = existing.get(field.name), odd_text(field.dataType)
        if stored is None and odd is not None:
            problems.append(f"{name}: the column {field.name!r} {odd}")
        elif stored is not None and not _holds(stored.dataType, field.dataType):
            problems.append(
                f"{name}: the column {field.name!r} is {stored.dataType.simpleString()} in the table and "
                f"{field.dataType.simpleString()} in the job; cast it there, or give it another name, or begin with an "
                "empty table: headwater jobs rebuild"
            )
    for column, stored in existing.items():
        if not stored.nullable and column not in schema.fieldNames():
            problems.append(
                f"{name}: the column {column!r} of the table takes no NULL, and the job has no such column; write "
                "another table"
            )
    return problems


_ALIKE = ", for Spark and Delta tell no small letters from capitals"
_WIDER = (T.ByteType, T.ShortType, T.IntegerType, T.LongType), (T.FloatType, T.DoubleType)


def _holds(table: T.DataType, job: T.DataType) -> bool:
    """Whether every value of the job's type is one of the table's, to which `DeltaTransaction.write` casts."""
    if table.simpleString() == job.simpleString():
        return True
    if isinstance(table, T.DecimalType) and isinstance(job, T.DecimalType):
        return table.scale >= job.scale and table.precision - table.scale >= job.precision - job.scale
    for kinds in _WIDER:
        if isinstance(table, kinds) and isinstance(job, kinds):
            return kinds.index(type(table)) > kinds.index(type(job))
    return False


def _schema_of(path: Path) -> T.StructType:
    return T.StructType.fromJson(json.loads(opened_table(path).schema().to_json()))
