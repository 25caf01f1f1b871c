"""Sequential znodes that tell every broker about a change which no other watch of theirs would see."""

from __future__ import annotations

from collections.abc import Callable

from headwater_broker.coordination.zookeeper.session import ChildrenWatch, ZooKeeperSession

_RETAINED = 100
_PURGED_AT = 200


class NotificationLog:
    """A directory of numbered notifications, as Kafka keeps them under `/config/changes`.

    The last ones are kept, by number and not by age: a reader that was away for longer reads everything anew.
    """

    def __init__(self, session: ZooKeeperSession, path: str, prefix: str) -> None:
        self._session = session
        self._path = path
        self._prefix = prefix
        self._last: int | None = None

    def publish(self, data: bytes) -> None:
        """Adds a notification."""
        self._session.create(f"{self._path}/{self._prefix}", data, sequence=True)

    def watch(self, published: Callable[[list[bytes] | None], None]) -> ChildrenWatch:
        """Calls back with the notifications that are new since the last call, or None if some were missed."""

        def changed(children: list[str]) -> None:
            numbers = sorted(int(name.removeprefix(self._prefix)) for name in children)
            newest = numbers[-1] if numbers else -1
            last = newest if self._last is None else self._last
            new = [number for number in numbers if number > last]
            nodes = self._session.get_many(self._node(number) for number in new)
            self._purge(numbers)
            self._last = max(newest, last)
            if new:
                missed = new[0] != last + 1 or len(nodes) != len(new)
                published(None if missed else [znode.data for znode in nodes.values()])

        return self._session.watch_children(self._path, changed)

    def _node(self, number: int) -> str:
        return f"{self._path}/{self._prefix}{number:010d}"

    def _purge(self, numbers: list[int]) -> None:
        if len(numbers) > _PURGED_AT:
            for number in numbers[:-_RETAINED]:
                self._session.delete(self._node(number))
