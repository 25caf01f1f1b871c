"""Fetch sessions (KIP-227): a client that names its partitions once, and then only what changes. No I/O, no clock."""

import random
from collections.abc import Sequence

from kio.schema.errors import ErrorCode

from headwater_broker.wire.fetch import FetchPartition, FetchRequest, FetchResult

_FIRST_EPOCH = 0
_NO_EPOCH = -1
_MAX_EPOCH = 2**31 - 1
_IDS_FROM = 13
_EVICTION_MS = 120_000
"""Kafka's min.incremental.fetch.session.eviction.ms, which it lets nobody change either."""

_MOST_PARTITIONS = 100_000
"""Of all sessions: some 400 bytes each. Kafka counts sessions only, of which each may have any number."""

_Key = tuple[bytes, int]


class _SessionPartition:
    """A partition of a session: what the client requested, and the offsets of the last answer."""

    __slots__ = ("high_watermark", "log_start_offset", "requested")

    def __init__(self, requested: FetchPartition) -> None:
        self.requested = requested
        self.high_watermark = -1
        self.log_start_offset = -1


class FetchSession:
    """The partitions of one client.

    Attributes:
        session_id: What the client calls it by.
    """

    def __init__(self, session_id: int, request: FetchRequest, *, uses_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.is_follower = request.replica_id >= 0
        self.created_ms = self.used_ms = now_ms
        self.epoch = 1
        self._is_first = True
        self._partitions: dict[_Key, _SessionPartition] = {}
        self._merge(request)

    def __len__(self) -> int:
        return len(self._partitions)

    def _merge(self, request: FetchRequest) -> None:
        for partition in request.partitions:
            key = partition.topic, partition.partition
            entry = self._partitions.get(key)
            if entry is None:
                self._partitions[key] = _SessionPartition(partition)
            else:
                entry.requested = partition
        for key in request.forgotten:
            self._partitions.pop(key, None)

    def resume(self, request: FetchRequest, now_ms: int) -> None:
        """Takes an incremental request."""
        self._is_first = False
        self._merge(request)
        self.epoch = self.epoch + 1 if self.epoch < _MAX_EPOCH else 1
        self.used_ms = now_ms

    def whole(self, request: FetchRequest) -> FetchRequest:
        """The request as if it had named every partition."""
        return request._replace(partitions=[entry.requested for entry in self._partitions.values()])

    def select(self, results: Sequence[FetchResult]) -> list[int]:
        """Which of the results are to be sent: all at first, and then those that are news.

        Partitions that send records go to the end of the line, so that all have their turn.
        """
        chosen = []
        for index, result in enumerate(results):
            entry = self._partitions.get((result.topic, result.partition))
            if entry is None:
                continue  # forgotten while the fetch was parked
            is_news = (
                self._is_first
                or result.error_code != 0
                or result.records_size > 0
                or result.high_watermark != entry.high_watermark
                or result.log_start_offset != entry.log_start_offset
            )
            # An error is told again until it is gone, and what was told before it then counts as news.
            entry.high_watermark = -1 if result.error_code else result.high_watermark
            entry.log_start_offset = result.log_start_offset
            if is_news:
                chosen.append(index)
                if result.records_size > 0:
                    key = result.topic, result.partition
                    self._partitions[key] = self._partitions.pop(key)
        return chosen


class FetchSessions:
    """The sessions of one broker, as many as there are slots."""

    def __init__(self, slots: int, rng: random.Random | None = None) -> None:
        """Makes none.

        Args:
            slots: The most sessions (Kafka's max.incremental.fetch.session.cache.slots).
            rng: Where ids come from.
        """
        self._slots = slots
        self._rng = rng or random.Random()
        self._sessions: dict[int, FetchSession] = {}
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | ErrorCode:
        """Finds or makes the session of a request, or says what is wrong with the one that it names.

        Returns:
            `ErrorCode.none` where the request has no session: it says all itself.
        """
        if request.session_epoch in (_FIRST_EPOCH, _NO_EPOCH):
            self._end(request.session_id)
            if request.session_epoch == _NO_EPOCH or not request.partitions:
                return ErrorCode.none
            return self._make(request, version, now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.uses_ids != (version >= _IDS_FROM):
            return ErrorCode.fetch_session_topic_id_error
        before = len(session)
        session.resume(request, now_ms)
        self._partitions += len(session) - before
        if not len(session):
            self._end(request.session_id)
            return ErrorCode.none
        if self._partitions > _MOST_PARTITIONS and len(session) > before:
            # The client has to name all partitions again, and gets no session for them.
            self._end(request.session_id)
            return ErrorCode.fetch_session_id_not_found
        return session

    def _make(self, request: FetchRequest, version: int, now_ms: int) -> FetchSession | ErrorCode:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = self._rng.randrange(1, 2**31)
        session = FetchSession(session_id, request, uses_ids=version >= _IDS_FROM, now_ms=now_ms)
        while len(self._sessions) >= self._slots or self._partitions + len(session) > _MOST_PARTITIONS:
            if not self._evict_for(session, now_ms):
                return ErrorCode.none
        self._sessions[session_id] = session
        self._partitions += len(session)
        return session

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session)

    def _evict_for(self, new: FetchSession, now_ms: int) -> bool:
        """Makes room: the session that was silent for longest, or a smaller one that has had its time."""
        if not self._sessions:
            return False
        idlest = min(self._sessions.values(), key=lambda session: session.used_ms)
        if now_ms - idlest.used_ms <= _EVICTION_MS:
            old = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > _EVICTION_MS or (new.is_follower and not session.is_follower)
            ]
            if not old:
                return False
            idlest = min(old, key=_worth)
            if _worth(new) < _worth(idlest):
                return False
        self._end(idlest.session_id)
        return True


def _worth(session: FetchSession) -> tuple[bool, int]:
    return session.is_follower, len(session)
