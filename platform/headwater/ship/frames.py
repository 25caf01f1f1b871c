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
_INCOMPLETE = re.compile(rb"[1-9][0-9]{0,6}(?:#[0-9a-f]{0,8})?\Z")
_SENDER = re.compile(rb"([^ \n,@]+)(?:,([0-9]{1,18}))?(?:@([0-9]{1,18}))?")
_NEXT = re.compile(rb"(?<=\n)[1-9][0-9]{0,6}(?:#[0-9a-f]{8})? [^ \n]+ ")
_LONGEST_BYTES = MAX_MESSAGE_BYTES + 200
"""What a frame's length is at most: a message that is longer was cut."""


class SpoolFrames(Framing):
    """The frames of a spool file. A last one that is torn was never accepted."""

    names_are_unique = True

    def blank(self, body: bytes) -> int:
        """Zeros are damage, which a power loss leaves in place of messages."""
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
        while start < len(body) and (record := _record_at(body, start, ends=ends)) is not None:
            start = record.end
            records.append(record._replace(position=position + record.position, end=position + record.end))
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
    """The frame that begins there, or the damaged bytes; None if the rest of the frame is not there, or not yet."""
    beginning = _BEGINNING.match(body, start)
    if beginning is None:
        return None if _INCOMPLETE.match(body, start) else _damaged(body, start, ends=ends)
    length = int(beginning[1])
    end = beginning.end() + length
    if length > _LONGEST_BYTES:
        return _damaged(body, start, ends=ends)
    if end < len(body):
        record = _message(body, beginning, end)
        if record is not None:
            return record
        if body[end : end + 1] == b"\n":
            return Record(start, end + 1, body[start : end + 1], is_damaged=True)
        return _damaged(body, start, ends=ends)
    if not ends:
        return None
    record = _message(body, beginning, len(body) - 1) if beginning[2] else None
    if record is None and _has_frames_to_the_end(body, start):
        return _damaged(body, start, ends=ends)
    return record


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
    """The damaged bytes up to the next frame. That is searched only here, as a message may hold what looks like one."""
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
    """Whether only whole frames follow, up to the end of the file. Then the length of a frame that seems to go beyond
    the end is damaged; no frames follow one that was cut off."""
    at = start + 1
    for each in _NEXT.finditer(body, at):
        if each.start() < at:
            continue
        at = each.start()
        while at < len(body) and (whole := _whole_at(body, at)) is not None:
            at = whole.end
        if at == len(body):
            return True
    return False
