"""One connection of the fuzzer's, from its first byte to its end."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections import deque

from wire_fuzz.answers import Answers, asked_in
from wire_fuzz.sessions import SASL, Session

_PAUSE_S = 0.0005
_ABORT = struct.pack("ii", 1, 0)
"""Closes with a reset, so that no port is kept for a minute."""


class Conversation:
    """Sends a session and reads the answers.

    Attributes:
        session: What is sent.
        asked: The requests in it.
        answers: What came.
        port: This end's, by which the broker's log names the connection.
        is_closed: Whether the broker has closed it.
    """

    def __init__(self, session: Session, port: int) -> None:
        self.session = session
        self.asked = list(asked_in(b"".join(session.writes), is_sasl=session.listener == SASL))
        self.answers = Answers(self.asked)
        self.is_closed = False
        self._sock = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setblocking(False)
        self._unsent = deque(map(memoryview, session.writes))
        self.port: int = self._sock.getsockname()[1]

    def advance(self, quiet_s: float) -> bool:
        """Sends and reads until all is answered, the broker closes, or nothing happens for so long.

        Returns:
            Whether it is over.

        Raises:
            WrongAnswerError: What came is no answer.
        """
        while not self.is_closed:
            is_answered = self.answers.head is None and not self.answers.has_raw
            if not self._unsent and (is_answered or self.session.leaves):
                return True
            ready = self._ready(quiet_s)
            if not ready:
                return self.answers.has_raw
            try:
                if ready & ~select.POLLOUT:
                    self._read()
                else:
                    self._write()
            except (ConnectionResetError, BrokenPipeError):
                self.is_closed = True
        return True

    def close(self, *, politely: bool = False) -> None:
        """Ends the connection."""
        if not politely:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _ABORT)
        self._sock.close()

    def _ready(self, within_s: float) -> int:
        """What can be done, as `poll` says it: `select` takes no descriptor above 1,023, and a long run has more."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        return next((events for _, events in poll.poll(within_s * 1000)), 0)

    def _read(self) -> None:
        data = self._sock.recv(1 << 18)
        if data:
            self.answers.receive(data)
        else:
            self.is_closed = True
            self.answers.end()

    def _write(self) -> None:
        piece = self._unsent[0]
        sent = self._sock.send(piece)
        if sent == len(piece):
            self._unsent.popleft()
            if self._unsent:
                time.sleep(_PAUSE_S)  # so that the pieces come one by one
        else:
            self._unsent[0] = piece[sent:]
