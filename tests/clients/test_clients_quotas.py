"""Client quotas: set, described, and felt by those who are too fast."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.testing import FixedClock, RunningBroker, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire import apis

Entity = dict[str, str | None]


@pytest.fixture
def clock() -> FixedClock:
    """The broker's: what is used in its first moment counts fully, however long that takes here."""
    return FixedClock()


@pytest.fixture
def running(clock: FixedClock) -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "1"}, clock=clock) as started:
        yield started


@pytest.fixture
def client(running: RunningBroker) -> Iterator[WireClient]:
    with WireClient(running.bootstrap, "admin") as connected:
        yield connected


def alter(
    client: WireClient, entity: Entity, *, validate_only: bool = False, **values: float | None
) -> ErrorCode:
    """Sets quotas of one entity; None removes one."""
    answer = client.ask(
        apis.ALTER_CLIENT_QUOTAS,
        1,
        entries=[
            {
                "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                "ops": [
                    {"key": key, "value": value or 0.0, "remove": value is None}
                    for key, value in values.items()
                ],
            }
        ],
        validate_only=validate_only,
    )
    code: ErrorCode = answer.entries[0].error_code
    return code


def describe(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    answer = client.ask(
        apis.DESCRIBE_CLIENT_QUOTAS,
        1,
        components=[
            {"entity_type": kind, "match_type": match_type, "match": match}
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    assert answer.error_code is ErrorCode.none, answer
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


def test_quotas_are_kept_by_entity_and_found_by_filters(client: WireClient) -> None:
    entities: list[Entity] = [
        {"user": "alice"},
        {"user": None},
        {"client-id": "app/1"},
        {"user": "alice", "client-id": "app/1"},
        {"user": "alice", "client-id": None},
    ]
    for number, entity in enumerate(entities, 1):
        assert (
            alter(client, entity, producer_byte_rate=1000.0 * number, request_percentage=12.5)
            is ErrorCode.none
        )
    assert alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=10.0) is ErrorCode.none
    everything = describe(client)
    assert len(everything) == 6
    assert ({"user": "alice"}, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}) in everything
    assert [entity for entity, _ in describe(client, ("user", 0, "alice"))] == [
        {"user": "alice"},
        {"user": "alice", "client-id": None},
        {"user": "alice", "client-id": "app/1"},
    ]
    assert [entity for entity, _ in describe(client, ("user", 0, "alice"), strict=True)] == [
        {"user": "alice"}
    ]
    assert [entity for entity, _ in describe(client, ("user", 1, None), strict=True)] == [{"user": None}]
    assert [entity for entity, _ in describe(client, ("ip", 2, None))] == [{"ip": "127.0.0.1"}]
    assert (
        alter(client, {"user": "alice"}, producer_byte_rate=None, request_percentage=None) is ErrorCode.none
    )
    assert describe(client, ("user", 0, "alice"), strict=True) == []


@pytest.mark.parametrize(
    ("entity", "values"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "<default>"}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "client-id": "<default>"}, {"producer_byte_rate": 1.0}),
        ({"tenant": "x"}, {"producer_byte_rate": 1.0}),
        ({"user": "a", "ip": "127.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"ip": "no such host ever"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"no_such_quota": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": float("inf")}),
        ({"user": "a"}, {"producer_byte_rate": float("nan")}),
        ({"user": "a"}, {"request_percentage": float("inf")}),
        ({"user": "a"}, {"producer_byte_rate": 1e300}),
        ({"user": "a"}, {"connection_creation_rate": 1.0}),
        ({"user": "a"}, {"producer_byte_rate": 1.5}),
        ({"user": "a"}, {"producer_byte_rate": -1.0}),
    ],
)
def test_quotas_malformed_are_refused_and_change_nothing(
    client: WireClient, entity: Entity, values: dict[str, float]
) -> None:
    assert alter(client, entity, **values) is ErrorCode.invalid_request
    assert describe(client) == []


def test_quotas_validated_only_are_not_kept(client: WireClient) -> None:
    assert alter(client, {"user": "a"}, validate_only=True, producer_byte_rate=1.0) is ErrorCode.none
    assert describe(client) == []


def create(client: WireClient, name: str, partitions: int = 1, version: int = 7) -> Any:
    return client.ask(
        apis.CREATE_TOPICS,
        version,
        topics=[
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [],
            }
        ],
        timeout=5000,
        validate_only=False,
    )


def produce(client: WireClient, version: int = 9, size: int = 10_000) -> Any:
    records = bytes(build_batch([b"x" * size]))
    return client.ask(
        apis.PRODUCE,
        version,
        transactional_id=None,
        acks=1,
        timeout=1000,
        topic_data=[{"name": "orders", "partition_data": [{"index": 0, "records": records}]}],
    )


def milliseconds(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("version", [3, 7, 9, 11])
def test_quotas_producer_that_is_too_fast_is_told_and_made_to_wait(
    running: RunningBroker, client: WireClient, clock: FixedClock, version: int
) -> None:
    create(client, "orders")
    with WireClient(running.bootstrap, "greedy") as greedy, WireClient(running.bootstrap, "modest") as modest:
        assert milliseconds(produce(greedy, version)) == 0
        assert alter(client, {"client-id": "greedy"}, producer_byte_rate=50_000.0) is ErrorCode.none
        # The measured time is ten windows at least, so that ten seconds' worth are free.
        answers = [produce(greedy, version, 100_000) for _ in range(4)]
        assert [milliseconds(answer) for answer in answers] == [0] * 4
        started = time.monotonic()
        wait_ms = milliseconds(produce(greedy, version, 115_000))
        assert 300 < wait_ms < 350, "what is above 500,000 bytes, at 50,000 a second"
        assert milliseconds(produce(modest, version, 100_000)) == 0
        greedy.ask(apis.API_VERSIONS, 0)
        assert time.monotonic() - started > (wait_ms - 1) / 1000
        clock.advance(0.9)
        assert milliseconds(produce(greedy, version)) == 0
        assert alter(client, {"client-id": "greedy"}, producer_byte_rate=None) is ErrorCode.none
        assert milliseconds(produce(greedy, version, 1_000_000)) == 0


@pytest.mark.parametrize("version", [4, 11, 12])
def test_quotas_consumer_that_is_too_fast_gets_nothing_for_a_while_and_all_in_the_end(
    running: RunningBroker, client: WireClient, version: int
) -> None:
    create(client, "orders")
    for _ in range(8):
        produce(client, 9, 100_000)
    assert (
        alter(client, {"user": "ANONYMOUS", "client-id": "greedy"}, consumer_byte_rate=50_000.0)
        is ErrorCode.none
    )
    with WireClient(running.bootstrap, "greedy") as greedy:
        offset, waits = 0, 0
        while offset < 8:
            answer = fetch(greedy, version, offset)
            partitions = [each for topic in answer.responses for each in topic.partitions]
            if milliseconds(answer):
                waits += 1
                assert partitions == []
                assert alter(
                    client, {"user": "ANONYMOUS", "client-id": "greedy"}, consumer_byte_rate=1e9
                ) is (ErrorCode.none)
                continue
            (partition,) = partitions
            assert partition.records is not None
            assert len(partition.records) > 100_000
            offset += 1
    assert (offset, waits) == (8, 1)


def fetch(client: WireClient, version: int, offset: int) -> Any:
    return client.ask(
        apis.FETCH,
        version,
        replica_id=-1,
        max_wait=100,
        min_bytes=1,
        max_bytes=50_000_000,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[
            {
                "topic": "orders",
                "partitions": [
                    {
                        "partition": 0,
                        "fetch_offset": offset,
                        "log_start_offset": -1,
                        "partition_max_bytes": 100,
                        "current_leader_epoch": -1,
                        "last_fetched_epoch": -1,
                    }
                ],
            }
        ],
        forgotten_topics_data=[],
        rack_id="",
    )


def test_quotas_request_time_is_felt_by_every_api(running: RunningBroker, client: WireClient) -> None:
    assert alter(client, {"client-id": "greedy"}, request_percentage=1e-6) is ErrorCode.none
    with WireClient(running.bootstrap, "greedy") as greedy:
        answer = greedy.ask(
            *(apis.METADATA, 12),
            topics=None,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )
        # A window is the longest that anybody waits for this.
        assert milliseconds(answer) == 1000
    assert milliseconds(client.ask(apis.LIST_GROUPS, 4, states_filter=[])) == 0


def test_quotas_topics_beyond_the_credit_are_refused_or_slowed_down_for_old_clients(
    running: RunningBroker, client: WireClient
) -> None:
    assert alter(client, {"client-id": "admin"}, controller_mutation_rate=1.0) is ErrorCode.none
    first = create(client, "first", 14)
    assert first.topics[0].error_code is ErrorCode.none
    assert milliseconds(first) == 3000  # eleven windows of a second are free
    # The credit is the client's, not the connection's, which now waits.
    with WireClient(running.bootstrap, "admin") as another, WireClient(running.bootstrap, "admin") as old:
        refused = create(another, "second")
        assert refused.topics[0].error_code is ErrorCode.throttling_quota_exceeded
        assert milliseconds(refused) == 3000
        assert create(old, "second", version=5).topics[0].error_code is ErrorCode.none


def test_quotas_address_that_connects_too_often_is_kept_out_for_a_while(
    running: RunningBroker, client: WireClient
) -> None:
    assert alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=1.0) is ErrorCode.none
    clients = [WireClient(running.bootstrap, "another") for _ in range(15)]
    outside = 0
    for another in clients:
        try:
            another.ask(apis.API_VERSIONS, 0)
        except ConnectionError:
            outside += 1
        another.close()
    # Ten seconds' worth may come at once; who came before there was a limit does not count.
    assert outside == 5
    assert alter(client, {"ip": "127.0.0.1"}, connection_creation_rate=None) is ErrorCode.none
    with WireClient(running.bootstrap) as another:
        assert another.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none


def test_quotas_next_to_nothing_are_felt_as_long_as_an_answer_can_say(
    running: RunningBroker, client: WireClient
) -> None:
    """Milliseconds of an answer are an int32: neither is it passed, nor does the broker fail to answer."""
    assert alter(client, {"client-id": "least"}, controller_mutation_rate=5e-324) is ErrorCode.none
    assert alter(client, {"client-id": "slow"}, producer_byte_rate=1.0) is ErrorCode.none
    create(client, "orders")
    with WireClient(running.bootstrap, "least") as least, WireClient(running.bootstrap, "slow") as slow:
        assert milliseconds(create(least, "first", 1)) == 2**31 - 1
        assert milliseconds(produce(slow, 9, 3_000_000)) == 2**31 - 1
