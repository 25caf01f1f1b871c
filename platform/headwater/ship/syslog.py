"""Syslog over a TCP stream divided into messages, as RFC 6587 has it. No I/O."""

import re
from typing import NamedTuple

MAX_MESSAGE_BYTES = 512 << 10
"""The longest message. RFC 5424 asks receivers for 2048 bytes; rsyslog takes 8 KiB unless told otherwise."""

MAX_COUNT_DIGITS = 9
"""The longest count of a message's bytes. rsyslog takes a count above 200000000 for none."""

# 20 digits are what an unsigned number of 64 bits has; a line may begin with more of them.
_COUNT = re.compile(rb"([1-9][0-9]{0,19}) <")
_MAYBE_COUNT = re.compile(rb"[1-9][0-9]{0,19}(?: |\Z)")
_BUFFER_BYTES = MAX_COUNT_DIGITS + 1 + MAX_MESSAGE_BYTES


class SyslogMessage(NamedTuple):
    """What a sender sent at once.

    Attributes:
        value: Its bytes without the end of its line.
        full_bytes: How many it had, if `value` is only its beginning; None if it is whole.
    """

    value: bytes
    full_bytes: int | None = None


class FramingError(Exception):
    """A count has more than MAX_COUNT_DIGITS digits: where the next message begins is not known.

    Args:
        messages: The whole ones before it.
    """

    def __init__(self, messages: list[SyslogMessage]) -> None:
        super().__init__(f"a count of more than {MAX_COUNT_DIGITS} digits")
        self.messages = messages


class SyslogFramer:
    r"""Both framings of RFC 6587, told apart at each message.

    A message that begins with a number, a space and `<` is counted (section 3.4.1); any other ends with a newline or
    NUL (3.4.2). The end of its line is left out of a message. One that is longer than MAX_MESSAGE_BYTES is cut at its
    end, as RFC 5424 (section 6.1) asks of receivers, and the rest of its frame is skipped.

    Example:
        >>> framer = SyslogFramer()
        >>> framer.feed(b"8 <34>one\n<34>two\n<34>th")
        [SyslogMessage(value=b'<34>one', full_bytes=None), SyslogMessage(value=b'<34>two', full_bytes=None)]
        >>> framer.rest()
        [SyslogMessage(value=b'<34>th', full_bytes=None)]
    """

    def __init__(self) -> None:
        self._buffer = b""
        self._skip = 0  # bytes of a message that was cut which are still to come, and are skipped
        self._dropped = 0  # bytes of the line in the buffer that came after that was full, and are dropped

    def feed(self, data: bytes) -> list[SyslogMessage]:
        """Takes what was received; returns the messages that have ended, or are as long as one may be.

        Raises:
            FramingError: What follows cannot be divided into messages.
        """
        buffer = self._buffer + data
        messages: list[SyslogMessage] = []
        at = self._skip
        while at < len(buffer):
            count_match = _COUNT.match(buffer, at)
            if count_match is not None:
                if len(count_match[1]) > MAX_COUNT_DIGITS:
                    self._buffer = b""
                    raise FramingError(messages)
                start, count = count_match.end() - 1, int(count_match[1])
                end = start + min(count, MAX_MESSAGE_BYTES)
                if end > len(buffer):
                    break
                messages.append(_message(buffer[start:end], count))
                at = start + count
                continue
            maybe = _MAYBE_COUNT.match(buffer, at)
            if maybe is not None and maybe.end() == len(buffer):
                break
            end = _line_end(buffer, at)
            if end < 0:
                break
            message = _message(buffer[at:end], end - at + self._dropped)
            self._dropped = 0
            if message.value:
                messages.append(message)
            at = end + 1
        self._skip = max(at - len(buffer), 0)
        self._buffer = buffer[at : at + _BUFFER_BYTES]
        self._dropped += max(len(buffer) - at - _BUFFER_BYTES, 0)
        return messages

    def rest(self) -> list[SyslogMessage]:
        """What the sender had begun when it closed the connection: a message, if there is anything."""
        rest, self._buffer = self._buffer, b""
        count_match = _COUNT.match(rest)
        if count_match is not None:
            return [SyslogMessage(rest[count_match.end() - 1 :], int(count_match[1]))]
        message = _message(rest, len(rest) + self._dropped)
        return [message] if message.value else []


def without_line_end(data: bytes) -> bytes:
    """A message, as a datagram is one (RFC 5426), without the newline or NUL that some senders add."""
    return data.rstrip(b"\r\n\0")


def _message(data: bytes, full_bytes: int) -> SyslogMessage:
    """A message by its first bytes, and by how many it has."""
    if full_bytes > MAX_MESSAGE_BYTES:
        return SyslogMessage(data[:MAX_MESSAGE_BYTES], full_bytes)
    return SyslogMessage(without_line_end(data))


def _line_end(buffer: bytes, at: int) -> int:
    newline, nul = buffer.find(b"\n", at), buffer.find(b"\0", at)
    return max(newline, nul) if min(newline, nul) < 0 else min(newline, nul)
