"""Cuts text into SQL statements at the semicolons that end one."""

from collections.abc import Iterator, Sequence

from headwater.sql.lexer import Dialect, Part, parts_of

_LOOPS = frozenset({"IF", "WHILE", "LOOP", "REPEAT", "FOR"})
# Behind these a statement of a block begins.
_BEFORE_STATEMENT = frozenset({";", "BEGIN", "ATOMIC", "THEN", "ELSE", "DO", "LOOP", "REPEAT"})


def split_statements(text: str, dialect: Dialect = "duckdb") -> tuple[list[str], str]:
    """Splits text into complete statements and a rest that no semicolon has ended yet.

    A statement is unchanged, with its hints and comments; comments before and behind it are dropped.

    Example:
        >>> split_statements("select ';' as a; select 2 -- and so on")
        (["select ';' as a"], 'select 2')
        >>> split_statements("begin select 1; end; select 2", "spark")
        (['begin select 1; end'], 'select 2')
    """
    statements: list[str] = []
    for parts, is_ended in _statements(text, dialect):
        statement = text[parts[0].start : parts[-1].end] if parts else ""
        if not is_ended:
            return statements, statement
        if statement:
            statements.append(statement)
    return statements, ""


def all_statements(text: str, dialect: Dialect = "duckdb") -> list[str]:
    """Every statement of a text; the last one needs no semicolon."""
    complete, rest = split_statements(text, dialect)
    return [*complete, rest] if rest else complete


def _statements(text: str, dialect: Dialect) -> Iterator[tuple[Sequence[Part], bool]]:
    """The parts of each statement without its comments at both ends and its semicolon, and whether it had one."""
    parts: list[Part] = []
    block = _Block()
    for part in parts_of(text, dialect):
        if part.kind == "comment":
            continue
        if dialect == "spark":
            block.see(part)
        if part.upper == ";" and not block.is_open:
            yield parts, True
            parts, block = [], _Block()
        else:
            parts.append(part)
    yield parts, False


class _Block:
    """How deep a statement of Spark is in `BEGIN ... END`, whose semicolons end no statement of ours.

    The word behind an END says what it ends, so each word is judged when the next one is read.
    """

    def __init__(self) -> None:
        self._open: list[str] = []
        self._before, self._word = "", ""
        self._position = 0  # of the word in its statement, an inner one in a block
        self._declares = False

    @property
    def is_open(self) -> bool:
        """Whether a semicolon that comes now is inside a block."""
        return bool(self._open)

    def see(self, part: Part) -> None:
        """Notes the next part of the statement, which is not a comment."""
        now = part.upper or " "
        if self._word:
            self._judge(self._word, self._before, now)
            self._position += 1
            if self._open and self._word in _BEFORE_STATEMENT:
                self._position = 0
        self._before, self._word = self._word, now

    def _judge(self, word: str, before: str, after: str) -> None:
        begins = self._position == 0
        self._declares = word == "DECLARE" if begins else self._declares
        if word == "BEGIN":
            is_labelled = self._position == 2 and before == ":"
            is_handler = bool(self._open) and self._declares
            if (begins or is_labelled or is_handler) and after not in (";", "TRANSACTION", "WORK"):
                self._open.append(word)
        elif not self._open:
            return
        elif word == "CASE" and before not in ("END", "."):
            self._open.append(word)
        elif word == "END" and before != "." and after not in _LOOPS and (self._open[-1] == "CASE" or begins):
            self._open.pop()
