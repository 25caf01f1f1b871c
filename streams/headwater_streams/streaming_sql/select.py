"""Reads a SELECT over streams from a script: its inputs, its condition, its join or grouping."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from sqlglot.tokens import Token

from headwater_streams.base.condition import has_aggregate
from headwater_streams.base.names import folded, named_twice
from headwater_streams.operators.joins.interval import How
from headwater_streams.sources.inputs import TableInput, TopicInput, table
from headwater_streams.streaming_sql.calls import argument, call, items_of
from headwater_streams.streaming_sql.query import Group, Join, LateralView, Output, Query, Source
from headwater_streams.streaming_sql.script import Place, Script, is_name, word

_BOUND = re.compile(r"(?:session_|count_)?window[._](start|end|index)")
_CLAUSES = ("FROM", "LATERAL", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "UNION", "JOIN", "INNER")
_SIDES: tuple[How, ...] = ("left", "right", "full")
JOINS: Mapping[tuple[str, ...], How] = {
    ("JOIN",): "inner",
    ("INNER", "JOIN"): "inner",
    ("LEFT", "SEMI", "JOIN"): "semi",
    **{(side.upper(), *outer, "JOIN"): side for side in _SIDES for outer in ((), ("OUTER",))},
}
_BEFORE_JOIN = ("LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "SEMI", "ANTI")
_GENERATORS = ("explode", "posexplode", "inline")
_BESIDE_ROWS = ("LATERAL", "UNNEST", "EXPLODE", "POSEXPLODE", "INLINE")
"""What other engines, and newer Spark, have behind FROM for the elements of an array."""
_EXPLODED = "rows are exploded by LATERAL VIEW explode(...) t AS line, or in SELECT"
_WINDOWS = {"window": {2, 3}, "cumulate": {3}, "session_window": {2}, "count_window": {2}}
WINDOW_SHAPES = {
    "window": "window(time, '1 hour') or window(time, '1 hour', '10 minutes')",
    "cumulate": "cumulate(time, '1 hour', '1 day')",
    "session_window": "session_window(time, '30 minutes')",
    "count_window": "count_window(time, 100)",
}
REFUSED = {
    "HAVING": "HAVING would take away windows that are open; filter where the table is read",
    "ORDER BY": "a table has no order; sort where it is read",
    "LIMIT": "a stream has no end that LIMIT could speak of",
    "UNION": "rows are put under each other by UNION ALL; what comes twice is removed by WITH (dedup = ...)",
}


def read_select(script: Script) -> Query:
    """Reads a SELECT up to the statement's end, and those that UNION ALL adds.

    Raises:
        JobDefinitionError: It is none, or not one over streams; the message has the file and the line.
    """
    first, more = _read_one(script), []
    while True:
        place = script.place
        if not script.take("UNION", "ALL"):
            break
        more.append((_read_one(script), place))
    if script.next_word in REFUSED:
        script.place.fail(REFUSED[script.next_word])
    grouped = next((query.group for query in (first, *[query for query, _ in more]) if query.group), None)
    if more and grouped is not None:
        grouped.place.fail(
            "UNION ALL puts rows under each other; group them in a job that reads this one's table"
        )
    return replace(first, more=tuple(more))


def _read_one(script: Script) -> Query:
    script.expect("SELECT")
    if script.next_word == "DISTINCT":
        script.place.fail(
            "SELECT DISTINCT would have to keep every row for ever; remove what comes twice by "
            "WITH (dedup = by_key((a, b), within => '2 days'))"
        )
    items = _split(script)
    script.expect("FROM")
    sources = [_source(script)]
    how = None
    kind = next((kind for words, kind in JOINS.items() if script.take(*words)), None)
    if kind is not None:
        sources.append(_source(script))
        place = script.place
        script.expect("ON")
        how = _interval(script, place, [source.name for source in sources], kind)
        if script.next_word in (*_BEFORE_JOIN, "JOIN", "INNER", ","):
            script.place.fail(
                "a SELECT joins two streams; join the third in a statement that reads this one's table"
            )
    elif script.next_word in (*_BEFORE_JOIN, ","):
        _require_no_elements(script)
        script.fail(
            "two streams are joined by [LEFT | RIGHT | FULL | LEFT SEMI] JOIN ... ON ...; it was to come"
        )
    qualifiers = {source.name for source in sources}
    laterals = []
    while script.next_word == "LATERAL":
        if how is not None:
            script.place.fail(
                "rows are exploded before they are joined: in a statement whose table this one reads"
            )
        laterals.append(_lateral_view(script, qualifiers))
        qualifiers |= {laterals[-1].name} - {""}
    where = None
    if script.take("WHERE"):
        where = script.piece(script.until(*_CLAUSES) or script.fail("a condition was to come"), qualifiers)
    group = None
    if script.next_word == "GROUP BY":
        place = script.place
        script.expect("GROUP BY")
        group = _group(script, place, items, qualifiers)
    pieces = tuple(script.piece(item, qualifiers) for item in items)
    return Query(pieces, tuple(sources), how, where, group, laterals=tuple(laterals))


def _require_no_elements(script: Script) -> None:
    """Sees to it that what comes behind a comma or a join is no array's elements."""
    begin, place = script.position, script.place
    while script.next_word in (*_BEFORE_JOIN, ",", "OUTER", "JOIN"):
        script.token("an input")
    if script.next_word in _BESIDE_ROWS:
        place.fail(_EXPLODED)
    script.go_to(begin)


def _split(script: Script) -> list[list[Token]]:
    items = []
    while True:
        item = script.until(",", *_CLAUSES)
        if not item:
            script.fail("a column was to come")
        items.append(item)
        if not script.take(","):
            return items


def _source(script: Script) -> Source:
    place = script.place
    if script.next_word in _BESIDE_ROWS:
        place.fail(_EXPLODED)
    name = script.dotted("an input")
    declared = call(script, name, place) if script.take("(") else place.of(lambda: table(name))
    if not isinstance(declared, TopicInput | TableInput):
        place.fail(
            f"FROM {name}(...) is not an input; write topic('name', ...), stream(schema.table, ...) or a table"
        )
    alias = re.sub(r"\W", "_", declared.name.rpartition(":")[2].rpartition(".")[2])
    if script.take("AS") or (script.comes_name and script.next_word not in (*_CLAUSES, *_BEFORE_JOIN, "ON")):
        named = script.place
        alias = script.name("the input's name")
        if not re.fullmatch(r"\w+", alias, re.ASCII):
            named.fail(f"the input's name {alias!r} is part of a table's name; write letters, digits and '_'")
    return Source(alias, declared, place)


def _lateral_view(script: Script, qualifiers: Collection[str]) -> LateralView:
    """Reads `LATERAL VIEW [OUTER] explode(lines) t AS line`."""
    place = script.place
    if not script.take("LATERAL", "VIEW"):
        place.fail(_EXPLODED)
    is_outer = script.take("OUTER")
    function = script.name("a function that makes rows, explode(...)").lower()
    script.expect("(")
    arguments = script.until(")")
    if not arguments:
        script.fail("the array or map that is exploded was to come")
    text = script.piece(arguments, qualifiers).text
    script.expect(")")
    if function.removesuffix("_outer") not in _GENERATORS:
        place.fail(f"LATERAL VIEW takes {', '.join(_GENERATORS)}, and not {function}")
    if is_outer:
        function = f"{function.removesuffix('_outer')}_outer"
    name = ""
    if script.comes_name and script.next_word not in ("AS", *_CLAUSES):
        name = script.name("the view's name")
    names = []
    if script.take("AS") or (name and script.comes_name and script.next_word not in _CLAUSES):
        names.append(script.name("a column's name"))
        while script.take(","):
            names.append(script.name("a column's name"))
    return LateralView(name, f"{function}({text})", tuple(names), place)


def _interval(script: Script, place: Place, sides: Sequence[str], how: How) -> Join:
    on: list[str] = []
    times: tuple[str, str, str] | None = None
    in_brackets = script.take("(")
    while not times or script.take("AND"):
        if on and not times and not script.take("AND"):
            _fail_without_time(script, place, sides)
        side, name = _column(script, sides)
        if script.take("="):
            other = _column(script, sides)[1]
            if folded(other) != folded(name):
                place.fail(
                    f"{name} = {other}: both sides of a join have their key by the same name; rename one before"
                )
            on.append(name)
            continue
        if not script.take("BETWEEN"):
            _fail_without_time(script, script.place, sides)
        if times or side == sides[0]:
            place.fail(f"the one time in BETWEEN is that of {sides[1]}, which comes after {sides[0]}")
        begin = _column(script, sides)[1]
        script.expect("AND")
        if folded(_column(script, sides)[1]) != folded(begin) or not script.take("+"):
            script.fail(f"BETWEEN {begin} AND {begin} + INTERVAL ... was to come")
        times = (begin, name, str(argument(script)))
    if in_brackets:
        script.expect(")")
    if not on:
        place.fail("ON has no equal columns, a.k = b.k")
    return Join(tuple(on), *times, how, place)


def _fail_without_time(script: Script, place: Place, sides: Sequence[str]) -> NoReturn:
    first, second = sides
    place.fail(
        f"ON is keys that are equal, and the time within which {second} comes: ON {first}.k = {second}.k AND "
        f"{second}.time BETWEEN {first}.time AND {first}.time + INTERVAL 1 HOUR"
    )


def _column(script: Script, sides: Collection[str]) -> tuple[str, str]:
    """Reads a column: its qualifier, if it has one, and its name."""
    name = script.name("a column")
    if not script.take("."):
        return "", name
    if name not in sides:
        script.fail(f"{name!r} was to be one of {', '.join(sides)}")
    return name, script.name("a column")


def _group(
    script: Script, place: Place, items: Sequence[Sequence[Token]], qualifiers: Collection[str]
) -> Group:
    by: list[str] = []
    window: tuple[str, ...] = ()
    while not (by or window) or script.take(","):
        here, kind = script.place, script.next_word.lower()
        if kind in _WINDOWS and script.take(script.next_word, "("):
            # The time is a column: `Product.At` is one by that name, and p.At one of the input p.
            time = _column(script, qualifiers)[1] if script.comes_name else ""
            arguments = items_of(script, has_first=bool(time))
            if window or not time or 1 + len(arguments) not in _WINDOWS[kind]:
                here.fail(f"GROUP BY has one window, {WINDOW_SHAPES[kind]}")
            window = (kind, time, *map(str, arguments))
        else:
            by.append(_column(script, qualifiers)[1])
        if script.next_word == "(":
            script.fail(
                f"GROUP BY names columns, and a window, {', '.join(WINDOW_SHAPES.values())}; compute other things "
                "in a job before. A comma"
            )
    outputs = tuple(_output(script, item, by, bool(window), qualifiers) for item in items)
    twice = named_twice(output.name for output in outputs)
    if twice is not None:
        last = next(output for output in reversed(outputs) if output.name == twice)
        last.piece.place.fail(f"the result has two columns named {twice!r}; rename one")
    return Group(tuple(by), window, outputs, place)


def _output(
    script: Script, item: Sequence[Token], by: Sequence[str], has_window: bool, qualifiers: Collection[str]
) -> Output:
    words, alias, body = [word(token) for token in item], "", item
    if len(item) > 2 and words[-2] == "AS":
        alias, body = item[-1].text, item[:-2]
    elif is_name(item[-1]) and words[-1] != "END" and (words[-2:-1] == [")"] or _is_column(item[:-1])):
        alias, body = item[-1].text, item[:-1]
    piece = script.piece(body, qualifiers)
    name = _column_of(body, qualifiers) or piece.text
    # Of `window.start` the quotes make a column.
    bound = _BOUND.fullmatch(piece.text.lower() if "." in piece.text else name.lower())
    if has_window and bound:
        name = f"window_{bound[1]}"
    elif folded(name) not in map(folded, by):
        if not alias:
            piece.place.fail(_without_group(piece.text, by, is_column=_is_column(body)))
        is_named = folded(alias) in map(folded, by) and not has_aggregate(piece.text)
        return Output(alias, None, piece, is_named)
    return Output(alias or name, name, piece)


def _without_group(text: str, by: Sequence[str], *, is_column: bool) -> str:
    has = f"GROUP BY has {', '.join(by) or 'no column'}"
    if text == "*":
        return (
            f"SELECT * does not say what is grouped; name the columns, those of GROUP BY among them ({has})"
        )
    if is_column:
        return (
            f"{text} is not in GROUP BY, and no aggregate; {has}: add it there, or write max({text}) AS name"
        )
    return f"{text}: give it a name, {text} AS name"


def _column_of(tokens: Sequence[Token], qualifiers: Collection[str]) -> str | None:
    """The column that tokens name, if they name one of an input; None for anything else."""
    if not _is_column(tokens) or (len(tokens) == 3 and tokens[0].text not in qualifiers):
        return None
    return str(tokens[-1].text)


def _is_column(tokens: Sequence[Token]) -> bool:
    """Whether it is `name` or `qualifier.name`."""
    is_qualified = len(tokens) == 3 and word(tokens[1]) == "."
    return (is_qualified or len(tokens) == 1) and all(map(is_name, tokens[::2]))
