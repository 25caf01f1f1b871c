"""Cuts text into SQL statements at semicolons that are not inside quotes or comments."""

import re

# What a semicolon may hide in: strings, quoted names of both dialects, comments. The last alternative of each
# string takes an unfinished one to the end of the text.
_PARTS = re.compile(
    r"""
      (?P<opaque> '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` )
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<unfinished> ['"`] .* | /\* .* )
    | (?P<end> ; )
    | (?P<other> [^'"`;/-]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """Splits text into complete statements and the rest that no semicolon has ended yet.

    Comments are dropped, save that one keeps the words around it apart.

    Example:
        >>> split_statements("select ';' as a; select 2")
        (["select ';' as a"], 'select 2')
    """
    statements: list[str] = []
    current: list[str] = []
    for part in _PARTS.finditer(text):
        if part.lastgroup == "end":
            statements.append("".join(current).strip())
            current = []
        elif part.lastgroup == "comment":
            current.append(" ")
        else:
            current.append(part.group())
    return [statement for statement in statements if statement], "".join(current).strip()


def all_statements(text: str) -> list[str]:
    """Every statement of a text; the last one needs no semicolon."""
    complete, rest = split_statements(text)
    return [*complete, rest] if rest else complete
