"""One `CREATE STREAMING TABLE` statement, read into what it declares."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater_streams.base.check import Check, InvalidCheckError
from headwater_streams.base.condition import has_aggregate
from headwater_streams.streaming_sql.calls import argument
from headwater_streams.streaming_sql.query import Query
from headwater_streams.streaming_sql.script import Place, Script
from headwater_streams.streaming_sql.select import read_select

OPTIONS = (
    "mode", "keys", "dedup", "late", "name", "state", "sequence_by", "apply_as_deletes", "except_columns",
    "track_history_columns", "on_error", "max_errors",
)  # fmt: skip
ACTIONS = ("QUARANTINE", "FAIL", "WARN")


@dataclass(frozen=True)
class Statement:
    """A statement.

    Attributes:
        table: The table that it creates, `"schema.table"`.
        options: What WITH says.
        checks: Its constraints.
        query: The SELECT.
        places: Where its parts stand, see `Job`.
        place: Where it begins.
        text: All of it in one line, without comments.
    """

    table: str
    options: Mapping[str, Any]
    checks: tuple[Check, ...]
    query: Query
    places: Mapping[str, Place]
    place: Place
    text: str


def read_statement(script: Script) -> Statement:
    """Reads a statement and the semicolon behind it.

    Raises:
        JobDefinitionError: It is not one, or names what cannot be streamed; the message has the file and the line.
    """
    place, begin = script.place, script.position
    script.expect("CREATE")
    if script.take("OR") and not script.take("REFRESH"):
        script.expect("REPLACE")
    script.expect("STREAMING")
    script.expect("TABLE")
    table_name = script.dotted("the table's name, schema.table,")
    places: dict[str, Place] = {}
    checks = _constraints(script, places) if script.take("(") else ()
    places["target"] = script.place if script.next_word == "WITH" else place
    options = _options(script) if script.take("WITH") else {}
    script.expect("AS")
    query = read_select(script)
    if query.group is not None and not query.group.window and options.get("state") != "unbounded":
        query.group.place.fail(
            "GROUP BY without a window keeps every key for ever; say so, WITH (state = 'unbounded'), or add "
            "window(time, '1 hour')"
        )
    text = script.normal(begin)
    if not script.take(";") and not script.is_read:
        script.fail("the statement's end, or a clause that a stream has, was to come")
    places |= {f"input {source.name}": source.place for source in query.inputs}
    return Statement(table_name, options, checks, query, places, place, text)


def _constraints(script: Script, places: dict[str, Place]) -> tuple[Check, ...]:
    checks: list[Check] = []
    while not script.take(")"):
        if checks:
            script.expect(",")
        place = script.place
        script.expect("CONSTRAINT")
        name = script.name("the constraint's name")
        script.expect("EXPECT")
        script.expect("(")
        condition = script.until()
        if not condition:
            script.fail("the constraint's condition was to come")
        piece = script.piece(condition)
        places[f"check {name}"] = piece.place
        script.expect(")")
        where = next((side for side in ("input", "output") if script.take("ON", side.upper())), None)
        action = _action(script) if script.take("ON", "VIOLATION") else None
        checks.append(_check(name, piece.text, where, action, place))
    return tuple(checks)


def _action(script: Script) -> str:
    place, action = script.place, script.name("QUARANTINE, FAIL or WARN")
    if action.upper() not in ACTIONS:
        place.fail(f"ON VIOLATION {action}: write QUARANTINE, FAIL or WARN")
    return action.lower()


def _check(name: str, text: str, where: str | None, action: str | None, place: Place) -> Check:
    level = "batch" if has_aggregate(text) else "row"
    default = "fail" if level == "batch" else "quarantine"
    effective = action or default
    if effective == "quarantine" and level == "batch":
        place.fail(
            f"check {name!r} is about a batch, which cannot go to quarantine; write ON VIOLATION FAIL or WARN"
        )
    if effective == "quarantine" and where == "output":
        place.fail(
            f"check {name!r}: a row goes to quarantine where it comes in; leave ON OUTPUT out, or write ON VIOLATION "
            "FAIL or WARN"
        )
    try:
        return Check(name, text, on=where, level=level, action=effective)  # type: ignore[arg-type]
    except InvalidCheckError as error:
        place.fail(str(error), error)


def _options(script: Script) -> dict[str, Any]:
    script.expect("(")
    options: dict[str, Any] = {}
    while not script.take(")"):
        if options:
            script.expect(",")
        place = script.place
        name = script.name("an option").lower()
        if name not in OPTIONS:
            place.fail(f"WITH has no {name!r}; it has {', '.join(OPTIONS)}")
        script.expect("=")
        options[name] = argument(script)
    return options
