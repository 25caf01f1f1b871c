"""Cuts SQL into texts, comments, words and marks, as DuckDB or Spark does; their meaning is left to the engine.

Comments nest in both. In DuckDB only `E'...'` has backslashes, and `$tag$...$tag$` is a text, too. In Spark every text
except `r'...'` has backslashes, double quotes enclose texts, `/*+ ... */` is a hint, and a backslash at the end of a
`--` comment continues it on the next line.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Dialect = Literal["duckdb", "spark"]
Kind = Literal["comment", "word", "opaque", "mark", "unfinished"]

_SHARED = r"""
    | (?P<begin> /\* )
    | (?P<unfinished> ['"`] .* )
    | (?P<mark> . )
"""
_PARTS: dict[Dialect, re.Pattern[str]] = {
    "duckdb": re.compile(
        r"""
          (?P<space> \s+ )
        | (?P<comment> --[^\n\r]* )
        | (?P<opaque> [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*`
            | \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$ )
        | (?P<open_tag> \$(?:[^\W\d]\w*)?\$ .* )
        | (?P<word> [^\W\d][\w$]* | \d\w* )
        """
        + _SHARED,
        re.VERBOSE | re.DOTALL,
    ),
    "spark": re.compile(
        r"""
          (?P<space> \s+ )
        | (?P<comment> --(?:\\\n|[^\n\r])* )
        | (?P<opaque> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*` )
        | (?P<hint> /\*\+.*?\*/ )
        | (?P<word> [^\W\d]\w* | \d\w* )
        """
        + _SHARED,
        re.VERBOSE | re.DOTALL,
    ),
}
_KINDS: dict[str, Kind] = {"hint": "opaque", "open_tag": "unfinished", "tag": "opaque"}
# A hint inside of a comment opens no comment of its own in Spark.
_COMMENT_ENDS = {"duckdb": re.compile(r"/\*|\*/"), "spark": re.compile(r"/\*(?!\+)|\*/")}


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a text.

    Attributes:
        kind: `"opaque"` is a text, a quoted name or a hint; `"mark"` any other single character; `"unfinished"` a text
            or a comment that nothing closes, up to the end.
        start: Where it begins.
        end: Where it ends.
        upper: The word in capitals, or the mark; empty for the others.
    """

    kind: Kind
    start: int
    end: int
    upper: str = ""


def parts_of(text: str, dialect: Dialect) -> Iterator[Part]:
    """The parts of a text in order; what is between them is white space."""
    pattern, position = _PARTS[dialect], 0
    while match := pattern.match(text, position):
        start, position = match.span()
        group = str(match.lastgroup)
        if group == "begin":
            end = _comment_end(text, position, dialect)
            position = len(text) if end is None else end
            yield Part("comment" if end is not None else "unfinished", start, position)
        elif group in ("word", "mark"):
            yield Part("word" if group == "word" else "mark", start, position, match.group().upper())
        elif group != "space":
            yield Part(_KINDS.get(group) or ("comment" if group == "comment" else "opaque"), start, position)


def without_comments(text: str, dialect: Dialect) -> str:
    """The text with a blank in place of each comment."""
    result, position = "", 0
    for part in parts_of(text, dialect):
        if part.kind == "comment":
            result, position = f"{result}{text[position : part.start]} ", part.end
    return result + text[position:]


def _comment_end(text: str, position: int, dialect: Dialect) -> int | None:
    """Where the comment that begins before `position` ends; comments nest in both dialects."""
    depth = 1
    while depth and (match := _COMMENT_ENDS[dialect].search(text, position)):
        depth += 1 if match.group() == "/*" else -1
        position = match.end()
    return None if depth else position
