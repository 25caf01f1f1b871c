"""Arguments in SQL: texts, numbers, lists, and calls of the library's own functions by their names."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from sqlglot.tokens import TokenType

from headwater_streams.operators.dedup import by_key, by_offset, by_sequence
from headwater_streams.sources.avro_value import avro
from headwater_streams.sources.csv_value import csv
from headwater_streams.sources.inputs import table, topic
from headwater_streams.sources.parsers import access_log, key_value, syslog, template
from headwater_streams.sources.protobuf_value import protobuf
from headwater_streams.streaming_sql.script import Place, Script, is_name, word

FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "access_log": access_log,
    "avro": avro,
    "by_key": by_key,
    "by_offset": by_offset,
    "by_sequence": by_sequence,
    "csv": csv,
    "key_value": key_value,
    "protobuf": protobuf,
    "stream": table,
    "syslog": syslog,
    "template": template,
    "topic": topic,
}
_BEHIND_INTERVAL = (
    "AND", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "UNION", "JOIN", "INNER", "LEFT", "RIGHT", "FULL",
    "CROSS", "NATURAL", "LATERAL",
)  # fmt: skip
_EXPRESSIONS = ("event_time",)
"""The arguments that are SQL."""
_CONSTANTS = {"TRUE": True, "FALSE": False, "NULL": None}


def argument(script: Script) -> Any:
    """Reads an argument: `'text'`, `5`, `true`, `schema.table`, `(a, b)`, `array('a', 'b')` or a call; of
    `INTERVAL 1 HOUR` the text.

    Raises:
        JobDefinitionError: It is something else, or the call is wrong.
    """
    place = script.place
    if script.take("("):
        return items_of(script)
    if script.take("-"):
        return -argument(script)
    token = script.token("an argument")
    if token.token_type is TokenType.STRING:
        return token.text
    if token.token_type is TokenType.NUMBER:
        return place.of(lambda: _number(token.text))
    if token.text.upper() in _CONSTANTS:
        return _CONSTANTS[token.text.upper()]
    if word(token) == "INTERVAL":
        return " ".join(part.text for part in script.until(",", *_BEHIND_INTERVAL))
    if not is_name(token):
        place.fail(f"{token.text!r} is not an argument; write a 'text', a number, true, false or a list")
    if script.take("("):
        return items_of(script) if token.text.lower() == "array" else call(script, token.text, place)
    name = token.text
    while script.take("."):
        name += "." + script.name("a name behind the dot")
    return name


def call(script: Script, name: str, place: Place) -> Any:
    """Reads the arguments of a call behind its bracket, and calls the function.

    Raises:
        JobDefinitionError: There is no such function, or it refuses its arguments.
    """
    function = FUNCTIONS.get(name.lower())
    if function is None:
        place.fail(f"there is no function {name!r} here; there are {', '.join(FUNCTIONS)}")
    positional: list[Any] = []
    named: dict[str, Any] = {}
    while not script.take(")"):
        if positional or named:
            script.expect(",")
        value = argument(script)
        if script.take("=>"):
            key = str(value).lower()
            named[key] = _expression(script) if key in _EXPRESSIONS else argument(script)
        else:
            positional.append(value)
    signature = inspect.signature(function)
    try:
        signature.bind(*positional, **named)
    except TypeError as error:
        place.fail(f"{name}(...): {error}; it takes {_parameters_of(signature)}", error)
    return place.of(lambda: function(*positional, **named))


def _expression(script: Script) -> Any:
    """Reads SQL up to the next argument, `timestamp_millis(ts_ms)`, as its text; of one in quotes what is in these, and
    of a single word what `argument` gives."""
    tokens = script.until(",")
    if not tokens:
        script.fail("an argument was to come")
    if all(token.token_type is TokenType.STRING for token in tokens):
        return "'".join(
            token.text for token in tokens
        )  # the tokenizer ends a text at each of its quotes, '' too
    if len(tokens) > 1:
        return script.piece(tokens).text
    return _CONSTANTS.get(word(tokens[0]), tokens[0].text)


def _parameters_of(signature: inspect.Signature) -> str:
    """The names of the arguments, required ones first; their Python types mean nothing in SQL."""
    needed = [p.name for p in signature.parameters.values() if p.default is p.empty]
    return ", ".join(needed + [f"{name} => ..." for name in signature.parameters if name not in needed])


def items_of(script: Script, *, has_first: bool = False) -> tuple[Any, ...]:
    """Reads the arguments behind a bracket, up to the one that closes it.

    Args:
        script: The script.
        has_first: Whether the first was read already.

    Raises:
        JobDefinitionError: One is wrong.
    """
    items: list[Any] = []
    while not script.take(")"):
        if items or has_first:
            script.expect(",")
        items.append(argument(script))
    return tuple(items)


def _number(text: str) -> int | float:
    return int(text) if text.isdigit() else float(text)
