"""Bytes to messages: the counted frames of the syslog spool. No I/O.

A spool file is a sequence of frames: the length of what follows the first space, in decimal; a # and the CRC-32 of
that in hexadecimal digits; a space; the sender's address; a space; the message; a newline. The length counts from the
address to the end of the message. Where only the beginning of a message was taken, a comma and the length that it had
stand behind the address. Then come an @ and when the message was received, in milliseconds since the epoch. Versions
before wrote no checksum, and those before them no time.

    38#16cbcb97 192.0.2.7@1764409500000 <34>1 - - - hi\n
    35#2e52d69a 192.0.2.7,700@1764409500000 <34>1 -\n
"""

import re
from zlib import crc32

from headwater.ship.framing import Framing, Record
from headwater.ship.syslog import MAX_MESSAGE_BYTES

_BEGINNING = re.compile(rb"([1-9][0-9]{0,6})(?:#([0-9a-f]{8}))? ")
_BEGUN = re.compile(rb"[1-9][0-9]{0,6}(?:#[0-9a-f]{0,8})?\Z")
_SENDER = re.compile(rb"([^ \n,@]+)(?:,([0-9]{1,18}))?(?:@([0-9]{1,18}))?")
_NEXT = re.compile(rb"(?<=\n)[1-9][0-9]{0,6}(?:#[0-9a-f]{8})? [^ \n]+ ")
_LONGEST_BYTES = MAX_MESSAGE_BYTES + 200
"""What a frame's length is at most: a message that is longer was cut."""


class SpoolFrames(Framing):
    """The frames of a spool file. A last one that is torn was never accepted."""

    names_are_unique = True

    def blank(self, body: bytes) -> int:
        """Zeros are what a machine that lost its power leaves of messages."""
        return 0

    def before_blank(self, body: bytes) -> int:
        """A message may have any bytes in it."""
        return -1

    def written(self, body: bytes) -> int:
        """A message may have any bytes in it."""
        return len(body)

    def split(self, body: bytes, position: int, *, ends: bool) -> list[Record]:
        """See `Framing`; what is no frame, up to the next one, is a record that is damaged."""
        records: list[Record] = []
        start = 0
        while start < len(body) and (found := _record_at(body, start, ends=ends)) is not None:
            start = found.end
            records.append(found._replace(position=position + found.position, end=position + found.end))
        return records


def frame(
    peer: bytes, message: bytes, full_bytes: int | None = None, *, received_ms: int | None = None
) -> bytes:
    r"""One frame of a spool file.

    Args:
        peer: The sender's address.
        message: What was taken of its message.
        full_bytes: How many bytes the message had, if that is not all of it.
        received_ms: When it was received, in milliseconds since the epoch.

    Example:
        >>> frame(b"192.0.2.7", b"<34>hello", received_ms=1764409500000)
        b'33#a422660d 192.0.2.7@1764409500000 <34>hello\n'
    """
    sender = peer if full_bytes is None else b"%s,%d" % (peer, full_bytes)
    if received_ms is not None:
        sender = b"%s@%d" % (sender, received_ms)
    content = b"%s %s" % (sender, message)
    return b"%d#%08x %s\n" % (len(content), crc32(content), content)


def _record_at(body: bytes, start: int, *, ends: bool) -> Record | None:
    """The frame that begins there, or what is damaged; None where the rest of it is yet to come, or never came."""
    beginning = _BEGINNING.match(body, start)
    if beginning is None:
        return None if _BEGUN.match(body, start) else _damaged(body, start, ends=ends)
    length = int(beginning[1])
    end = beginning.end() + length
    if length > _LONGEST_BYTES:
        return _damaged(body, start, ends=ends)
    if end < len(body):
        found = _message(body, beginning, end)
        if found is not None:
            return found
        if body[end : end + 1] == b"\n":
            return Record(start, end + 1, body[start : end + 1], is_damaged=True)
        return _damaged(body, start, ends=ends)
    if not ends:
        return None
    found = _message(body, beginning, len(body) - 1) if beginning[2] else None
    if found is None and _has_frames_to_the_end(body, start):
        return _damaged(body, start, ends=ends)
    return found


def _message(body: bytes, beginning: re.Match[bytes], end: int) -> Record | None:
    """The message of a frame that ends there, if it does: by its checksum, or by the newline where it has none."""
    content, checksum = body[beginning.end() : end], beginning[2]
    sender, _, message = content.partition(b" ")
    parts = _SENDER.fullmatch(sender)
    is_whole = body[end : end + 1] == b"\n" if checksum is None else int(checksum, 16) == crc32(content)
    if parts is None or not is_whole:
        return None
    peer, full, received = parts.groups()
    return Record(
        beginning.start(),
        end + 1,
        message,
        peer,
        int(full) if full else None,
        int(received) if received else None,
    )


def _damaged(body: bytes, start: int, *, ends: bool) -> Record | None:
    """What is no frame, up to the next one. A message may hold what looks like one: it is looked for only here."""
    for each in _NEXT.finditer(body, start + 1):
        if _whole_at(body, each.start()) is not None:
            return Record(start, each.start(), body[start : each.start()], is_damaged=True)
    return Record(start, len(body), body[start:], is_damaged=True) if ends else None


def _whole_at(body: bytes, start: int) -> Record | None:
    """The whole frame that begins there, if one does."""
    beginning = _BEGINNING.match(body, start)
    if beginning is None or beginning.end() + int(beginning[1]) >= len(body):
        return None
    return _message(body, beginning, beginning.end() + int(beginning[1]))


def _has_frames_to_the_end(body: bytes, start: int) -> bool:
    """Whether frames follow that are all whole, up to the end of a file whose last frame seems to be longer than that:
    its length is damaged. Behind one that was cut off there are none."""
    at = start + 1
    for each in _NEXT.finditer(body, at):
        if each.start() < at:
            continue
        at = each.start()
        while at < len(body) and (found := _whole_at(body, at)) is not None:
            at = found.end
        if at == len(body):
            return True
    return False
