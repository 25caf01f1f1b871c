"""A SQL file as a module of jobs."""

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headwater_streams.dedup import ByKey, ByOffset, BySequence
from headwater_streams.errors import JobDefinitionError
from headwater_streams.runtime.job import Job
from headwater_streams.sinks.target import DeltaTarget, delta
from headwater_streams.streaming_sql.script import Script
from headwater_streams.streaming_sql.statement import Statement, read_statement


def load_sql(path: Path) -> list[Job]:
    """The jobs of a file, one for each statement.

    Raises:
        JobDefinitionError: The file is not UTF-8, or a statement is wrong; the message has the file and the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise JobDefinitionError(f"{path} is not UTF-8: {error}") from error
    script = Script(path, text)
    jobs = []
    while not script.is_read:
        if not script.take(";"):
            jobs.append(_job(read_statement(script)))
    if not jobs:
        raise JobDefinitionError(
            f"{path}: no job in it; write CREATE STREAMING TABLE schema.table AS SELECT ..."
        )
    return jobs


def _job(statement: Statement) -> Job:
    place, options, query = statement.place, statement.options, statement.query
    dedup, late = options.get("dedup"), options.get("late", "table")
    if dedup is not None and not isinstance(dedup, ByOffset | BySequence | ByKey):
        place.fail(f"dedup = {dedup!r} is not by_offset(...), by_sequence(...) or by_key(...)")
    if late not in ("table", "count"):
        place.fail(f"late = {late!r} is not one of 'table', 'count'")
    names = [source.name for source in query.sources]
    if len(set(names)) < len(names):
        place.fail(f"both inputs are named {names[0]}; give one another name, FROM ... AS name")
    twice = {check.name for check in statement.checks}
    if len(twice) < len(statement.checks):
        place.fail("two constraints have one name")
    return Job(
        str(options.get("name", statement.table.rpartition(".")[2])),
        _function(statement),
        {source.name: source.declared for source in query.sources},
        place.of(lambda: _target(statement)),
        dedup,
        late,
        statement.checks,
        text=statement.text,
    )


def _target(statement: Statement) -> DeltaTarget:
    options, group = statement.options, statement.query.group
    mode: Any = options.get("mode", "append")
    keys = options.get("keys", ())
    if isinstance(keys, str):
        keys = tuple(key.strip() for key in keys.split(","))
    if not keys and mode == "update" and group is not None:
        keys = group.keys
    return delta(statement.table, keys=keys, mode=mode)


def _function(statement: Statement) -> Any:
    query = statement.query

    def select(**frames: DataFrame) -> DataFrame:
        return query.result(frames)

    # Where a person finds it.
    path, line = str(statement.place.path), statement.place.line
    select.__code__ = select.__code__.replace(co_filename=path, co_firstlineno=line)
    return select
