"""The transaction APIs on the wire: every version, and Kafka's code for every refusal."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest
from kio.records.readers import read_batch
from kio.schema.errors import ErrorCode

from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core
from headwater_broker.server.request_memory import RequestMemory
from headwater_broker.server.transport import Channel
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire import APIS
from headwater_broker.wire.apis import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FETCH,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    LIST_GROUPS,
    LIST_OFFSETS,
    LIST_TRANSACTIONS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)

PROPERTIES = {
    "transaction.state.log.num.partitions": "2",
    "transaction.max.timeout.ms": "60000",
    "offset.metadata.max.bytes": "10",
}
UNKNOWN_PRODUCER = (12345, 0)


class Client:
    """Requests of one transactional producer."""

    def __init__(self, running: RunningBroker, transactional_id: str) -> None:
        self.wire = WireClient(running.bootstrap)
        self.transactional_id = transactional_id
        self.producer = (-1, -1)
        self.sequence = 0

    def find(self) -> None:
        self.wire.ask(FIND_COORDINATOR, 6, key_type=1, coordinator_keys=[self.transactional_id])

    def init(self, version: int = 5, **fields: Any) -> ErrorCode:
        values = {"transactional_id": self.transactional_id, "transaction_timeout": 10_000} | fields
        values.setdefault("producer_id", -1)
        values.setdefault("producer_epoch", -1)
        answer = self.wire.ask(INIT_PRODUCER_ID, version, **values)
        if answer.error_code is ErrorCode.none:
            self.producer = (answer.producer_id, answer.producer_epoch)
            self.sequence = 0
        return answer.error_code

    def identity(self, producer: tuple[int, int] | None) -> dict[str, Any]:
        producer_id, epoch = producer or self.producer
        return {
            "transactional_id": self.transactional_id,
            "producer_id": producer_id,
            "producer_epoch": epoch,
        }

    def add(
        self,
        *partitions: tuple[str, int],
        version: int = 3,
        producer: tuple[int, int] | None = None,
        verify_only: bool = False,
    ) -> dict[tuple[str, int], ErrorCode]:
        topics = [{"name": topic, "partitions": [index]} for topic, index in partitions]
        identity = self.identity(producer)
        if version < 4:
            fields = {f"v3_and_below_{name}": value for name, value in identity.items()}
            answer = self.wire.ask(ADD_PARTITIONS_TO_TXN, version, v3_and_below_topics=topics, **fields)
            results = answer.results_by_topic_v3_and_below
        else:
            transaction = {**identity, "verify_only": verify_only, "topics": topics}
            answer = self.wire.ask(ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])
            assert answer.error_code is ErrorCode.none
            (result,) = answer.results_by_transaction
            assert result.transactional_id == self.transactional_id
            results = result.topic_results
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in results
            for each in topic.results_by_partition
        }

    def send(self, topic: str, value: bytes = b"x", version: int = 9, **batch: Any) -> ErrorCode:
        producer_id, epoch = self.producer
        records = build_batch(
            [value],
            **{
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "base_sequence": self.sequence,
                "attributes": 0x10,
                "timestamps_ms": [time.time_ns() // 1_000_000],
                **batch,
            },
        )
        partition = {"index": 0, "records": bytes(records)}
        answer = self.wire.ask(
            PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=1000,
            topic_data=[{"name": topic, "partition_data": [partition]}],
        )
        code: ErrorCode = answer.responses[0].partition_responses[0].error_code
        self.sequence += code is ErrorCode.none
        return code

    def add_group(self, group: str, version: int = 4, producer: tuple[int, int] | None = None) -> ErrorCode:
        answer = self.wire.ask(ADD_OFFSETS_TO_TXN, version, group_id=group, **self.identity(producer))
        code: ErrorCode = answer.error_code
        return code

    def stage(
        self,
        group: str,
        offset: int,
        version: int = 4,
        producer: tuple[int, int] | None = None,
        **fields: Any,
    ) -> ErrorCode:
        values = {"generation_id": -1, "member_id": "", "group_instance_id": None, "topic": "t"} | fields
        partition = {
            "partition_index": 0,
            "committed_offset": offset,
            "committed_leader_epoch": -1,
            "committed_metadata": values.pop("metadata", None),
        }
        topics = [{"name": values.pop("topic"), "partitions": [partition]}]
        answer = self.wire.ask(
            TXN_OFFSET_COMMIT, version, group_id=group, topics=topics, **values, **self.identity(producer)
        )
        code: ErrorCode = answer.topics[0].partitions[0].error_code
        return code

    def end(
        self, *, committed: bool = True, version: int = 4, producer: tuple[int, int] | None = None
    ) -> ErrorCode:
        answer = self.wire.ask(END_TXN, version, committed=committed, **self.identity(producer))
        code: ErrorCode = answer.error_code
        return code


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties=PROPERTIES) as started:
        with WireClient(started.bootstrap) as client:
            topics = [
                {"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
            ]
            client.ask(CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
        yield started


@pytest.fixture
def client(running: RunningBroker, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(running, request.node.name)
    made.find()
    assert made.init() is ErrorCode.none
    yield made
    if made.end(committed=False) is ErrorCode.none:
        made.end(committed=False)
    made.wire.close()


def versions(api_key: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", range(APIS[api_key].lowest, APIS[api_key].highest + 1))


def create(client: Client, name: str) -> str:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}]
    client.wire.ask(CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=False)
    return name


def metadata(client: Client, topic: str) -> Any:
    return client.wire.ask(
        METADATA,
        12,
        topics=[{"topic_id": UUID(int=0), "name": topic}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )


@versions(FIND_COORDINATOR)
def test_find_coordinator_of_a_transactional_id(running: RunningBroker, version: int) -> None:
    with WireClient(running.bootstrap) as client:
        if version >= 4:
            answer = client.ask(FIND_COORDINATOR, version, key_type=1, coordinator_keys=["a", "b"])
            assert [each.key for each in answer.coordinators] == ["a", "b"]
            found = answer.coordinators[1]
        else:
            found = client.ask(FIND_COORDINATOR, version, key="a", key_type=1)
        assert (found.error_code, found.node_id, found.port) == (ErrorCode.none, 1, running.port)


def test_find_coordinator_of_another_type_refused(client: Client) -> None:
    answer = client.wire.ask(FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["a"])
    assert answer.coordinators[0].error_code is ErrorCode.invalid_request


def test_internal_topic_is_marked_and_cannot_be_written_or_grown(client: Client) -> None:
    name = "__transaction_state"
    answer = metadata(client, name)
    assert (answer.topics[0].is_internal, len(answer.topics[0].partitions)) == (True, 2)
    assert client.send(name, attributes=0, producer_id=-1) is ErrorCode.invalid_topic_exception
    assert client.add((name, 0)) == {(name, 0): ErrorCode.topic_authorization_failed}
    topics = [{"name": name, "count": 5, "assignments": None}]
    answer = client.wire.ask(CREATE_PARTITIONS, 3, topics=topics, timeout=1000, validate_only=False)
    assert answer.results[0].error_code is ErrorCode.invalid_partitions


@versions(INIT_PRODUCER_ID)
def test_init_producer_id_each_version(client: Client, version: int) -> None:
    producer_id, epoch = client.producer
    assert client.init(version) is ErrorCode.none
    assert client.producer == (producer_id, epoch + 1)
    if version >= 3:
        assert client.init(version, producer_id=producer_id, producer_epoch=epoch + 1) is ErrorCode.none
        assert client.producer == (producer_id, epoch + 2)
        fenced = client.init(version, producer_id=producer_id, producer_epoch=epoch)
        old = ErrorCode.invalid_producer_epoch
        assert fenced is (ErrorCode.producer_fenced if version >= 4 else old)


def test_init_producer_id_refusals(client: Client) -> None:
    assert client.init(transaction_timeout=60_001) is ErrorCode.invalid_transaction_timeout
    assert client.init(transaction_timeout=0) is ErrorCode.invalid_transaction_timeout
    assert client.init(transactional_id="") is ErrorCode.invalid_request
    assert client.init(producer_id=5) is ErrorCode.invalid_request
    assert client.init(producer_epoch=5) is ErrorCode.invalid_request
    assert client.init(transactional_id=None) is ErrorCode.none
    assert client.init(transactional_id=None, producer_id=5, producer_epoch=1) is ErrorCode.none
    assert client.producer[0] != 5


@versions(ADD_PARTITIONS_TO_TXN)
def test_add_partitions_each_version(client: Client, version: int) -> None:
    assert client.add(("t", 0), version=version) == {("t", 0): ErrorCode.none}
    assert client.add(("t", 0), version=version) == {("t", 0): ErrorCode.none}
    mixed = client.add(("t", 0), ("nowhere", 3), version=version)
    assert mixed == {
        ("t", 0): ErrorCode.operation_not_attempted,
        ("nowhere", 3): ErrorCode.unknown_topic_or_partition,
    }
    unknown = client.add(("t", 0), version=version, producer=UNKNOWN_PRODUCER)
    assert unknown == {("t", 0): ErrorCode.invalid_producer_id_mapping}
    fenced = client.add(("t", 0), version=version, producer=(client.producer[0], 77))
    expected = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert fenced == {("t", 0): expected}


def test_add_partitions_verify_only_adds_nothing(client: Client) -> None:
    for version, code in ((4, ErrorCode.invalid_txn_state), (5, ErrorCode.transaction_abortable)):
        assert client.add(("t", 0), version=version, verify_only=True) == {("t", 0): code}
    client.add(("t", 0))
    assert client.add(("t", 0), version=5, verify_only=True) == {("t", 0): ErrorCode.none}


def test_produce_to_a_partition_that_was_not_added_refused(client: Client) -> None:
    assert client.send("t", version=10) is ErrorCode.invalid_txn_state
    assert client.send("t", version=11) is ErrorCode.transaction_abortable
    client.add(("t", 0))
    assert client.send("t") is ErrorCode.none
    assert client.send("t", attributes=0) is ErrorCode.invalid_txn_state
    assert client.send("t", producer_epoch=client.producer[1] + 1, base_sequence=0) is ErrorCode.none
    assert client.send("t") is ErrorCode.invalid_producer_epoch
    assert client.end(committed=False) is ErrorCode.none


def test_produce_after_the_end_of_the_transaction_refused(client: Client) -> None:
    topic = create(client, "ended")
    client.add((topic, 0))
    assert client.send(topic) is ErrorCode.none
    client.end()
    client.add(("t", 0))
    assert client.send(topic) is ErrorCode.invalid_txn_state
    assert client.send("t", base_sequence=0) is ErrorCode.none


@versions(END_TXN)
def test_end_each_version(client: Client, version: int) -> None:
    assert client.end(version=version) is ErrorCode.invalid_txn_state
    client.add(("t", 0))
    fenced = client.end(version=version, producer=(client.producer[0], 77))
    expected = ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch
    assert fenced is expected
    assert client.end(version=version, producer=UNKNOWN_PRODUCER) is ErrorCode.invalid_producer_id_mapping
    assert client.end(version=version) is ErrorCode.none
    assert client.end(version=version) is ErrorCode.none
    assert client.end(version=version, committed=False) is ErrorCode.invalid_txn_state


def test_requests_over_several_connections_in_all_orders_accepted(
    running: RunningBroker, client: Client
) -> None:
    """A pool or a proxy sends each request of a transaction over any of its connections."""
    connections = [client.wire, WireClient(running.bootstrap), WireClient(running.bootstrap)]
    group = "several-connections"
    for offset, order in enumerate(itertools.product(connections, repeat=4)):
        steps: list[Callable[[], ErrorCode]] = [
            lambda: client.add(("t", 0))[("t", 0)],
            lambda: client.add_group(group),
            lambda offset=offset: client.stage(group, offset),  # type: ignore[misc]
            client.end,
        ]
        for wire, step in zip(order, steps, strict=True):
            client.wire = wire
            assert until_settled(step) is ErrorCode.none, [connections.index(each) for each in order]
    client.wire = connections[0]
    assert until_settled(lambda: fetch_offset(client, group)[1]) is ErrorCode.none
    assert fetch_offset(client, group) == (3**4 - 1, ErrorCode.none)
    for wire in connections[1:]:
        wire.close()


def test_connection_knows_that_its_client_has_left_before_it_has_read_everything() -> None:
    ours, theirs = socket.socketpair()
    loop = asyncio.new_event_loop()
    connection = Connection("127.0.0.1:1", lambda _: None)
    channel = Channel(ours, connection, Core(cast("Any", loop)), loop, lambda _: None, RequestMemory(-1))
    with theirs:
        assert not connection.has_left()
        theirs.send(b"0123")
        assert not connection.has_left()
    assert connection.has_left()
    channel.close()
    assert connection.has_left()
    loop.close()


@versions(ADD_OFFSETS_TO_TXN)
def test_add_offsets_each_version(client: Client, version: int) -> None:
    assert client.add_group("g", version) is ErrorCode.none
    fenced = client.add_group("g", version, producer=(client.producer[0], 77))
    assert fenced is (ErrorCode.producer_fenced if version >= 2 else ErrorCode.invalid_producer_epoch)


@versions(TXN_OFFSET_COMMIT)
def test_offset_commit_each_version(client: Client, version: int) -> None:
    group = f"group-{version}"
    without = client.stage(group, 5, version)
    assert without is (ErrorCode.transaction_abortable if version >= 4 else ErrorCode.invalid_txn_state)
    client.add_group(group)
    assert client.stage(group, 5, version) is ErrorCode.none
    unknown = client.stage(group, 5, version, producer=UNKNOWN_PRODUCER)
    assert unknown is ErrorCode.invalid_producer_id_mapping
    fenced = client.stage(group, 5, version, producer=(client.producer[0], 77))
    assert fenced is ErrorCode.invalid_producer_epoch
    assert client.stage(group, 5, version, metadata="x" * 11) is ErrorCode.offset_metadata_too_large
    assert client.stage(group, 5, version, topic="nowhere") is ErrorCode.unknown_topic_or_partition
    if version >= 3:
        member = client.stage(group, 5, version, member_id="m", generation_id=3)
        assert member is ErrorCode.unknown_member_id
    assert fetch_offset(client, group) == (-1, ErrorCode.unstable_offset_commit)
    client.end()
    client.end()  # waits until the first is complete
    assert fetch_offset(client, group) == (5, ErrorCode.none)


def until_settled(step: Callable[[], ErrorCode]) -> ErrorCode:
    """The code of a request, said again as clients do while the former transaction is being completed."""
    deadline = time.monotonic() + 30
    while (code := step()) in _SETTLING and time.monotonic() < deadline:
        time.sleep(0.005)
    return code


_SETTLING = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.unstable_offset_commit,
)


def fetch_offset(
    client: Client, group: str, version: int = 9, *, stable: bool = True
) -> tuple[int, ErrorCode]:
    """Until the transaction is complete."""
    topics = [{"name": "t", "partition_indexes": [0]}]
    if version >= 8:
        groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics}]
        answer = client.wire.ask(OFFSET_FETCH, version, groups=groups, require_stable=stable).groups[0]
    else:
        answer = client.wire.ask(OFFSET_FETCH, version, group_id=group, topics=topics, require_stable=stable)
    found = answer.topics[0].partitions[0]
    return found.committed_offset, found.error_code


@pytest.mark.parametrize("version", [7, 8, 9])
def test_offset_fetch_stable_waits_for_the_transaction(client: Client, version: int) -> None:
    group = f"stable-{version}"
    topics = [
        {"name": "t", "partitions": [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}]}
    ]
    client.wire.ask(
        OFFSET_COMMIT, 7, group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics
    )
    client.add_group(group)
    client.stage(group, 8)
    assert fetch_offset(client, group, version) == (-1, ErrorCode.unstable_offset_commit)
    assert fetch_offset(client, group, version, stable=False) == (3, ErrorCode.none)
    client.end(committed=False)
    client.init()
    assert fetch_offset(client, group, version) == (3, ErrorCode.none)


def group_states(client: Client, group: str) -> tuple[str, str | None, ErrorCode]:
    """As it is described, as it is listed (None: not), and the code of its deletion."""
    (described,) = client.wire.ask(
        DESCRIBE_GROUPS, 5, groups=[group], include_authorized_operations=False
    ).groups
    listed = {
        each.group_id: each.group_state for each in client.wire.ask(LIST_GROUPS, 4, states_filter=[]).groups
    }
    (deleted,) = client.wire.ask(DELETE_GROUPS, 2, groups_names=[group]).results
    return described.group_state, listed.get(group), deleted.error_code


def test_group_that_only_an_open_transaction_knows_is_empty(client: Client) -> None:
    """Deleting it takes the offsets out of the transaction, as GroupMetadata goes with its pending ones."""
    assert group_states(client, "staged") == ("Dead", None, ErrorCode.group_id_not_found)
    client.add_group("staged")
    assert client.stage("staged", 8) is ErrorCode.none
    assert group_states(client, "staged") == ("Empty", "Empty", ErrorCode.none)
    assert fetch_offset(client, "staged", 9) == (-1, ErrorCode.none)
    assert client.end(committed=True) is ErrorCode.none
    client.init()  # once offsets would be applied
    assert fetch_offset(client, "staged", 9) == (-1, ErrorCode.none)
    client.add_group("staged")
    assert client.stage("staged", 9) is ErrorCode.none
    assert client.end(committed=True) is ErrorCode.none
    client.init()
    assert fetch_offset(client, "staged", 9) == (9, ErrorCode.none)
    assert group_states(client, "staged") == ("Empty", "Empty", ErrorCode.none)
    assert group_states(client, "staged") == ("Dead", None, ErrorCode.group_id_not_found)


def test_offset_delete_takes_offsets_out_of_an_open_transaction(client: Client) -> None:
    client.add_group("partly")
    assert client.stage("partly", 8) is ErrorCode.none
    topics = [{"name": "t", "partitions": [{"partition_index": 0}]}]
    answer = client.wire.ask(OFFSET_DELETE, 0, group_id="partly", topics=topics)
    assert answer.error_code is ErrorCode.none
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
    assert fetch_offset(client, "partly", 9) == (-1, ErrorCode.none)
    assert client.end(committed=True) is ErrorCode.none
    client.init()
    assert fetch_offset(client, "partly", 9) == (-1, ErrorCode.none)


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_committed_tells_aborted_transactions(client: Client, version: int) -> None:
    topic = create(client, f"fetched-{version}")
    answer = metadata(client, topic)
    topic_id = answer.topics[0].topic_id
    for number in range(3):
        client.add((topic, 0))
        client.send(topic, b"%d" % number)
        client.end(committed=number == 1)
    client.add((topic, 0))
    client.send(topic, b"open")
    for level in (0, 1):
        partition = {
            "partition": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1 << 20,
            "last_fetched_epoch": -1,
        }
        partition |= {"current_leader_epoch": -1, "log_start_offset": -1}
        found = client.wire.ask(
            FETCH,
            version,
            replica_id=-1,
            max_wait=0,
            min_bytes=0,
            max_bytes=1 << 20,
            isolation_level=level,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic": topic, "topic_id": topic_id, "partitions": [partition]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        got = found.responses[0].partitions[0]
        assert (got.error_code, got.high_watermark, got.last_stable_offset) == (ErrorCode.none, 7, 6)
        data, values = bytes(got.records), []
        while data:
            batch, size = read_batch(data, 0)
            data = data[size:]
            if not batch.attributes & 0x20:
                values += [record.value for record in batch.records]
        assert values == [b"0", b"1", b"2", b"open"][: 4 - level]
        aborted = got.aborted_transactions
        if level == 0:
            assert aborted is None
        else:
            expected = [(client.producer[0], 0), (client.producer[0], 4)]
            assert [(each.producer_id, each.first_offset) for each in aborted] == expected
    client.end(committed=False)


def test_list_offsets_committed_ends_with_the_stable_offset(client: Client) -> None:
    topic = create(client, "listed")
    client.add((topic, 0))
    client.send(topic)
    found = {}
    for level in (0, 1):
        for timestamp in (-1, 0):
            partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": timestamp}
            topics = [{"name": topic, "partitions": [partition]}]
            answer = client.wire.ask(LIST_OFFSETS, 7, replica_id=-1, isolation_level=level, topics=topics)
            found[level, timestamp] = answer.topics[0].partitions[0].offset
    assert found == {(0, -1): 1, (0, 0): 0, (1, -1): 0, (1, 0): -1}


def test_describe_transactions_and_producers_show_what_is_open(client: Client) -> None:
    topic = create(client, "described")
    client.add((topic, 0))
    client.send(topic)
    names = [client.transactional_id, "nobody", ""]
    mine, nobody, empty = client.wire.ask(
        DESCRIBE_TRANSACTIONS, 0, transactional_ids=names
    ).transaction_states
    assert (mine.error_code, mine.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (mine.producer_id, mine.producer_epoch) == client.producer
    assert [(each.topic, each.partitions) for each in mine.topics] == [(topic, (0,))]
    assert nobody.error_code is ErrorCode.transactional_id_not_found
    assert empty.error_code is ErrorCode.invalid_request
    asked = [{"name": topic, "partition_indexes": [0, 1]}, {"name": "nowhere", "partition_indexes": [0]}]
    here, nowhere = client.wire.ask(DESCRIBE_PRODUCERS, 0, topics=asked).topics
    (found,) = here.partitions[0].active_producers
    assert (found.producer_id, found.producer_epoch) == client.producer
    assert (found.last_sequence, found.current_txn_start_offset, found.coordinator_epoch) == (0, 0, -1)
    assert here.partitions[1].error_code is ErrorCode.unknown_topic_or_partition
    assert nowhere.partitions[0].error_code is ErrorCode.unknown_topic_or_partition


@versions(LIST_TRANSACTIONS)
def test_list_transactions_filters(client: Client, version: int) -> None:
    client.add(("t", 0))

    def listed(states: tuple[str, ...] = (), producers: tuple[int, ...] = (), longer: int = -1) -> Any:
        answer = client.wire.ask(
            LIST_TRANSACTIONS,
            version,
            state_filters=states,
            producer_id_filters=producers,
            duration_filter=longer,
        )
        names = {each.transactional_id: each.transaction_state for each in answer.transaction_states}
        return names.get(client.transactional_id), answer.unknown_state_filters

    assert listed() == ("Ongoing", ())
    assert listed(("Ongoing", "Dead", "Nonsense")) == ("Ongoing", ("Nonsense",))
    assert listed(("Empty",)) == (None, ())
    assert listed(producers=(client.producer[0],)) == ("Ongoing", ())
    assert listed(producers=(client.producer[0] + 1000,)) == (None, ())
    if version >= 1:
        assert listed(longer=3_600_000) == (None, ())


def test_transaction_where_acknowledged_means_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step waits for its fsync."""
    synced: list[str] = []
    fdatasync = os.fdatasync

    def spy(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink().parent.name)
        fdatasync(fd)

    def synced_once(*names: str) -> bool:
        found = {name.rpartition("-")[0] for name in synced}
        synced.clear()
        return found.issuperset(names)

    monkeypatch.setattr(os, "fdatasync", spy)
    with broker(tmp_path, properties={**PROPERTIES, "acks.fsync": "true"}) as running:
        client = Client(running, "flushed")
        client.find()
        client.init()
        assert synced_once("__transaction_state")
        create(client, "t")
        client.add(("t", 0))
        assert synced_once("__transaction_state")
        assert client.send("t") is ErrorCode.none
        assert synced_once("t")
        client.add_group("g")
        assert client.stage("g", 5) is ErrorCode.none
        assert synced_once("__transaction_state")
        assert client.end() is ErrorCode.none
        assert client.end() is ErrorCode.none  # waits until the first is complete
        assert synced_once("__transaction_state", "t")
        assert fetch_offset(client, "g") == (5, ErrorCode.none)
        client.wire.close()


def stored_bytes(directory: Path) -> int:
    """Of all segments, some of which may go meanwhile."""
    size_bytes = 0
    for file in directory.glob("*.log"):
        with suppress(FileNotFoundError):
            size_bytes += file.stat().st_size
    return size_bytes


def test_state_is_compacted_and_read_again(tmp_path: Path) -> None:
    properties = {
        **PROPERTIES,
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.segment.bytes": "2000",
        "log.cleaner.backoff.ms": "20",
        "log.segment.delete.delay.ms": "0",
    }
    with broker(tmp_path, properties=properties) as running:
        clients = [Client(running, f"id-{number}") for number in range(3)]
        create(clients[0], "t")
        for client in clients:
            client.find()
            for _ in range(70):
                assert client.init() is ErrorCode.none
            client.add(("t", 0))
            client.wire.close()
        files = tmp_path / "__transaction_state-0"
        deadline = time.monotonic() + 30
        while stored_bytes(files) > 6000:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    with broker(tmp_path, properties=properties) as running:
        with WireClient(running.bootstrap) as wire:
            names = [client.transactional_id for client in clients]
            found = wire.ask(DESCRIBE_TRANSACTIONS, 0, transactional_ids=names).transaction_states
        assert [(each.producer_id, each.producer_epoch) for each in found] == [
            client.producer for client in clients
        ]
        assert {(each.transaction_state, each.topics[0].topic) for each in found} == {("Ongoing", "t")}
