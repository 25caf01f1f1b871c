"""The records of `backfill_model`, sent without end."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from backfill_model import is_of_a_visit, reply_to, value_of
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

_PAIR_EVERY_S = 0.8


class Feed(threading.Thread):
    """Records and replies to them that come without end, a pair at a time, one for each partition."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for made in admin.create_topics([NewTopic(topic, 2, 1) for topic in ("clicks", "replies")]).values():
            made.result(10)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self.sent = 0
        self._pairs(150)

    def run(self) -> None:
        while not self._stopping.wait(_PAIR_EVERY_S):
            with self._lock:
                self._pairs(1)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing comes while the block runs; the last record of each partition is one that every code keeps."""
        with self._lock:
            while not all(self._is_always_kept(n) for n in (self.sent - 1, self.sent - 2)):
                self._pairs(1)
            yield

    def stop(self) -> None:
        """Ends it."""
        self._stopping.set()
        self.join()

    def _pairs(self, count: int) -> None:
        for n in range(self.sent, self.sent + 2 * count):
            self._producer.produce("clicks", value_of(n), partition=n % 2)
            self._producer.produce("replies", reply_to(n), partition=n % 2)
        assert self._producer.flush(30) == 0
        self.sent += 2 * count

    @staticmethod
    def _is_always_kept(n: int) -> bool:
        return all(is_of_a_visit(n, code) for code in range(5))
