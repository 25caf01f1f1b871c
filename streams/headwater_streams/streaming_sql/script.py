"""A SQL file as tokens, read one after the other, with the line of each."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, TypeVar

from pyspark.errors import PySparkException
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from headwater_streams.base.errors import JobDefinitionError, StreamsError
from headwater_streams.spark.spark_errors import first_sentence
from headwater_streams.streaming_sql.words import in_sql

Result = TypeVar("Result")
_TEXTS = (TokenType.STRING, TokenType.IDENTIFIER)


@dataclass(frozen=True)
class Place:
    """A line of a file."""

    path: Path
    line: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}"

    def fail(self, message: str, cause: BaseException | None = None) -> NoReturn:
        """Raises `JobDefinitionError` with the place before the message."""
        raise JobDefinitionError(f"{self}: {message}") from cause

    def of(self, call: Callable[[], Result]) -> Result:
        """What the call gives; its error gets this place.

        Raises:
            JobDefinitionError: Spark or the library refused.
        """
        try:
            return call()
        except PySparkException as error:
            self.fail(first_sentence(error), error)
        except StreamsError as error:
            self.fail(in_sql(str(error)), error)


@dataclass(frozen=True)
class Piece:
    """A stretch of SQL as it was written, and where it begins."""

    text: str
    place: Place


def word(token: Token) -> str:
    """A keyword or an operator in capitals; nothing for texts and quoted names."""
    return "" if token.token_type in _TEXTS else " ".join(token.text.upper().split())


def is_name(token: Token) -> bool:
    """Whether it can name a column, a table or an argument."""
    plain = token.text.replace("_", "a").isalnum() and not token.text[0].isdigit()
    return token.token_type is TokenType.IDENTIFIER or (token.token_type is not TokenType.STRING and plain)


class Script:
    """The tokens of a file and how far they are read."""

    def __init__(self, path: Path, text: str) -> None:
        """Takes a file apart.

        Raises:
            JobDefinitionError: A quote, a comment or a bracket is not closed, or a `x'...'` is none.
        """
        self.path, self._text, self._at = path, text, 0
        try:
            self._tokens = _tokens(text)
        except TokenError as error:
            message = "the text or comment that begins here is not closed; end it with its quote, or with */"
            if "Numeric" in str(error.__cause__):
                message = "x'...' takes hexadecimal digits"
            Place(path, _broken_line(text)).fail(message, error)
        self._require_pairs()

    def _require_pairs(self) -> None:
        """Sees to it that brackets come in pairs; otherwise what is read up to a bracket's end would end anywhere."""
        opened: list[Token] = []
        for token in self._tokens:
            now = word(token)
            if now == "(":
                opened.append(token)
            elif now == ")" and not opened:
                self.place_of(token).fail("the bracket ) closes none; take it out")
            elif now == ")":
                opened.pop()
            elif now == ";" and opened:
                break
        if opened:
            self.place_of(opened[-1]).fail("the bracket ( that opens here is not closed")

    @property
    def is_read(self) -> bool:
        """Whether nothing is left."""
        return self._at >= len(self._tokens)

    @property
    def next_word(self) -> str:
        """The next keyword or operator, see `word`; nothing at the end."""
        return "" if self.is_read else word(self._tokens[self._at])

    @property
    def place(self) -> Place:
        """Where the next token is."""
        return self.place_of(self._tokens[min(self._at, len(self._tokens) - 1)])

    @property
    def comes_name(self) -> bool:
        """Whether a name comes next."""
        return not self.is_read and is_name(self._tokens[self._at])

    @property
    def comes_text(self) -> bool:
        """Whether a 'text' comes next."""
        return not self.is_read and self._tokens[self._at].token_type is TokenType.STRING

    @property
    def position(self) -> int:
        """How many tokens are read."""
        return self._at

    def go_to(self, position: int) -> None:
        """Reads on at a position."""
        self._at = position

    def skip_statement(self) -> None:
        """Goes on behind the next semicolon."""
        while not self.is_read and not self.take(";"):
            self._at += 1

    def normal(self, begin: int, without: Collection[int] = ()) -> str:
        """What was read from a position on, without comments and in one line, and without the tokens at some
        positions."""
        tokens = (self._tokens[at] for at in range(begin, self._at) if at not in without)
        return " ".join(self._text[token.start : token.end + 1] for token in tokens)

    def place_of(self, token: Token) -> Place:
        """Where a token is."""
        return Place(self.path, token.line)

    def take(self, *words: str) -> bool:
        """Reads these words if they come next, all of them."""
        following = self._tokens[self._at : self._at + len(words)]
        if [word(token) for token in following] != list(words):
            return False
        self._at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Reads these words.

        Raises:
            JobDefinitionError: Something else comes next.
        """
        if not self.take(*words):
            self.fail(f"{' '.join(words)} was to come")

    def token(self, what: str) -> Token:
        """Reads a token.

        Raises:
            JobDefinitionError: The file ends.
        """
        if self.is_read:
            self.fail(f"{what} was to come")
        self._at += 1
        return self._tokens[self._at - 1]

    def name(self, what: str) -> str:
        """Reads a name.

        Raises:
            JobDefinitionError: Something else comes next.
        """
        if self.is_read or not is_name(self._tokens[self._at]):
            self.fail(f"{what} was to come")
        text: str = self.token(what).text
        return text

    def dotted(self, what: str) -> str:
        """Reads names with dots between them.

        Raises:
            JobDefinitionError: Something else comes next.
        """
        dotted = self.name(what)
        while self.take("."):
            dotted += "." + self.name(what)
        return dotted

    def until(self, *words: str) -> list[Token]:
        """Reads up to one of the words, a closing bracket or a semicolon, over what stands in brackets of its own."""
        begin, depth = self._at, 0
        while not self.is_read:
            now = self.next_word
            if not depth and (now in words or now in (")", ";")):
                break
            depth += {"(": 1, ")": -1}.get(now, 0)
            self._at += 1
        return self._tokens[begin : self._at]

    def piece(self, tokens: Sequence[Token], without: Collection[str] = ()) -> Piece:
        """Tokens as they were written, without those qualifiers (`d.carrier`) that `without` has."""
        text, at = "", tokens[0].start
        for index, token in enumerate(tokens[:-1]):
            before = word(tokens[index - 1]) if index else ""
            if token.text in without and is_name(token) and word(tokens[index + 1]) == "." and before != ".":
                text += self._text[at : token.start]
                at = tokens[index + 1].end + 1
        return Piece(text + self._text[at : tokens[-1].end + 1], self.place_of(tokens[0]))

    def fail(self, message: str) -> NoReturn:
        """Raises `JobDefinitionError` with the file, the line and what stands there."""
        if self.is_read:
            self.place.fail(f"{message}, and the file ends")
        self.place.fail(f"{message}, and there is {self._tokens[self._at].text!r}")


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = Dialect.get_or_raise("spark").tokenize(text)
    return tokens


def _broken_line(text: str) -> int:
    """The line from which on a text cannot be tokenized. The tokenizer itself reports a later one, as a missing quote
    turns the quotes of the following lines around."""
    begin, lines = 0, text.split("\n")
    for end in range(1, len(lines) + 1):
        try:
            _tokens("\n".join(lines[begin:end]))
        except TokenError:
            continue
        begin = end
    return begin + 1
