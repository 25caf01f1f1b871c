"""An event time as it is written: a column of the value, or an expression that is computed of each record.

    event_time="ordered_at"                                     the column
    event_time="timestamp_millis(ts_ms)"                        computed, a column more of the input: `event_time`
    event_time="timestamp_millis(ts_ms) AS ordered_at"          the same by another name
    event_time="to_timestamp(CAST(_headers['sent'] AS STRING))" computed of the record itself

The computed column is one of the input's: windows, joins, checks and tables know it by its name, and nothing else of
the library knows that it was computed.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.base.names import RECORD_COLUMNS, column_problem, is_reserved, may_name

EVENT_TIME = "event_time"
"""What the column of an expression is called that names none."""
_COLUMN = re.compile(r"(?!_|\d+$)\w+")
_QUOTED = re.compile(r"`((?:[^`]|``)+)`")
# Spark takes the name behind an expression with AS or without.
_NAMED = re.compile(
    r"(.*\S)\s+AS\s+(`(?:[^`]|``)+`|[^\W\d]\w*)|(.*(?:\)|\bEND))\s+(?!(?:END|AS)$)(`(?:[^`]|``)+`|[^\W\d]\w*)",
    re.DOTALL | re.IGNORECASE,
)
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`(?:[^`]|``)*`", re.DOTALL)
_CHANGING = re.compile(
    r"\b(?:(current_timestamp|current_date|current_time|localtimestamp)\b|"
    r"(now|curdate|rand|randn|random|uniform|uuid|shuffle|randstr|monotonically_increasing_id|spark_partition_id)\s*\(|"
    r"(unix_timestamp)\s*\(\s*\))",
    re.IGNORECASE,
)
# Texts that Spark takes for the time of day where they are cast to a time.
_MOMENT = re.compile(
    r"(?:\b(?:timestamp|timestamp_ltz|timestamp_ntz|date)\s*|\b(?:try_)?(?:cast|to_timestamp|to_date|timestamp|date)\s*\(\s*)"
    r"r?(?:'\s*(now|today|tomorrow|yesterday)\s*'|\"\s*(now|today|tomorrow|yesterday)\s*\")"
    r"|'\s*(now|today|tomorrow|yesterday)\s*'\s*::",
    re.IGNORECASE,
)
_UNITS = {"timestamp_seconds": 1, "timestamp_millis": 1_000, "timestamp_micros": 1_000_000}
_EPOCH = re.compile(rf"({'|'.join(_UNITS)})\s*\(\s*([^\W\d]\w*|`(?:[^`]|``)+`)\s*\)", re.IGNORECASE)
_WHOLE = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_FRACTIONS = ("FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True)
class EventTime:
    """An event time.

    Attributes:
        column: The column.
        expression: What it is computed of, in Spark's SQL; None where it is one of the value's.
    """

    column: str
    expression: str | None = None


def event_time_of(where: str, text: str, is_column: Callable[[str], bool]) -> EventTime:
    """What a declaration's event time is.

    Args:
        where: The input, for a sentence.
        text: As it was written.
        is_column: Whether the value has a column of exactly this name; asked of names that look like expressions.

    Example:
        >>> event_time_of("topic 'a'", "at", lambda name: False)
        EventTime(column='at', expression=None)
        >>> event_time_of("topic 'a'", "timestamp_millis(ts)", lambda name: False)
        EventTime(column='event_time', expression='timestamp_millis(ts)')
        >>> event_time_of("topic 'a'", "_timestamp AS sent_at", lambda name: False)
        EventTime(column='sent_at', expression='_timestamp')

    Raises:
        JobDefinitionError: It is no text, or is another one each time that it is computed.
    """
    if not isinstance(text, str) or not text.strip():
        raise JobDefinitionError(
            f"{where}: event_time={text!r} is not the name of a column, nor SQL over columns such as "
            "'timestamp_millis(ts_ms)'"
        )
    if is_column(text):
        return EventTime(text)
    text = text.strip()
    if _COLUMN.fullmatch(text):
        return EventTime(text)
    if _QUOTED.fullmatch(text):
        return EventTime(_unquoted(text))
    named = _NAMED.fullmatch(text)
    expression, column = (named[1] or named[3], named[2] or named[4]) if named else (text, EVENT_TIME)
    column = _unquoted(column)
    problem = column_problem(column) or (
        "begins with '_', which is reserved" if is_reserved(column) else None
    )
    if problem is not None:
        raise JobDefinitionError(
            f"{where}: the event time's name {column!r} {problem}; write AS another_name"
        )
    changing = _CHANGING.search(_TEXT.sub("''", expression)) or _MOMENT.search(expression)
    if changing is not None:
        name = next(filter(None, changing.groups()))
        raise JobDefinitionError(
            f"{where}: event_time={expression!r} has {name}, which is another one each time that a record is read; "
            "the record's own timestamp is _timestamp"
        )
    return EventTime(column, expression)


def epoch_of(expression: str) -> tuple[str, int] | None:
    """The column of a number of seconds, milliseconds or microseconds that a time is made of, and how many of them a
    second has; None for any other expression.

    Example:
        >>> epoch_of("timestamp_millis(ts_ms)"), epoch_of("timestamp_millis(ts_ms + 1)")
        (('ts_ms', 1000), None)
    """
    match = _EPOCH.fullmatch(expression.strip())
    return None if match is None else (_unquoted(match[2]), _UNITS[match[1].lower()])


def made_a_time(value: str, kind: str) -> str:
    """How a value of another type becomes an event time, as the end of a sentence; nothing where it is not known.

    Args:
        value: A column's name as SQL has it, or an expression.
        kind: Its type, as SQL has it.
    """
    base = kind.partition("(")[0]
    if base in _FRACTIONS:  # of which Spark makes seconds alone
        return (
            f'; write event_time="timestamp_seconds({value})" where it counts seconds, '
            f"timestamp_millis(CAST({value} AS BIGINT)) where milliseconds"
        )
    if base in _WHOLE:
        return (
            f'; write event_time="timestamp_millis({value})" where it counts milliseconds, timestamp_seconds or '
            "timestamp_micros where others"
        )
    if base == "STRING":
        return f"; write event_time=\"to_timestamp({value}, 'yyyy-MM-dd HH:mm:ss')\" with the pattern of its texts"
    if base == "BINARY":
        return f'; write event_time="to_timestamp(CAST({value} AS STRING))"'
    if base in ("DATE", "TIMESTAMP_NTZ"):
        return f'; write event_time="CAST({value} AS TIMESTAMP)"'
    return ""


def mismatch_hint(expression: str, kind: str) -> str:
    """What a sentence adds where Spark says that an argument in an event time has the wrong type; nothing where that is
    all that is known.

    Args:
        expression: The event time.
        kind: The argument's type, as SQL has it.
    """
    if any(may_name(expression, name) for name in RECORD_COLUMNS):
        return "; _key and the values of _headers are BINARY, CAST(_headers['name'] AS STRING) is a text"
    match = _EPOCH.fullmatch(expression.strip())
    if match is None or kind.partition("(")[0] not in (*_FRACTIONS, "STRING"):
        return ""
    return f"; it takes whole numbers: {match[1]}(CAST({match[2]} AS BIGINT))"


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
