"""Puts the library's sentences into SQL's words: what they call by its name in Python gets its name in SQL."""

import re

_ARGUMENTS = (
    "event_time|watermark|schema|within|columns|header|origin|max_ahead|format|cluster|registry|subject"
)
# The order matters: an earlier pattern is longer, or is part of a later one.
_REPLACEMENTS = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"write mode='update' and keys=\[\.\.\.\], the columns of by=", "write WITH (mode = 'update')"),
        (r"let it return hw\.latest\(\.\.\.\), or write target=hw\.scd1\(\.\.\.\)",
         "write WITH (mode = 'scd1', keys = (...), sequence_by = ...)"),
        (r"not one of \('append', 'update'\); slowly changing dimensions are hw\.scd1\(\.\.\.\) and hw\.scd2\(\.\.\.\)",
         "not one of 'append', 'update', 'scd1', 'scd2'"),
        (r"needs keys=\[\.\.\.\]", "needs WITH (keys = (...))"),
        (r"\bkeys=\[\.\.\.\]", "keys = (...)"),
        (r"sequence_by= is empty; name", "sequence_by is empty; write WITH (sequence_by = ...),"),
        (r"use hw\.scd([12])", r"write mode = 'scd\1'"),
        (r"write one job for each table", "write one statement for each table"),
        (r"in by=\[\.\.\.\]", "in GROUP BY"),
        (r"\bpartition_by=\[?'([^']*)'\]?", r"PARTITIONED BY (\1)"),
        (r"\bpartition_by\b=?", "PARTITIONED BY"),
        (r"\bcluster_by\b", "CLUSTER BY"),
        (r"\bcomments has", "COMMENT stands behind"),
        (r"\b(keep|keep_by)=('[^']*'|\.\.\.)", r"WITH (\1 = \2)"),
        (r"write keep= with it", "write keep = ... with it"),
        (r"use a window, as hw\.tumbling\(\.\.\.\), or hw\.grouped\(\.\.\.\)",
         "write GROUP BY with window(time, '1 hour'), or with WITH (state = 'unbounded')"),
        (r"@hw\.job\(name=('[^']*')\)", r"WITH (name = \1)"),
        (r"rename it, \.alias\('([^']*)'\)", r"rename it, AS \1"),
        (r"have a row-by-row job rename it", "have a SELECT without GROUP BY rename it"),
        (r"write name='another'", "write WITH (name = 'another')"),
        (r"leave dedup= out", "leave WITH (dedup = ...) out"),
        (r"make every= at most size", "let them begin at most their length apart"),
        (r"a list, \['([^']*)'\]", r"a list, (\1)"),
        (r"a row-by-row function", "a SELECT without GROUP BY"),
        (r"hw\.join\(\.\.\., how='(\w+)'\)", lambda match: f"{match[1].upper()} JOIN"),
        (r"write how='inner'", "write JOIN"),
        (r"\bhow='(\w+)'", lambda match: f"{match[1].upper()} JOIN"),
        (r"\b(?:with )?(mode|late|state)=('[^']*')", r"WITH (\1 = \2)"),
        (r"\bon='output'", "ON OUTPUT"),
        (r"\baction='(\w+)'", lambda match: f"ON VIOLATION {match[1].upper()}"),
        (r"only select and withColumn may follow (hw\.\w+\(\.\.\.\)|\.agg\(\.\.\.\))",
         "nothing may follow it but the columns of SELECT"),
        (r"hw\.union\(\.\.\.\)", "UNION ALL"),
        (r"\bhw\.join(\(\.\.\.\))?", "JOIN"),
        (r"\bhw\.(access_log|avro|by_\w+|csv|key_value|protobuf|syslog|template)\b", r"\1"),
        (r"\bhw\.count_window\b", "count_window"),
        (r"\bhw\.lookup\b", "hw.lookup in a job in Python"),
        (r"\b(tumbling|hopping): ", "window: "),
        (r"\bcumulative: ", "cumulate: "),
        (r"\bsession: ", "session_window: "),
        (r"\bjoin: ", "JOIN: "),
        (r"\bsize=('[^']*'|\S+) is", r"\1 is"),
        (r'\bevent_time="([^"]*)"', r"event_time => \1"),
        (rf"\b({_ARGUMENTS})=('[^']*'|[A-Z]\w*|\[[^\]]*\])", r"\1 => \2"),
        (rf"\b({_ARGUMENTS})=(?=[\s,;.:)]|$)", r"\1 => ..."),
    )
]  # fmt: skip


def in_sql(message: str) -> str:
    """A sentence of the library in SQL's words.

    Example:
        >>> in_sql("table 'a.b': mode 'update' needs keys=[...], the columns that name a row")
        "table 'a.b': mode 'update' needs WITH (keys = (...)), the columns that name a row"
    """
    for pattern, replacement in _REPLACEMENTS:
        message = pattern.sub(replacement, message)
    return message
