"""Fetch sessions: what is merged, what is news, who has to go."""

from __future__ import annotations

import random

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.server.fetch_sessions import FetchSession, FetchSessions
from headwater_broker.wire.fetch import FetchPartition, FetchRequest, FetchResult


def wants(*offsets: int) -> list[FetchPartition]:
    """Partition n of topic `t` from the n-th offset on."""
    return [FetchPartition(b"t", number, -1, offset, 1000) for number, offset in enumerate(offsets)]


def request(
    session_id: int,
    epoch: int,
    partitions: list[FetchPartition] | None = None,
    forgotten: tuple[tuple[bytes, int], ...] = (),
    replica_id: int = -1,
) -> FetchRequest:
    return FetchRequest(replica_id, 0, 1, 1 << 20, 0, session_id, epoch, partitions or [], forgotten)


def result(
    number: int, *, size: int = 0, high_watermark: int = 5, start: int = 0, error: int = 0
) -> FetchResult:
    return FetchResult(b"t", number, error, high_watermark, high_watermark, start, size)


def begun(
    sessions: FetchSessions, fetch: FetchRequest, *, version: int = 12, now_ms: int = 0
) -> FetchSession:
    session = sessions.begin(fetch, version, now_ms)
    assert isinstance(session, FetchSession)
    return session


@pytest.fixture
def sessions() -> FetchSessions:
    return FetchSessions(3, random.Random(1))


def test_session_merges_what_later_requests_say(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0, 0, 0)))
    assert session.whole(request(0, 0)).partitions == wants(0, 0, 0)
    again = request(session.session_id, 1, [FetchPartition(b"t", 1, -1, 7, 1000)], ((b"t", 0),))
    assert begun(sessions, again) is session
    assert [(each.partition, each.fetch_offset) for each in session.whole(again).partitions] == [
        (1, 7),
        (2, 0),
    ]


def test_session_tells_all_at_first_and_then_only_news(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0, 0, 0)))
    assert session.select([result(0), result(1), result(2)]) == [0, 1, 2]
    for epoch, results, news in (
        (1, [result(0), result(1), result(2)], []),
        (2, [result(0), result(1, high_watermark=6), result(2)], [1]),
        (3, [result(0, start=1), result(1, high_watermark=6), result(2)], [0]),
        (4, [result(0, start=1), result(1, high_watermark=6), result(2, error=3, high_watermark=-1)], [2]),
        (5, [result(0, start=1), result(1, high_watermark=6), result(2, error=3, high_watermark=-1)], [2]),
        (6, [result(0, start=1), result(1, high_watermark=6), result(2)], [2]),
        (7, [result(0, start=1), result(1, high_watermark=6), result(2)], []),
    ):
        begun(sessions, request(session.session_id, epoch))
        assert session.select(results) == news, epoch


def test_session_partition_with_records_goes_to_the_end_of_the_line(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0, 0, 0)))
    session.select([result(0, size=10), result(1), result(2)])
    assert [each.partition for each in session.whole(request(0, 0)).partitions] == [1, 2, 0]


def test_session_wrong_id_epoch_or_version_is_told(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0)))
    assert sessions.begin(request(session.session_id + 1, 1), 12, 0) is ErrorCode.fetch_session_id_not_found
    assert sessions.begin(request(session.session_id, 2), 12, 0) is ErrorCode.invalid_fetch_session_epoch
    assert sessions.begin(request(session.session_id, 1), 13, 0) is ErrorCode.fetch_session_topic_id_error


def test_session_ends_on_request_or_when_it_is_empty(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0)))
    assert sessions.begin(request(session.session_id, -1, wants(0)), 12, 0) is ErrorCode.none
    assert len(sessions) == 0
    session = begun(sessions, request(0, 0, wants(0)))
    assert sessions.begin(request(session.session_id, 1, [], ((b"t", 0),)), 12, 0) is ErrorCode.none
    assert len(sessions) == 0
    first = begun(sessions, request(0, 0, wants(0)))
    assert begun(sessions, request(first.session_id, 0, wants(0))) is not first
    assert len(sessions) == 1


def test_session_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    session = begun(sessions, request(0, 0, wants(0)))
    session.epoch = 2**31 - 1
    begun(sessions, request(session.session_id, 2**31 - 1))
    assert session.epoch == 1


def test_sessions_without_a_free_slot_are_refused_until_one_is_idle_or_smaller(
    sessions: FetchSessions,
) -> None:
    made = [begun(sessions, request(0, 0, wants(*[0] * size)), now_ms=0) for size in (2, 1, 3)]
    assert sessions.begin(request(0, 0, wants(0, 0)), 12, 120_000) is ErrorCode.none
    for session in made:
        begun(sessions, request(session.session_id, 1), now_ms=100_000)
    # All have had their time now, and none is idle: the smallest goes, for one that is larger.
    assert sessions.begin(request(0, 0, wants(0, 0)), 12, 120_001) is not ErrorCode.none
    assert sessions.begin(request(made[1].session_id, 2), 12, 120_001) is ErrorCode.fetch_session_id_not_found
    # Idle for too long: it goes for anyone.
    assert sessions.begin(request(0, 0, wants(0)), 12, 220_001) is not ErrorCode.none
    assert len(sessions) == 3


def test_sessions_of_followers_take_the_place_of_consumers(sessions: FetchSessions) -> None:
    for _ in range(3):
        begun(sessions, request(0, 0, wants(0, 0)))
    assert sessions.begin(request(0, 0, wants(0)), 12, 1) is ErrorCode.none
    follower = begun(sessions, request(0, 0, wants(0), replica_id=2), now_ms=1)
    assert follower.is_follower
    assert len(sessions) == 3


def test_sessions_of_too_many_partitions_together_are_refused(sessions: FetchSessions) -> None:
    large = begun(sessions, request(0, 0, wants(*[0] * 60_000)))
    assert sessions.begin(request(0, 0, wants(*[0] * 60_000)), 12, 0) is ErrorCode.none
    small = begun(sessions, request(0, 0, wants(0)))
    more = [FetchPartition(b"other", number, -1, 0, 1000) for number in range(60_000)]
    # It begins anew, and then gets no session; one that says nothing new goes on.
    found = sessions.begin(request(small.session_id, 1, more), 12, 0)
    assert found is ErrorCode.fetch_session_id_not_found
    assert begun(sessions, request(large.session_id, 1)) is large
    begun(sessions, request(large.session_id, 2, forgotten=tuple((b"t", number) for number in range(59_999))))
    begun(sessions, request(0, 0, wants(*[0] * 60_000)))
