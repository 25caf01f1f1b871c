"""Where a client goes on that was told of a lost offset, when it asks for the earliest one.

The log still begins where it did. A client that begins anew at the earliest offset would come to the lost ones again
and again: after it was told of them, the earliest offset is for once the one behind them.

Most clients ask over the connection that they fetch with. Some have one for fetches alone: such a client is known by
its address and name as the one that has come to the same lost offsets twice, that does not ask there, and that asks
over another connection at once.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from headwater_broker.server.connection import Connection

_AT_ONCE_S = 5.0
_MOST = 1000
_TWICE = 2

_Key = tuple[str, bytes | None, str, int]


@dataclass(slots=True)
class _Notice:
    """A notice to a client that offsets are lost.

    Attributes:
        offset: Behind the lost ones.
        connection: The one that it fetches with.
        at_s: When it was sent last.
        times: How often.
    """

    offset: int
    connection: Connection
    at_s: float
    times: int = 1


class Resets:
    """The notices of one broker."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        """Begins with nobody.

        Args:
            now_s: A monotonic clock.
        """
        self._now_s = now_s
        self._notices: OrderedDict[_Key, _Notice] = OrderedDict()

    def tell(
        self, connection: Connection, client_id: bytes | None, topic: str, partition: int, offset: int
    ) -> None:
        """Notes that a client is told of lost offsets, and that `offset` is behind them."""
        connection.resets[topic, partition] = offset
        key = connection.host, client_id, topic, partition
        notice = self._notices.pop(key, None)
        if notice is None or notice.offset != offset:
            notice = _Notice(offset, connection, self._now_s())
        else:
            notice.times += 1
            notice.connection, notice.at_s = connection, self._now_s()
        self._notices[key] = notice
        if len(self._notices) > _MOST:
            self._notices.popitem(last=False)

    def forget(self, connection: Connection, topic: str, partition: int) -> None:
        """Forgets the notice of a client that reads on."""
        connection.resets.pop((topic, partition), None)

    def take(self, connection: Connection, client_id: bytes | None, topic: str, partition: int) -> int | None:
        """Where a client goes on that asks for the earliest offset; None: where the log begins."""
        key = connection.host, client_id, topic, partition
        offset = connection.resets.pop((topic, partition), None)
        if offset is not None:
            self._notices.pop(key, None)
            return offset
        notice = self._notices.get(key)
        if notice is None or notice.times < _TWICE or notice.connection is connection:
            return None
        if notice.connection.is_closed or self._now_s() - notice.at_s > _AT_ONCE_S:
            return None
        del self._notices[key]
        return notice.offset
