"""One client's connection as the core sees it: answers in order, and no socket."""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from headwater_broker.log import FileRange
from headwater_broker.security import ANONYMOUS, Principal
from headwater_broker.wire.alike import ProduceForms

_NUMBERS = count(1)

Part = bytes | memoryview | FileRange
"""A piece of an answer: bytes, or a range of a log file that is never copied into this process if large."""


class Deferred:
    """A place in a connection's output whose answer is not known yet; everything behind it waits.

    Attributes:
        finish: Changes the answer when it comes; None nearly always.
        is_done: Whether the answer is there.
        parts: The answer.
    """

    __slots__ = ("_connection", "finish", "is_done", "parts")

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection
        self.is_done = False
        self.finish: Callable[[Sequence[Part]], Sequence[Part]] | None = None
        self.parts: Sequence[Part] = ()

    def resolve(self, parts: Sequence[Part]) -> None:
        """Puts the answer in its place; the second call and calls after the connection closed do nothing."""
        connection = self._connection
        if self.is_done:
            return
        self.is_done = True
        if connection.is_closed:
            return
        if connection.waiting_for is self:
            connection.waiting_for = None
        self.parts = parts if self.finish is None else self.finish(parts)
        connection.on_resolved(connection)


class Gate(Protocol):
    """Stands before the requests of a connection that must say who it is."""

    @property
    def is_open(self) -> bool:
        """Whether requests other than those to authenticate (again) pass now."""

    def intercept(self, connection: "Connection", frame: memoryview) -> bool:
        """Whether the gate has dealt with the frame; otherwise it is handled as every request."""


class Connection:
    """What is known of one client.

    Attributes:
        peer: Its address and port, for the log.
        principal: Who it is.
        listener: Name of the listener that it came through.
        gate: What looks at its frames first; None where everybody may come in.
        max_frame_bytes: The largest request that is taken.
        output: What is to be sent, in the order of the requests.
        waiting_for: The answer without which the next request may not be started; None nearly always.
        is_closed: No more requests are taken and nothing is sent.
        close_reason: Set by the core to have the connection closed at the end of the tick.
        on_resolved: Called when a deferred answer is there.
        forms: What its Produce requests look like.
        has_left: Whether the client has closed it, which is seen here before all that it sent has been read.
        resets: Where it may go on in partitions of which it was told that an offset is lost.
        number: Greater than that of every connection that was accepted before.
        debt_bytes: What this tick's requests cost so far; a connection with too much waits for the next tick, so
            that small requests with large answers can fill neither memory nor time.
        charged_until_s: When what its requests cost is forgotten, by `perf_counter`; see `turns`.
        later_s: What its last request took after it was begun.
    """

    __slots__ = (
        "charged_until_s",
        "close_reason",
        "debt_bytes",
        "forms",
        "gate",
        "has_left",
        "is_closed",
        "later_s",
        "listener",
        "max_frame_bytes",
        "number",
        "on_resolved",
        "output",
        "peer",
        "principal",
        "resets",
        "waiting_for",
    )

    def __init__(
        self,
        peer: str,
        on_resolved: Callable[["Connection"], None],
        *,
        listener: str = "PLAINTEXT",
        max_frame_bytes: int = 104_857_600,
    ) -> None:
        self.peer = peer
        self.principal: Principal = ANONYMOUS
        self.listener = listener
        self.gate: Gate | None = None
        self.max_frame_bytes = max_frame_bytes
        self.output: deque[Part | Deferred] = deque()
        self.waiting_for: Deferred | None = None
        self.is_closed = False
        self.close_reason: str | None = None
        self.on_resolved = on_resolved
        self.has_left: Callable[[], bool] = lambda: False
        self.number = next(_NUMBERS)
        self.debt_bytes = 0
        self.charged_until_s = 0.0
        self.later_s = 0.0
        self.forms = ProduceForms()
        self.resets: dict[tuple[str, int], int] = {}

    @property
    def host(self) -> str:
        """Its address."""
        return self.peer.rpartition(":")[0]

    def defer(self, *, exclusive: bool) -> Deferred:
        """Keeps a place for an answer that comes later.

        Args:
            exclusive: Start no other request of this connection before it is there, as Kafka does; otherwise
                later requests are started, and only their answers wait.
        """
        deferred = Deferred(self)
        self.output.append(deferred)
        if exclusive:
            self.waiting_for = deferred
        return deferred

    @property
    def awaits_answer(self) -> bool:
        """Whether it is this broker's turn: nothing can be sent before an answer is there."""
        head = self.output[0] if self.output else None
        return self.waiting_for is not None or (isinstance(head, Deferred) and not head.is_done)

    def take_ready(self) -> Part | None:
        """The next piece that can be sent, taken out of the output; None where there is none."""
        output = self.output
        while output:
            head = output[0]
            if isinstance(head, Deferred):
                if not head.is_done:
                    return None
                output.popleft()
                output.extendleft(reversed(head.parts))
                continue
            output.popleft()
            return head
        return None
