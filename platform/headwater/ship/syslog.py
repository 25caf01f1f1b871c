"""Syslog over a TCP stream divided into messages, as RFC 6587 has it. No I/O."""

import re

MAX_MESSAGE_BYTES = 512 << 10
"""The longest message. RFC 5424 asks receivers for 2048 bytes; rsyslog takes 8 KiB unless told otherwise."""

_COUNT = re.compile(rb"([1-9][0-9]{0,8}) <")
_MAYBE_COUNT = re.compile(rb"[1-9][0-9]{0,8}(?: |\Z)")


class FramingError(Exception):
    """A message is longer than MAX_MESSAGE_BYTES."""


class SyslogFramer:
    r"""Both framings of RFC 6587, told apart at each message.

    A message that begins with a number, a space and `<` is counted (section 3.4.1); any other ends with a newline or
    NUL (3.4.2). The end of its line is left out of a message.

    Example:
        >>> framer = SyslogFramer()
        >>> framer.feed(b"8 <34>one\n<34>two\n<34>th")
        [b'<34>one', b'<34>two']
        >>> framer.rest()
        [b'<34>th']
    """

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Takes what was received; returns the messages that are whole.

        Raises:
            FramingError: One is too long. The whole ones before it have been returned by then.
        """
        buffer = self._buffer + data
        messages: list[bytes] = []
        at = 0
        while at < len(buffer):
            counted = _COUNT.match(buffer, at)
            if counted is not None:
                start, end = counted.end() - 1, counted.end() - 1 + int(counted[1])
                if end - start > MAX_MESSAGE_BYTES:
                    return self._stop_at(buffer, at, messages)
                if end > len(buffer):
                    break
                messages.append(without_line_end(buffer[start:end]))
                at = end
                continue
            maybe = _MAYBE_COUNT.match(buffer, at)
            if maybe is not None and maybe.end() == len(buffer):
                break
            end = _line_end(buffer, at)
            if end < 0:
                if len(buffer) - at > MAX_MESSAGE_BYTES:
                    return self._stop_at(buffer, at, messages)
                break
            if message := without_line_end(buffer[at:end]):
                messages.append(message)
            at = end + 1
        self._buffer = buffer[at:]
        return messages

    def rest(self) -> list[bytes]:
        """What the sender had begun when it closed the connection: a message, if there is anything."""
        rest, self._buffer = self._buffer, b""
        counted = _COUNT.match(rest)
        rest = rest[counted.end() - 1 :] if counted is not None else rest
        return [rest] if rest else []

    def _stop_at(self, buffer: bytes, at: int, messages: list[bytes]) -> list[bytes]:
        self._buffer = buffer[at:]
        if messages:
            return messages
        raise FramingError


def without_line_end(data: bytes) -> bytes:
    """A message, as a datagram is one (RFC 5426), without the newline or NUL that some senders add."""
    return data.rstrip(b"\r\n\0")


def _line_end(buffer: bytes, at: int) -> int:
    newline, nul = buffer.find(b"\n", at), buffer.find(b"\0", at)
    return max(newline, nul) if min(newline, nul) < 0 else min(newline, nul)
