"""Bytes to records: the lines of a log. No I/O."""

import codecs
from typing import NamedTuple


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        position: The byte at which it begins.
        end: The byte at which the next one begins.
        value: Its bytes without what ends it; None if they are more than a record of the topic may have.
        peer: Who sent it; None for a line of a file.
        full_bytes: How many bytes a syslog message had, if `value` is only its beginning.
        received_ms: When a syslog message was received, in milliseconds since the epoch; None for a line of a file.
        is_damaged: The bytes are no message, but damage in place of one.
    """

    position: int
    end: int
    value: bytes | None
    peer: bytes | None = None
    full_bytes: int | None = None
    received_ms: int | None = None
    is_damaged: bool = False


class Framing:
    """How a file is divided.

    Attributes:
        newline: What ends a line.
        unit: How many bytes a character has at least; a line begins at a multiple of that.
        names_are_unique: Whether a file is identified by its name alone, even if its bytes have changed.
    """

    newline = b"\n"
    unit = 1
    names_are_unique = False

    def for_head(self, head: bytes) -> "Framing":
        """The framing of a file with these first bytes."""
        return self

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """The whole records at the beginning of a text.

        Args:
            body: The text: it begins where a line does.
            position: Where in the file that is.
            ends: The file will not grow: the rest is a record, too.
        """
        raise NotImplementedError

    def line_end(self, data: bytes) -> int:
        """Where the first line of a text ends; -1 if it does not."""
        at = data.find(self.newline)
        while at >= 0 and at % self.unit:
            at = data.find(self.newline, at + 1)
        return at + self.unit if at >= 0 else -1

    def blank(self, body: bytes) -> int:
        """How many bytes of NUL characters are before a line. No program wrote them: the file was allocated in advance,
        truncated under its program, or being written when the machine lost its power."""
        return _whole_units(len(body) - len(body.lstrip(b"\0")), self.unit)

    def before_blank(self, body: bytes) -> int:
        """Where the first line begins that has NUL characters before it, except the very first; -1 if none has."""
        blank, at = self.newline + bytes(self.unit), body.find(self.newline + bytes(self.unit))
        while at >= 0 and at % self.unit:
            at = body.find(blank, at + 1)
        return at + self.unit if at >= 0 else -1

    def written(self, body: bytes) -> int:
        """How long a text is without the NUL characters behind it."""
        length = len(body.rstrip(b"\0"))
        return min(length + -length % self.unit, len(body))


def _whole_units(count: int, unit: int) -> int:
    return count - count % unit


class Lines(Framing):
    """Lines, ended by a newline or by carriage return and newline, as they are or made UTF-8."""

    def __init__(self, encoding: str | None = None) -> None:
        """Prepare.

        Args:
            encoding: One in which a newline is the byte 0A; None to leave the bytes as they are.
        """
        self._encoding = encoding

    def for_head(self, head: bytes) -> Framing:
        """A byte order mark decides the encoding."""
        wide = next((each for mark, each in _MARKS if head.startswith(mark)), None)
        return self if wide is None else WideLines(wide)

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """See `Framing`."""
        lines = body.split(b"\n")
        rest = lines.pop()
        records = []
        for line in lines:
            end = position + len(line) + 1
            records.append(Record(position, end, line[:-1] if line.endswith(b"\r") else line))
            position = end
        if ends and rest:
            records.append(Record(position, position + len(rest), rest))
        if self._encoding is not None:
            return [each._replace(value=_as_utf8(each.value or b"", self._encoding)) for each in records]
        return records


class WideLines(Framing):
    """Lines of characters of two or four bytes, made UTF-8. The byte order mark is left out."""

    def __init__(self, encoding: str) -> None:
        """Takes the encoding, which says the order of the bytes."""
        self._encoding = encoding
        self.newline = "\n".encode(encoding)
        self.unit = len(self.newline)

    def for_head(self, head: bytes) -> Framing:
        """A byte order mark overrides the encoding."""
        wide = next((each for mark, each in _MARKS if head.startswith(mark)), self._encoding)
        return self if wide == self._encoding else WideLines(wide)

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """See `Framing`."""
        records = []
        start = at = 0
        while (newline_at := body.find(self.newline, at)) >= 0:
            at = newline_at + 1
            if newline_at % self.unit == 0:
                at = newline_at + self.unit
                records.append(self._record(body, position, start, at))
                start = at
        if ends and start < len(body):
            records.append(self._record(body, position, start, len(body)))
        return records

    def _record(self, body: bytes, position: int, start: int, end: int) -> Record:
        text = _decoded(body[start:end], self._encoding).removesuffix("\n").removesuffix("\r")
        if position + start == 0:
            text = text.removeprefix("\ufeff")
        return Record(position + start, position + end, text.encode("utf-8", "surrogatepass"))


# UTF-32's little-endian mark stands first, as it begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", **{each: each for _, each in _MARKS}}


def lines_of(encoding: str) -> Framing:
    """The framing of a file of lines in an encoding, if no byte order mark at its beginning overrides that.

    Args:
        encoding: One of Python's; "utf-8" leaves the bytes as they are.

    Raises:
        ValueError: There is no such encoding, or a newline is no byte 0A in it.
    """
    try:
        name = codecs.lookup(encoding).name
        has_ascii_newline = "\n".encode(name) == b"\n"
    except (LookupError, UnicodeError):
        name, has_ascii_newline = encoding, False
    has_ascii_newline &= name != "idna"  # it encodes domain names only
    if name in _WIDE:
        return WideLines(_WIDE[name])
    if not has_ascii_newline:
        raise ValueError(encoding)
    return Lines(None if name in ("utf-8", "ascii") else name)


def wide_encoding(head: bytes) -> str | None:
    """The encoding of a file whose first bytes look like UTF-16 without a byte order mark; None if they do not."""
    head = head[: _whole_units(min(len(head), 256), 2)]
    if len(head) < _TELLING_BYTES:
        return None
    first, second = (head[each::2].count(0) / len(head) * 2 for each in (0, 1))
    if first < 0.1 and second > 0.9:
        return "utf-16-le"
    return "utf-16-be" if first > 0.9 and second < 0.1 else None


_TELLING_BYTES = 32


def _as_utf8(value: bytes, encoding: str) -> bytes:
    return value.decode(encoding, "replace").encode("utf-8", "replace")


def _decoded(data: bytes, encoding: str) -> str:
    try:
        return data.decode(
            encoding, "surrogatepass"
        )  # keeps half of a pair, so that a job sees that it is no text
    except UnicodeDecodeError:
        return data.decode(encoding, "replace")
