"""What is refused, at every version of every API; and connections that may not come in, or not stay."""

from __future__ import annotations

import dataclasses
import datetime as dt
import socket
import struct
import time
import typing
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import MemoryCoordinator
from headwater_broker.server import parse_settings
from headwater_broker.server.connection_limits import ConnectionLimits
from headwater_broker.testing import FixedClock, RunningBroker, broker
from headwater_broker.testing.batches import build_batch
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire import APIS, Api, apis
from headwater_broker.wire.codec import message_type
from headwater_broker.wire.reader import without_none
from readable import is_readable

CODES = {
    ErrorCode.topic_authorization_failed,
    ErrorCode.group_authorization_failed,
    ErrorCode.cluster_authorization_failed,
    ErrorCode.transactional_id_authorization_failed,
}
# Everybody may ask these; ListGroups, ListTransactions and the tokens' show only what one may see.
FREE = {
    *(apis.API_VERSIONS, apis.SASL_HANDSHAKE, apis.SASL_AUTHENTICATE, apis.DESCRIBE_CLUSTER),
    *(apis.LIST_GROUPS, apis.LIST_TRANSACTIONS, apis.CREATE_DELEGATION_TOKEN, apis.RENEW_DELEGATION_TOKEN),
    *(apis.EXPIRE_DELEGATION_TOKEN, apis.DESCRIBE_DELEGATION_TOKEN),
}
REFUSED = [
    (api, version)
    for api in APIS.values()
    if api.key not in FREE
    # Produce and Fetch before batches have no schema; see test_old_formats_wire.
    for version in range(max(api.lowest, {apis.PRODUCE: 3, apis.FETCH: 4}.get(api.key, 0)), api.highest + 1)
    # By topic id: a topic that is not there has none to be refused.
    if not (api.key == apis.FETCH and version >= 13)
    # These versions have no code: they show nothing, as Kafka's.
    if not (api.key == apis.DESCRIBE_LOG_DIRS and version < 3)
]


SECRET_ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningBroker]:
    """A broker where nobody may do anything, for want of rules; it has one topic."""
    coordinator = MemoryCoordinator()
    coordinator.create_topic("secret", {0: [1]}, {}, SECRET_ID)
    properties = {"allow.everyone.if.no.acl.found": "false"}
    with broker(properties=properties, coordinator=coordinator) as started:
        yield started


def something(field: dataclasses.Field[Any], name: str) -> Any:
    """A value for a field: one element in each list, a name in each text."""
    kind, _ = without_none(field.type)
    if typing.get_origin(kind) is tuple:
        element, _ = without_none(typing.get_args(kind)[0])
        return [one(element, name)]
    return one(kind, name)


def one(kind: Any, name: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return {each.name: something(each, each.name) for each in dataclasses.fields(kind)}
    if name in ("resource_type", "election_type"):
        return 2 if name == "resource_type" else 0
    if name in ("key_type", "acks", "session_epoch"):
        return {"key_type": 0, "acks": 1, "session_epoch": -1}[name]
    if name == "records":
        return bytes(build_batch([b"x"]))
    for given, value in ((bool, False), (str, "x"), (bytes, b"x"), (float, 1.0), (UUID, None)):
        if isinstance(kind, type) and issubclass(kind, given):
            return value
    if isinstance(kind, type) and issubclass(kind, dt.timedelta):
        return 1000
    return 0


def codes(value: Any) -> set[ErrorCode]:
    """All error codes anywhere in an answer."""
    if isinstance(value, ErrorCode):
        return {value}
    if dataclasses.is_dataclass(value):
        return {code for each in dataclasses.fields(value) for code in codes(getattr(value, each.name))}
    if isinstance(value, tuple):
        return {code for each in value for code in codes(each)}
    return set()


@pytest.mark.parametrize(
    ("api", "version"), REFUSED, ids=[f"{api.name}-{version}" for api, version in REFUSED]
)
def test_access_without_a_rule_is_refused_by_its_own_code(
    strict: RunningBroker, api: Api, version: int
) -> None:
    fields = {
        each.name: something(each, each.name)
        for each in dataclasses.fields(message_type(api.name, version, "request"))
        if "tag" not in each.metadata
    }
    with WireClient(strict.bootstrap) as client:
        answer = client.ask(api.key, version, **fields)
        assert codes(answer) & CODES, answer
        assert client.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none


@pytest.mark.parametrize("version", range(13, 18))
def test_access_fetch_by_topic_id_is_refused(strict: RunningBroker, version: int) -> None:
    partition = {
        "partition": 0,
        "fetch_offset": 0,
        "partition_max_bytes": 100,
        "current_leader_epoch": -1,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
    }
    with WireClient(strict.bootstrap) as client:
        answer = client.ask(
            *(apis.FETCH, version),
            replica_id=-1,
            max_wait=0,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[{"topic_id": SECRET_ID, "partitions": [partition]}],
            forgotten_topics_data=[],
            rack_id="",
        )
        assert answer.responses[0].partitions[0].error_code is ErrorCode.topic_authorization_failed


def test_access_topic_id_does_not_tell_the_name(strict: RunningBroker) -> None:
    with WireClient(strict.bootstrap) as client:
        for name in (None, ""):
            answer = client.ask(
                *(apis.METADATA, 12),
                topics=[{"topic_id": SECRET_ID, "name": name}],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
            )
            (topic,) = answer.topics
            assert topic.error_code is ErrorCode.topic_authorization_failed
            assert (topic.name, topic.topic_id) == (None, SECRET_ID)
        deleted = client.ask(
            *(apis.DELETE_TOPICS, 6), topics=[{"name": None, "topic_id": SECRET_ID}], timeout=100
        )
        (topic,) = deleted.responses
        assert topic.error_code is ErrorCode.topic_authorization_failed
        assert (topic.name, topic.topic_id) == (None, SECRET_ID)


def test_access_lists_show_nothing_to_whom_may_see_nothing(strict: RunningBroker) -> None:
    with WireClient(strict.bootstrap) as client:
        every = client.ask(apis.METADATA, 0, topics=[])
        assert every.topics == ()
        assert len(every.brokers) == 1
        cluster = client.ask(
            apis.DESCRIBE_CLUSTER, 1, include_cluster_authorized_operations=True, endpoint_type=1
        )
        assert cluster.cluster_authorized_operations == 0
        assert client.ask(apis.LIST_GROUPS, 4, states_filter=[]).groups == ()


# -- SASL without a client library -------------------------------------------------------------------------

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "connection.failed.authentication.delay.ms": "1",
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    with broker(properties={**SASL, "sasl.server.max.receive.size": "1000"}) as started:
        yield started


@pytest.fixture
def client(guarded: RunningBroker) -> Iterator[WireClient]:
    with WireClient(guarded.bootstrap) as connected:
        yield connected


def log_in(client: WireClient, password: bytes = b"secret") -> Any:
    assert client.ask(apis.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code is ErrorCode.none
    return client.ask(apis.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0" + password)


def is_closed(client: WireClient) -> bool:
    try:
        client._exactly(1)
    except ConnectionError:
        return True
    return False


def test_sasl_conversation_as_clients_have_it(client: WireClient) -> None:
    assert client.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none
    answer = log_in(client)
    assert (answer.error_code, answer.auth_bytes) == (ErrorCode.none, b"")
    assert client.ask(apis.LIST_GROUPS, 4, states_filter=[]).error_code is ErrorCode.none
    # Once more, on the same connection (KIP-368).
    assert log_in(client).error_code is ErrorCode.none
    assert client.ask(apis.LIST_GROUPS, 4, states_filter=[]).error_code is ErrorCode.none


def test_sasl_old_clients_send_the_mechanisms_messages_bare(client: WireClient) -> None:
    assert client.ask(apis.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code is ErrorCode.none
    token = b"\0alice\0secret"
    client._socket.sendall(struct.pack(">i", len(token)) + token)
    assert client._exactly(4) == bytes(4)
    assert client.ask(apis.LIST_GROUPS, 4, states_filter=[]).error_code is ErrorCode.none


def test_sasl_request_before_authentication_closes_the_connection(client: WireClient) -> None:
    client.send(apis.LIST_GROUPS, 4, states_filter=[])
    assert is_closed(client)


def test_sasl_message_before_the_handshake_closes_the_connection(client: WireClient) -> None:
    client.send(apis.SASL_AUTHENTICATE, 2, auth_bytes=b"\0alice\0secret")
    assert is_closed(client)


def test_sasl_versions_may_be_asked_once(client: WireClient) -> None:
    client.ask(apis.API_VERSIONS, 0)
    client.send(apis.API_VERSIONS, 0)
    assert is_closed(client)


def test_sasl_unknown_mechanism_is_told_what_there_is_and_closed(client: WireClient) -> None:
    answer = client.ask(apis.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
    assert answer.error_code is ErrorCode.unsupported_sasl_mechanism
    assert answer.mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert is_closed(client)


def test_sasl_wrong_password_is_told_and_closed(client: WireClient) -> None:
    answer = log_in(client, b"wrong")
    assert answer.error_code is ErrorCode.sasl_authentication_failed
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert is_closed(client)


def test_sasl_large_request_of_a_stranger_is_refused_at_its_size(client: WireClient) -> None:
    client._socket.sendall(struct.pack(">i", 1001))
    assert is_closed(client)


def test_sasl_session_that_is_over_closes_the_connection_unless_renewed() -> None:
    properties, clock = {**SASL, "connections.max.reauth.ms": "300"}, FixedClock()
    with broker(properties=properties, clock=clock) as running, WireClient(running.bootstrap) as client:
        assert log_in(client).session_lifetime == dt.timedelta(milliseconds=300)
        clock.advance(0.35)
        assert log_in(client).error_code is ErrorCode.none
        assert client.ask(apis.LIST_GROUPS, 4, states_filter=[]).error_code is ErrorCode.none
        clock.advance(0.35)
        client.send(apis.LIST_GROUPS, 4, states_filter=[])
        assert is_closed(client)


# -- limits ------------------------------------------------------------------------------------------------


def is_taken(running: RunningBroker) -> socket.socket | None:
    """A connection that is answered, None where it was closed at once."""
    client = WireClient(running.bootstrap)
    try:
        client.ask(apis.API_VERSIONS, 0)
    except OSError:
        client.close()
        return None
    return client._socket


@pytest.mark.parametrize(
    ("properties", "allowed"),
    [
        ({"max.connections.per.ip": "2"}, 2),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "10.1.2.3:9,127.0.0.1:4"}, 4),
    ],
)
def test_limits_of_connections_of_an_address_hold_and_room_is_made_by_those_who_leave(
    properties: dict[str, str], allowed: int
) -> None:
    with broker(properties=properties) as running:
        taken = [is_taken(running) for _ in range(allowed)]
        assert all(taken)
        assert is_taken(running) is None
        for connection in taken:
            assert connection is not None
            connection.close()
        deadline = time.monotonic() + 60
        while (another := is_taken(running)) is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        another.close()


TWO_LISTENERS = {
    "listeners": "ONE://127.0.0.1:0,TWO://127.0.0.1:0",
    "listener.security.protocol.map": "ONE:PLAINTEXT,TWO:PLAINTEXT",
    "inter.broker.listener.name": "ONE",
}


def asked(running: RunningBroker, listener: str) -> WireClient:
    """A connection with a request on its way."""
    host, port = running.addresses[listener]
    client = WireClient(f"{host}:{port}")
    client.send(apis.API_VERSIONS, 0)
    return client


def is_answered(client: WireClient, within_s: float) -> bool:
    return is_readable(client._socket, within_s)


@pytest.mark.parametrize(
    ("properties", "allowed", "elsewhere"),
    [
        ({"max.connections": "3"}, 3, False),
        ({"listener.name.one.max.connections": "2"}, 2, True),
        ({"max.connections": "4", "listener.name.ONE.max.connections": "2"}, 2, True),
    ],
)
def test_limits_of_all_connections_let_others_wait_until_somebody_leaves(
    properties: dict[str, str], allowed: int, elsewhere: bool
) -> None:
    with ExitStack() as stack:
        running = stack.enter_context(broker(properties={**properties, **TWO_LISTENERS}))
        inside = [stack.enter_context(asked(running, "ONE")) for _ in range(allowed)]
        for client in inside:
            assert client.receive().error_code is ErrorCode.none
        waiting = stack.enter_context(asked(running, "ONE"))
        assert not is_answered(waiting, 0.1)
        with asked(running, "TWO") as other:
            assert is_answered(other, 10 if elsewhere else 0.1) is elsewhere
        inside[0].close()
        assert waiting.receive().error_code is ErrorCode.none


def test_limits_that_are_lowered_close_those_that_were_silent_longest() -> None:
    with ExitStack() as stack:
        running = stack.enter_context(broker())
        clients = [stack.enter_context(WireClient(running.bootstrap)) for _ in range(4)]
        for client in clients:
            client.ask(apis.API_VERSIONS, 0)
        clients[0].ask(apis.API_VERSIONS, 0)
        change = {"name": "max.connections", "value": "2", "config_operation": 0}
        resource = {"resource_type": 4, "resource_name": "", "configs": [change]}
        clients[3].ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
        assert is_closed(clients[1])
        assert is_closed(clients[2])
        assert clients[0].ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none


@pytest.mark.parametrize(
    ("properties", "elsewhere_s"),
    [
        ({"max.connection.creation.rate": "2"}, 1.0),
        ({"listener.name.one.max.connection.creation.rate": "2"}, 0),
    ],
)
def test_limits_of_the_rate_of_connections_let_the_next_wait(
    properties: dict[str, str], elsewhere_s: float
) -> None:
    # Two windows of a second: a burst of two is a full quota, the third waits, and a fourth the longer.
    properties = {**properties, "quota.window.num": "2"}
    limits = ConnectionLimits(parse_settings(properties), FixedClock())
    assert [limits.wait_s("ONE") for _ in range(3)] == [0, 0, 0.5]
    assert limits.wait_s("TWO") == elsewhere_s
    with ExitStack() as stack:
        running = stack.enter_context(broker(properties={**properties, **TWO_LISTENERS}, clock=FixedClock()))
        for _ in range(2):
            assert stack.enter_context(asked(running, "ONE")).receive().error_code is ErrorCode.none
        started = time.monotonic()
        third = stack.enter_context(asked(running, "ONE"))
        other = stack.enter_context(asked(running, "TWO"))
        assert third.receive().error_code is ErrorCode.none
        assert time.monotonic() - started > 0.49
        assert other.receive().error_code is ErrorCode.none
        assert time.monotonic() - started > elsewhere_s - 0.01


def test_limits_of_idleness_close_a_silent_connection() -> None:
    started = time.monotonic()
    with (
        broker(properties={"connections.max.idle.ms": "200"}) as running,
        WireClient(running.bootstrap) as client,
    ):
        assert is_closed(client)
        assert time.monotonic() - started > 0.2


def test_limits_of_a_requests_size_close_the_connection() -> None:
    properties = {"socket.request.max.bytes": "1000"}
    with broker(properties=properties) as running, WireClient(running.bootstrap) as client:
        client._socket.sendall(struct.pack(">i", 1001))
        assert is_closed(client)
