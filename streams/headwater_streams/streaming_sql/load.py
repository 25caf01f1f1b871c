"""A SQL file as a module of jobs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import folded, named_twice
from headwater_streams.base.target import DeltaTarget, delta
from headwater_streams.delta.scd_target import scd1, scd2
from headwater_streams.operators.dedup import ByKey, ByOffset, BySequence
from headwater_streams.plan.dropping import without_dropped
from headwater_streams.plan.job import ErrorBound, Job, require_own_name
from headwater_streams.plan.laid_out import with_layout
from headwater_streams.sources.beside import naming_files_in
from headwater_streams.storage.files import read_text
from headwater_streams.streaming_sql.script import Script
from headwater_streams.streaming_sql.statement import Statement, read_statement
from headwater_streams.streaming_sql.words import in_sql

_OF_CHANGES = ("sequence_by", "apply_as_deletes", "except_columns", "track_history_columns")


@dataclass(frozen=True)
class WrongStatement:
    """A statement that is no job.

    Attributes:
        error: What is wrong with it.
        table: The table that it was to write; None where it names none.
    """

    error: JobDefinitionError
    table: str | None


def load_sql(path: Path) -> list[Job]:
    """The jobs of a file, one for each statement.

    Raises:
        JobDefinitionError: The file is not UTF-8, or a statement is wrong; the message has the file and the line.
    """
    jobs, wrong = load_each_sql(path)
    if wrong:
        raise wrong[0].error
    return jobs


def load_each_sql(path: Path) -> tuple[list[Job], list[WrongStatement]]:
    """The jobs of those statements of a file that are right, and the others.

    Raises:
        JobDefinitionError: The file is not UTF-8, or a text, a comment or a bracket in it is not closed.
    """
    try:
        text = read_text(path)
    except UnicodeDecodeError as error:
        raise JobDefinitionError(f"{path} is not UTF-8: {error}") from error
    script = Script(path, text)
    jobs, wrong = list[Job](), list[WrongStatement]()
    with naming_files_in(path.resolve().parent):
        while not script.is_read:
            if script.take(";"):
                continue
            begin = script.position
            try:
                jobs.append(_job(read_statement(script)))
            except JobDefinitionError as error:
                script.go_to(begin)
                wrong.append(WrongStatement(error, _table_of(script)))
                script.go_to(begin)
                script.skip_statement()
    if not jobs and not wrong:
        raise JobDefinitionError(
            f"{path}: no job in it; write CREATE STREAMING TABLE schema.table AS SELECT ..."
        )
    return jobs, wrong


def _table_of(script: Script) -> str | None:
    """The table that the statement which comes next names, if it gets so far."""
    script.take("CREATE")
    if script.take("OR"):
        script.token("REFRESH")
    is_table = script.take("STREAMING") and script.take("TABLE")
    try:
        return script.dotted("the table's name") if is_table else None
    except JobDefinitionError:
        return None


def _job(statement: Statement) -> Job:
    place, options, query = statement.place, statement.options, statement.query
    dedup, late = options.get("dedup"), options.get("late", "table")
    if dedup is not None and not isinstance(dedup, ByOffset | BySequence | ByKey):
        place.fail(f"dedup = {dedup!r} is not by_offset(...), by_sequence(...) or by_key(...)")
    if late not in ("table", "count"):
        place.fail(f"late = {late!r} is not one of 'table', 'count'")
    on_error, bound = options.get("on_error", "quarantine"), ErrorBound()
    if on_error not in ("quarantine", "fail"):
        place.fail(f"on_error = {on_error!r} is not one of 'quarantine', 'fail'")
    try:
        bound = ErrorBound.of(options.get("max_errors", bound.rows))
    except ValueError as error:
        place.fail(str(error))
    names = [source.name for source in query.inputs]
    twice_named = named_twice(names)
    if twice_named is not None:
        place.fail(f"two inputs are named {twice_named}; give one another name, FROM ... AS name")
    target = statement.places["target"].of(lambda: _target(statement))
    name = str(options.get("name", target.name.rpartition(".")[2]))
    place.of(lambda: require_own_name(name))
    twice = {check.name for check in statement.checks}
    if len(twice) < len(statement.checks):
        place.fail("two constraints have one name")
    return Job(
        name,
        with_layout(without_dropped(_function(statement), statement.checks, names), {"": target}),
        {source.name: source.declared for source in query.inputs},
        target,
        dedup,
        late,
        statement.checks,
        text=statement.text,
        places={part: str(place) for part, place in statement.places.items()},
        worded=in_sql,
        on_error=on_error,
        max_errors=bound,
    )


def _target(statement: Statement) -> DeltaTarget:
    options, group = statement.options, statement.query.group
    mode: Any = options.get("mode", "append")
    keys = _names("keys", options.get("keys", ()))
    if group is not None:  # its columns match in any case
        outputs = {folded(output.name): output.name for output in group.outputs}
        keys = tuple(outputs.get(folded(key), key) for key in keys)
    of_changes = {name: options[name] for name in _OF_CHANGES if name in options}
    if mode == "scd1" and "track_history_columns" in of_changes:
        raise JobDefinitionError("track_history_columns wants WITH (mode = 'scd2'); type 1 has no history")
    if mode in ("scd1", "scd2"):
        for name in ("except_columns", "track_history_columns"):
            if name in of_changes:
                of_changes[name] = _names(name, of_changes[name])
        declare: Any = scd1 if mode == "scd1" else scd2
        if "keep" in statement.layout or "keep_by" in statement.layout:
            raise JobDefinitionError("keep is not for slowly changing dimensions, which keep what holds now")
        more = {"sequence_by": "", **of_changes, **statement.layout}
        target: DeltaTarget = declare(statement.table, keys=keys, **more)
        return target
    if of_changes:
        raise JobDefinitionError(f"{', '.join(of_changes)} wants WITH (mode = 'scd1') or 'scd2'")
    if not keys and mode == "update" and group is not None:
        keys = group.keys
    return delta(statement.table, keys=keys, mode=mode, **statement.layout)


def _names(option: str, listed: Any) -> tuple[str, ...]:
    if isinstance(listed, str):
        return tuple(name.strip() for name in listed.split(","))
    if not isinstance(listed, tuple):
        raise JobDefinitionError(f"{option} = {listed!r} is not a list of columns; write {option} = (a, b)")
    return tuple(map(str, listed))


def _function(statement: Statement) -> Any:
    query = statement.query

    def select(**frames: DataFrame) -> DataFrame:
        return query.result(frames)

    # Where a person finds it.
    path, line = str(statement.place.path), statement.place.line
    select.__code__ = select.__code__.replace(co_filename=path, co_firstlineno=line)
    return select
