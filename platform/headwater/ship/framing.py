"""Bytes to records: lines of a log, and the counted frames of the syslog spool. No I/O.

A spool file is a sequence of frames: the length of what follows the first space, in decimal; a space; the sender's
address; a space; the message; a newline. The length counts from the address to the end of the message. Where only the
beginning of a message was taken, a comma and the length that it had stand behind the address. Then come an @ and when
the message was received, in milliseconds since the epoch; versions before wrote no time.

    38 192.0.2.7@1764409500000 <34>1 - - - hi\\n
    35 192.0.2.7,700@1764409500000 <34>1 -\\n
"""

from typing import NamedTuple, Protocol


class Record(NamedTuple):
    """One record of a file.

    Attributes:
        position: The byte at which it begins.
        end: The byte at which the next one begins.
        value: Its bytes without what ends it; None if they are more than a record of the topic may have.
        peer: Who sent it; None for a line of a file.
        full_bytes: How many bytes a syslog message had, if `value` is only its beginning.
        received_ms: When a syslog message was received, in milliseconds since the epoch; None for a line of a file.
    """

    position: int
    end: int
    value: bytes | None
    peer: bytes | None = None
    full_bytes: int | None = None
    received_ms: int | None = None


class Framing(Protocol):
    """How a file is divided."""

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """The whole records at the beginning of what stands at a position; with `ends`, what is left, too."""


class Lines:
    """Lines, ended by a newline or by carriage return and newline."""

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
        return records


class SpoolFrames:
    """The frames of a spool file. A last one that is torn was never accepted."""

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """See `Framing`."""
        records = []
        start = 0
        while (space := body.find(b" ", start, start + 12)) >= 0:
            end = space + 1 + int(body[start:space])
            if end >= len(body):
                break
            sender, _, message = body[space + 1 : end].partition(b" ")
            sender, _, received = sender.partition(b"@")
            peer, _, full = sender.partition(b",")
            full_bytes, received_ms = int(full) if full else None, int(received) if received else None
            records.append(
                Record(position + start, position + end + 1, message, peer, full_bytes, received_ms)
            )
            start = end + 1
        return records


def frame(
    peer: bytes, message: bytes, full_bytes: int | None = None, *, received_ms: int | None = None
) -> bytes:
    """One frame of a spool file.

    Args:
        peer: The sender's address.
        message: What was taken of its message.
        full_bytes: How many bytes the message had, if that is not all of it.
        received_ms: When it was received, in milliseconds since the epoch.

    Example:
        >>> frame(b"192.0.2.7", b"<34>hello", received_ms=1764409500000)
        b'33 192.0.2.7@1764409500000 <34>hello\\n'
    """
    sender = peer if full_bytes is None else b"%s,%d" % (peer, full_bytes)
    if received_ms is not None:
        sender = b"%s@%d" % (sender, received_ms)
    return b"%d %s %s\n" % (len(sender) + 1 + len(message), sender, message)
