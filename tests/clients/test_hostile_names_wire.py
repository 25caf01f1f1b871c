"""Names from outside at every API and version: no line of the log is forged, no answer is too long to be written."""

from __future__ import annotations

import dataclasses
import datetime as dt
import itertools
import logging
import os
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ZooKeeperCoordinator
from headwater_broker.groups.subscription import encode_subscription
from headwater_broker.testing import RunningBroker, broker
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire import APIS, Api, apis, fetch, produce
from headwater_broker.wire.codec import message_type
from headwater_broker.wire.reader import without_none

FORGED = "n\r\n2026-01-01 00:00:00,000 ERROR forged: \x1b[31m\x9b31m\x07\x00\u2028\u2029\u0085\u202e\u2066"
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
WITH_BATCHES = {apis.PRODUCE: produce.BATCHES_FROM, apis.FETCH: fetch.BATCHES_FROM}
VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(max(api.lowest, WITH_BATCHES.get(api.key, 0)), api.highest + 1)
]
each_version = pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=[f"{api.name}-{version}" for api, version in VERSIONS]
)
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"delegation.token.secret.key": "a secret"}) as started:
        yield started


def filled(field: dataclasses.Field[Any], name: str, number: int) -> Any:
    """A field in which each text is `name`, each number is `number` and each array has one element."""
    kind, _ = without_none(field.type)
    if typing.get_origin(kind) is tuple:
        element, _ = without_none(typing.get_args(kind)[0])
        return [one(element, field, name, number)]
    return one(kind, field, name, number)


def one(kind: Any, field: dataclasses.Field[Any], name: str, number: int) -> Any:
    if dataclasses.is_dataclass(kind):
        return {each.name: filled(each, name, number) for each in dataclasses.fields(kind)}
    if field.name in ("records", "batches"):
        return None
    if isinstance(kind, type):
        for given, value in ((bool, False), (str, name), (bytes, name.encode()), (float, 1.0), (UUID, None)):
            if issubclass(kind, given):
                return value
        if issubclass(kind, dt.timedelta | dt.datetime):
            return 1000
    return number


def request(api: Api, version: int, name: str, number: int) -> dict[str, Any]:
    fields = dataclasses.fields(message_type(api.name, version, "request"))
    return {each.name: filled(each, name, number) for each in fields}


def ask(running: RunningBroker, api: Api, version: int, name: str, client_id: str) -> None:
    """Asks with each small number that may choose a kind of resource, pattern or operation."""
    for number in (0, 1, 2, 3, 4, 17):
        with WireClient(running.bootstrap, client_id) as client:
            fields = request(api, version, name, number)
            if api.key == apis.PRODUCE:
                fields["acks"] = 1
            client.send(api.key, version, **fields)
            try:
                answer = client.receive()
            except ConnectionError:
                continue  # the log says why, in one line
            assert isinstance(answer, message_type(api.name, version, "response"))
            assert client.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none


def assert_plain(records: list[logging.LogRecord]) -> None:
    for record in records:
        assert not UNSAFE.search(record.getMessage()), record
        assert record.exc_info is None, record


@each_version
def test_names_with_control_characters_forge_no_line_of_the_log(
    running: RunningBroker, api: Api, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ask(running, api, version, f"{FORGED}{next(_NUMBERS)}", FORGED)
    assert_plain(caplog.records)


@each_version
def test_names_longer_than_an_answer_can_hold_are_answered_without_them(
    running: RunningBroker, api: Api, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    size = 70_000 if api.is_flexible(version) else 32_767
    caplog.set_level(logging.DEBUG)
    ask(running, api, version, "x" * size, "x" * 32_767)
    for record in caplog.records:
        assert record.exc_info is None, record
        assert len(record.getMessage()) < 1500, record


PATHS = [
    "../x",
    "../../x",
    "a/b",
    "/x",
    ".",
    "..",
    "",
    "\0",
    "x\0/../y",
    "..\\x",
    "%2e%2e%2fx",
    "%",
    "x" * 300,
    "\u202e" * 90,
    "clicks-0",
    "<default>",
]


@pytest.fixture(scope="module", params=["memory", "zookeeper"])
def deep(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """A broker whose log directory has folders above it that are its own."""
    folder = tmp_path_factory.mktemp("deep")
    coordinator = None
    if request.param == "zookeeper":
        hosts = request.getfixturevalue("zookeeper").hosts
        coordinator = ZooKeeperCoordinator(f"{hosts}/{folder.name}-{os.getpid()}")
    with broker(folder / "one" / "two" / "log", coordinator=coordinator) as started:
        yield started


@pytest.mark.parametrize("name", PATHS, ids=ascii)
def test_names_that_lead_elsewhere_make_no_file_and_no_failure(
    deep: RunningBroker, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The same with shared state in ZooKeeper, where names are parts of paths, too."""
    folder = deep.data_dir.parents[2]
    with WireClient(
        deep.bootstrap
    ) as client:  # makes the topic of transactions, whose name is no name from outside
        client.ask(apis.FIND_COORDINATOR, 3, key="x", key_type=1)
        while client.ask(apis.INIT_PRODUCER_ID, 4, **INIT).error_code is not ErrorCode.none:
            pass
    before = folders_below(folder)
    for api in APIS.values():
        if api.key not in (apis.PRODUCE, apis.FETCH, apis.CREATE_TOPICS, apis.METADATA, apis.DELETE_TOPICS):
            ask(deep, api, api.highest, name, "client")
    with WireClient(deep.bootstrap) as client:
        made = {make_topic(client, api, name) for api in (apis.CREATE_TOPICS, apis.METADATA)}
    is_taken = re.fullmatch("[a-zA-Z0-9._-]{1,249}", name) is not None and name not in (".", "..")
    assert made == {ErrorCode.none if is_taken else ErrorCode.invalid_topic_exception}
    made_by_name = {each for each in folders_below(folder) - before if "__" not in each}
    assert made_by_name == ({f"one/two/log/{name}-0"} if is_taken else set())
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("name", PATHS, ids=ascii)
def test_users_with_names_that_lead_elsewhere_keep_their_passwords_apart(
    deep: RunningBroker, name: str
) -> None:
    upsertion = {"name": name, "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
    with WireClient(deep.bootstrap) as client:
        altered = client.ask(apis.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[], upsertions=[upsertion])
        refused = altered.results[0].error_code is not ErrorCode.none
        described = client.ask(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        assert (name in [each.user for each in described.results]) == (not refused)
        assert refused == (name in ("", "<default>"))
        if not refused:
            deletion = {"name": name, "mechanism": 1}
            client.ask(apis.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=[deletion], upsertions=[])
        described = client.ask(apis.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        assert described.results == ()


INIT = {"transactional_id": "x", "transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}


def make_topic(client: WireClient, key: int, name: str) -> ErrorCode:
    if key == apis.METADATA:
        answer = client.ask(apis.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True)
    else:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = client.ask(apis.CREATE_TOPICS, 4, topics=[topic], timeout=10_000, validate_only=False)
    code: ErrorCode = answer.topics[0].error_code
    return code


def folders_below(folder: Path) -> set[str]:
    return {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_dir()}


def test_group_instance_that_comes_back_forges_no_line_of_the_log(
    running: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    fields = {
        "group_id": FORGED,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "group_instance_id": FORGED,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": encode_subscription(["clicks"])}],
        "reason": FORGED,
    }
    with WireClient(running.bootstrap, FORGED) as client:
        joined = client.ask(apis.JOIN_GROUP, 9, **fields)
        assert joined.error_code is ErrorCode.none
        fields["protocols"][0]["metadata"] = encode_subscription(["others"])
        again = client.ask(apis.JOIN_GROUP, 9, **fields)
        member = {"member_id": again.member_id, "group_instance_id": FORGED, "reason": FORGED}
        client.ask(apis.LEAVE_GROUP, 5, group_id=FORGED, members=[member])
    assert any(f"static member {FORGED[0]}" in record.getMessage() for record in caplog.records)
    assert_plain(caplog.records)


def test_transactional_id_that_times_out_forges_no_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with broker(properties={interval: "50"}) as started, WireClient(started.bootstrap) as client:
        client.ask(apis.METADATA, 4, topics=[{"name": "clicks"}], allow_auto_topic_creation=True)
        assert (
            client.ask(apis.FIND_COORDINATOR, 3, key=FORGED, key_type=1).error_code
            is not ErrorCode.invalid_request
        )
        init = {
            "transactional_id": FORGED,
            "transaction_timeout": 100,
            "producer_id": -1,
            "producer_epoch": -1,
        }
        given = client.ask(apis.INIT_PRODUCER_ID, 4, **init)
        while given.error_code is not ErrorCode.none:  # its topic is being made
            given = client.ask(apis.INIT_PRODUCER_ID, 4, **init)
        added = client.ask(
            apis.ADD_PARTITIONS_TO_TXN,
            3,
            v3_and_below_transactional_id=FORGED,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[{"name": "clicks", "partitions": [0]}],
        )
        assert added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code == 0
        while not any("has timed out" in record.getMessage() for record in caplog.records):
            client.ask(apis.API_VERSIONS, 0)
    assert_plain(caplog.records)


def test_sasl_mechanism_and_names_before_authentication_forge_no_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="secret";'
        ),
        "connection.failed.authentication.delay.ms": "0",
    }
    first_messages = {
        "PLAIN": f"\0{FORGED.replace(chr(0), '')}\0{FORGED.replace(chr(0), '')}",
        "SCRAM-SHA-256": f"n,,n={FORGED},r=nonce",
        FORGED: "",
    }
    with broker(properties=properties) as started:
        for mechanism, message in first_messages.items():
            for version in (0, 1):
                with WireClient(started.bootstrap, FORGED) as client:
                    answer = client.ask(apis.SASL_HANDSHAKE, version, mechanism=mechanism)
                    assert (answer.error_code is ErrorCode.none) == (mechanism != FORGED)
                    if version == 1 and mechanism != FORGED:
                        refused = client.ask(apis.SASL_AUTHENTICATE, 2, auth_bytes=message.encode())
                        assert refused.error_code is ErrorCode.sasl_authentication_failed
    assert any("SASL mechanism" in record.getMessage() for record in caplog.records)
    assert_plain(caplog.records)
