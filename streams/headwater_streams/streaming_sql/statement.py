"""One `CREATE STREAMING TABLE` statement, read into what it declares."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlglot.tokens import TokenType

from headwater_streams.base.check import REMOVING, Check, InvalidCheckError, default_action
from headwater_streams.base.condition import has_aggregate
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.streaming_sql.calls import argument
from headwater_streams.streaming_sql.query import Query
from headwater_streams.streaming_sql.rules import rule_in
from headwater_streams.streaming_sql.script import Place, Script
from headwater_streams.streaming_sql.select import read_select

OPTIONS = (
    "mode", "keys", "dedup", "late", "name", "state", "sequence_by", "apply_as_deletes", "except_columns",
    "track_history_columns", "on_error", "max_errors", "keep", "keep_by",
)  # fmt: skip
_CLAUSES = {
    "PARTITIONED BY": "partition_by", "CLUSTER BY": "cluster_by", "TBLPROPERTIES": "properties", "COMMENT": "comment",
}  # fmt: skip
"""What says how the table is laid out, as Spark writes it, with the names of the arguments of `hw.delta`."""
_OF_AGE = ("keep", "keep_by")
ACTIONS = ("QUARANTINE", "DROP", "FAIL", "WARN")


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
        text: All of it that decides its rows, in one line, without comments.
        layout: How the table is laid out: arguments of `hw.delta`.
    """

    table: str
    options: Mapping[str, Any]
    checks: tuple[Check, ...]
    query: Query
    places: Mapping[str, Place]
    place: Place
    text: str
    layout: Mapping[str, Any] = field(default_factory=dict)


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
    of_layout: set[int] = set()
    comments: dict[str, str] = {}
    opening = script.position
    checks = _constraints(script, places, comments, of_layout) if script.take("(") else ()
    if comments and not checks:
        of_layout |= set(range(opening, script.position))
    places["target"] = script.place if script.next_word == "WITH" else place
    options, layout = _clauses(script, places, of_layout)
    if comments:
        layout["comments"] = comments
    script.expect("AS")
    query = read_select(script)
    if query.group is not None and not query.group.window and options.get("state") != "unbounded":
        query.group.place.fail(
            "GROUP BY without a window keeps every key for ever; say so, WITH (state = 'unbounded'), or add "
            "window(time, '1 hour')"
        )
    text = script.normal(begin, of_layout)
    if not script.take(";") and not script.is_read:
        script.fail("the statement's end, or a clause that a stream has, was to come")
    places |= {f"input {source.name}": source.place for source in query.inputs}
    return Statement(table_name, options, checks, query, places, place, text, layout)


def _clauses(
    script: Script, places: dict[str, Place], of_layout: set[int]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Reads what stands between the table's columns and AS, in any order: the options, and how the table is laid out.

    Args:
        script: The script.
        places: Gets the place of WITH.
        of_layout: Gets the positions of the tokens that say how the table is laid out.
    """
    options: dict[str, Any] = {}
    layout: dict[str, Any] = {}
    met: set[str] = set()
    while script.next_word != "AS" and not script.is_read:
        begin, place = script.position, script.place
        clause = next(
            (
                each
                for each in ("WITH", "USING", *_CLAUSES)
                if script.take(each) or script.take(*each.split())
            ),
            "",
        )
        if not clause:
            script.fail(f"AS was to come, or one of WITH, {', '.join(_CLAUSES)}")
        if clause in met:
            place.fail(f"{clause} stands twice")
        met.add(clause)
        if clause == "WITH":
            places["target"] = place
            options = _options(script, of_layout)
            if options and options.keys() <= set(_OF_AGE):
                of_layout |= set(range(begin, script.position))
            continue
        if clause == "USING":
            script.expect("DELTA")
        else:
            layout[_CLAUSES[clause]] = _clause(script, clause)
            places.setdefault("layout", place)
        of_layout |= set(range(begin, script.position))
    layout |= {name: options.pop(name) for name in _OF_AGE if name in options}
    return options, layout


def _clause(script: Script, clause: str) -> Any:
    if clause == "COMMENT":
        return _text(script, "the comment, a 'text',")
    script.expect("(")
    if clause == "TBLPROPERTIES":
        return _properties(script)
    columns: list[str] = []
    while not script.take(")"):
        if columns:
            script.expect(",")
        name = script.name("a column")
        if script.take("("):
            name += f"({script.dotted('the time that the partition is computed of')})"
            script.expect(")")
        columns.append(name)
        if script.next_word not in (",", ")"):
            script.fail(f"the next column of {clause} was to come; a column's type is that of the SELECT")
    return tuple(columns)


def _properties(script: Script) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    while not script.take(")"):
        if properties:
            script.expect(",")
        place, name = script.place, str(argument(script))
        if name in properties:
            place.fail(f"the property {name!r} stands twice")
        script.expect("=")
        properties[name] = argument(script)
    return properties


def _text(script: Script, what: str) -> str:
    place, token = script.place, script.token(what)
    if token.token_type is not TokenType.STRING:
        place.fail(f"{what} was to come, and there is {token.text!r}")
    text: str = token.text
    while script.comes_text:  # 'it''s' is two tokens, and 'a' 'b' is one text to Spark
        following = script.token(what)
        text += ("'" if following.start == token.end + 1 else "") + following.text
        token = following
    return text


def _constraints(
    script: Script, places: dict[str, Place], comments: dict[str, str], of_layout: set[int]
) -> tuple[Check, ...]:
    """Reads what stands in the brackets behind the table's name: constraints, and comments on columns.

    Args:
        script: The script.
        places: Gets the places of the constraints' conditions.
        comments: Gets the comments, by their columns.
        of_layout: Gets the positions of the comments' tokens.
    """
    checks: list[Check] = []
    while not script.take(")"):
        begin = script.position
        if checks or comments:
            script.expect(",")
        place = script.place
        if script.next_word != "CONSTRAINT":
            name = script.name("CONSTRAINT, or a column with its COMMENT,")
            if script.next_word != "COMMENT":
                script.fail(f"the COMMENT of the column {name!r} was to come; its type is that of the SELECT")
            script.expect("COMMENT")
            if name in comments:
                place.fail(f"the column {name!r} has two comments")
            comments[name] = _text(script, "the comment, a 'text',")
            of_layout |= set(range(begin, script.position))
            continue
        if not checks:  # the comma behind comments only
            of_layout |= set(range(begin, script.position))
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
        at_most = _bound(script, "AT MOST") if script.take("AT", "MOST") else None
        warn_over = _bound(script, "WARN OVER") if script.take("WARN", "OVER") else None
        bounds = {"at_most": at_most, "warn_over": warn_over}
        checks.append(_check(name, piece.text, where, action, bounds, place))
    return tuple(checks)


def _action(script: Script) -> str:
    place, action = script.place, script.name("QUARANTINE, DROP, FAIL or WARN")
    if action.upper() not in ACTIONS:
        place.fail(f"ON VIOLATION {action}: write QUARANTINE, DROP, FAIL or WARN")
    return action.lower()


def _bound(script: Script, words: str) -> str | int:
    """The bound behind AT MOST or WARN OVER: `1 %`, `1 PERCENT` or `10 ROWS`."""
    place, number = script.place, script.token("a number").text
    unit = script.token("%, PERCENT or ROWS").text.upper()
    if unit in ("%", "PERCENT"):
        return f"{number} %"
    if unit not in ("ROW", "ROWS") or not number.isdecimal():
        place.fail(f"{words} {number} {unit}: write {words} 1 PERCENT, or {words} 10 ROWS")
    return int(number)


def _check(
    name: str,
    text: str,
    where: str | None,
    action: str | None,
    bounds: Mapping[str, str | int | None],
    place: Place,
) -> Check:
    try:
        rule = rule_in(text)
    except (InvalidCheckError, JobDefinitionError) as error:  # a duration is a definition's
        place.fail(f"check {name!r}: {error}", error)
    level = "batch" if has_aggregate(text) else "row"
    if rule is not None:
        level = rule.level
    effective = action or ("fail" if rule is None and level == "batch" else default_action(rule))
    if effective in REMOVING and level == "batch":
        deed = "go to quarantine" if effective == "quarantine" else "be dropped"
        place.fail(f"check {name!r} is about a batch, which cannot {deed}; write ON VIOLATION FAIL or WARN")
    if effective in REMOVING and where == "output":
        deed = "goes to quarantine" if effective == "quarantine" else "is dropped"
        place.fail(
            f"check {name!r}: a row {deed} where it comes in; leave ON OUTPUT out, or write ON VIOLATION FAIL or WARN"
        )
    try:
        of_check: dict[str, Any] = {"on": where, "level": level, "action": effective, **bounds}
        return Check(name, rule or text, **of_check)
    except InvalidCheckError as error:
        place.fail(str(error), error)


def _options(script: Script, of_layout: set[int]) -> dict[str, Any]:
    script.expect("(")
    options: dict[str, Any] = {}
    while not script.take(")"):
        begin = script.position
        if options:
            script.expect(",")
        if options.keys() <= set(_OF_AGE):  # the comma behind options of the age only
            of_layout |= set(range(begin, script.position))
        place = script.place
        name = script.name("an option").lower()
        if name not in OPTIONS:
            place.fail(f"WITH has no {name!r}; it has {', '.join(OPTIONS)}")
        script.expect("=")
        options[name] = argument(script)
        if name in _OF_AGE:
            of_layout |= set(range(begin, script.position))
    return options
