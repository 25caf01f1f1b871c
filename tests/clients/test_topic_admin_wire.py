"""Topics and settings changed by single requests: those that do not wait, and AlterConfigs, which replaces all."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire.apis import (
    ALTER_CONFIGS,
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    METADATA,
)

TOPIC, BROKER = 2, 4


@pytest.fixture
def client(any_broker: RunningBroker) -> Iterator[WireClient]:
    with WireClient(any_broker.bootstrap) as made:
        yield made


def create(client: WireClient, name: str, timeout: int = 5000, **more: Any) -> Any:
    topic = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()],
    }
    (answer,) = client.ask(
        CREATE_TOPICS, 7, topics=[topic], timeout=timeout, **{"validate_only": False, **more}
    ).topics
    return answer


@pytest.fixture
def topic(client: WireClient) -> str:
    name = f"admin-{uuid4().hex[:8]}"
    assert create(client, name).error_code is ErrorCode.none
    return name


def partitions(client: WireClient, name: str) -> int:
    (found,) = client.ask(
        METADATA,
        12,
        topics=[{"name": name, "topic_id": None}],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    ).topics
    return len(found.partitions)


# -- refused in Kafka's words, which tools look for --------------------------------------------------


def test_topic_that_exists_is_refused_in_kafkas_words(client: WireClient, topic: str) -> None:
    for only in (True, False):
        answer = create(client, topic, validate_only=only)
        assert answer.error_code is ErrorCode.topic_already_exists
        assert answer.error_message == f"Topic '{topic}' already exists."
    dotted = create(client, topic.replace("-", ".")), create(client, topic.replace("-", "_"))
    assert dotted[1].error_code is ErrorCode.invalid_topic_exception
    there = topic.replace("-", ".")
    assert (
        dotted[1].error_message == f"Topic '{topic.replace('-', '_')}' collides with existing topics: {there}"
    )


def test_topic_created_by_two_at_once_is_refused_in_kafkas_words(any_broker: RunningBroker) -> None:
    name = f"twice-{uuid4().hex[:8]}"
    fields = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    clients = [WireClient(any_broker.bootstrap) for _ in range(8)]
    for each in clients:
        each.send(CREATE_TOPICS, 7, topics=[{"name": name, **fields}], timeout=5000, validate_only=False)
    answers = [each.receive().topics[0] for each in clients]
    for each in clients:
        each.close()
    refused = [each for each in answers if each.error_code is not ErrorCode.none]
    assert len(refused) == len(clients) - 1
    assert {each.error_message for each in refused} == {f"Topic '{name}' already exists."}


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        (
            "a/b",
            "'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
        ),
        ("x" * 250, f"the length of '{'x' * 250}' is longer than the max allowed length 249"),
    ],
)
def test_topic_name_is_refused_in_kafkas_words(client: WireClient, name: str, problem: str) -> None:
    answer = create(client, name)
    assert answer.error_code is ErrorCode.invalid_topic_exception
    assert answer.error_message == f"Topic name is invalid: {problem}"


def test_numbers_of_a_new_topic_are_refused_in_kafkas_words(client: WireClient) -> None:
    def refusal(**fields: Any) -> str:
        values = {"name": "n", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        (answer,) = client.ask(
            CREATE_TOPICS, 7, topics=[values | fields], timeout=5000, validate_only=False
        ).topics
        assert answer.error_code is not ErrorCode.none
        return str(answer.error_message)

    assert refusal(num_partitions=0) == "Number of partitions must be larger than 0."
    assert refusal(replication_factor=0) == "Replication factor must be larger than 0."
    assert "one replica here, not 3: brokers do not replicate yet" in refusal(replication_factor=3)
    too_many = [{"partition_index": number, "broker_ids": [1]} for number in range(10_001)]
    numbers = {"num_partitions": -1, "replication_factor": -1}
    assert refusal(num_partitions=10_001) == "a topic has 1 to 10000 partitions, not 10001"
    assert refusal(assignments=too_many, **numbers) == "a topic has 1 to 10000 partitions, not 10001"


def test_more_partitions_are_refused_in_kafkas_words(client: WireClient, topic: str) -> None:
    def refusal(count: int, brokers: list[list[int]] | None = None, name: str = topic) -> str:
        assignments = brokers and [{"broker_ids": each} for each in brokers]
        topics = [{"name": name, "count": count, "assignments": assignments}]
        answer = client.ask(CREATE_PARTITIONS, 3, topics=topics, timeout=1000, validate_only=True)
        return str(answer.results[0].error_message)

    assert refusal(1) == "Topic already has 1 partitions."
    assert refusal(0) == "Topic currently has 1 partitions, which is higher than the requested 0."
    assert refusal(2, name="nowhere") == "The topic 'nowhere' does not exist."
    assert refusal(3, [[1]]) == "Increasing the number of partitions by 2 but 1 assignments provided."
    assert refusal(2, [[9]]) == "Unknown broker(s) in replica assignment: 9."
    assert refusal(2, [[]]) == "Cannot have replication factor of 0 for partition id 1."
    duplicate = "Duplicate brokers not allowed in replica assignment: 1, 1 for partition id 1."
    assert refusal(2, [[1, 1]]) == duplicate


def test_deletion_of_what_is_not_there_is_refused_in_kafkas_words(client: WireClient) -> None:
    def refusal(**topic: Any) -> str:
        return str(client.ask(DELETE_TOPICS, 6, topics=[topic], timeout=1000).responses[0].error_message)

    assert refusal(name="nowhere", topic_id=None) == "This server does not host this topic-partition."
    assert refusal(name=None, topic_id=uuid4()) == "This server does not host this topic ID."


# -- without waiting -------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0, -1])
def test_create_without_time_is_done_and_said_to_have_timed_out(client: WireClient, timeout: int) -> None:
    name = f"hasty-{uuid4().hex[:8]}"
    assert create(client, name, timeout, validate_only=True).error_code is ErrorCode.none
    assert create(client, name, timeout).error_code is ErrorCode.request_timed_out
    assert partitions(client, name) == 1
    assert create(client, name, timeout).error_code is ErrorCode.topic_already_exists
    assert create(client, "no/name", timeout).error_code is ErrorCode.invalid_topic_exception


def test_partitions_added_without_time_are_there_and_said_to_have_timed_out(
    client: WireClient, topic: str
) -> None:
    def add(name: str, count: int, *, validate_only: bool = False) -> ErrorCode:
        wanted = [{"name": name, "count": count, "assignments": None}]
        answer = client.ask(CREATE_PARTITIONS, 3, topics=wanted, timeout=0, validate_only=validate_only)
        code: ErrorCode = answer.results[0].error_code
        return code

    assert add(topic, 3, validate_only=True) is ErrorCode.none
    assert add(topic, 3) is ErrorCode.request_timed_out
    assert partitions(client, topic) == 3
    assert add(topic, 3) is ErrorCode.invalid_partitions
    assert add("nowhere", 3) is ErrorCode.unknown_topic_or_partition


def test_delete_without_time_is_done_and_said_to_have_timed_out(client: WireClient, topic: str) -> None:
    def delete(name: str) -> ErrorCode:
        topics = [{"name": name, "topic_id": None}]
        code: ErrorCode = client.ask(DELETE_TOPICS, 6, topics=topics, timeout=0).responses[0].error_code
        return code

    assert delete(topic) is ErrorCode.request_timed_out
    deadline = time.monotonic() + 60
    while partitions(client, topic):
        assert time.monotonic() < deadline
    assert delete(topic) is ErrorCode.unknown_topic_or_partition


# -- many at a time --------------------------------------------------------------------------------


def test_topics_of_one_request_are_created_and_deleted_side_by_side(client: WireClient) -> None:
    prefix = f"many-{uuid4().hex[:8]}"
    names = [f"{prefix}-{number}" for number in range(40)]
    asked = [*names, f"{prefix}.x", f"{prefix}_x", f"{prefix}-twice", f"{prefix}-twice", "no/name", names[0]]
    topics = [
        {
            "name": name,
            "num_partitions": 2,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "retention.ms", "value": str(1000 + index)}] if index < 40 else [],
        }
        for index, name in enumerate(asked)
    ]
    answers = client.ask(CREATE_TOPICS, 7, topics=topics, timeout=30_000, validate_only=False).topics
    codes = {each.name: each.error_code for each in answers}
    assert len(answers) == len(asked)
    assert {code for name, code in codes.items() if name in names[1:]} == {ErrorCode.none}
    assert codes[names[0]] is ErrorCode.invalid_request  # it stands there twice
    assert codes[f"{prefix}.x"] is ErrorCode.none
    assert codes[f"{prefix}_x"] is ErrorCode.invalid_topic_exception
    assert codes[f"{prefix}-twice"] is ErrorCode.invalid_request
    assert codes["no/name"] is ErrorCode.invalid_topic_exception
    assert [partitions(client, name) for name in names] == [0, *[2] * 39]
    for index, name in enumerate(names[1:], 1):
        assert described(client, TOPIC, name, "retention.ms") == {"retention.ms": (str(1000 + index), 1)}
    doomed = [*names, names[5]]
    answer = client.ask(
        DELETE_TOPICS, 6, topics=[{"name": name, "topic_id": None} for name in doomed], timeout=30_000
    )
    assert [each.name for each in answer.responses] == doomed
    assert [each.error_code for each in answer.responses] == [
        ErrorCode.unknown_topic_or_partition,
        *[ErrorCode.none] * 40,
    ]
    assert {partitions(client, name) for name in names} == {0}


# -- AlterConfigs ----------------------------------------------------------------------------------


def alter(client: WireClient, kind: int, name: str, *, version: int = 2, **more: Any) -> ErrorCode:
    configs = [{"name": key, "value": value} for key, value in more.pop("configs", {}).items()]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    fields = {"validate_only": False, "resources": [resource], **more}
    answers = client.ask(ALTER_CONFIGS, version, **fields).responses
    code: ErrorCode = answers[0].error_code
    return code


def described(client: WireClient, kind: int, name: str, *keys: str) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    (answer,) = client.ask(
        DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=False, include_documentation=False
    ).results
    return {each.name: (each.value, each.config_source) for each in answer.configs}


KEYS = ("retention.ms", "segment.bytes", "cleanup.policy")


@pytest.mark.parametrize("version", range(3))
def test_alter_configs_replaces_everything_that_a_topic_had(
    client: WireClient, topic: str, version: int
) -> None:
    first = {"retention.ms": "1000", "segment.bytes": "2000"}
    assert alter(client, TOPIC, topic, version=version, configs=first) is ErrorCode.none
    assert described(client, TOPIC, topic, *KEYS) == {
        "retention.ms": ("1000", 1),
        "segment.bytes": ("2000", 1),
        "cleanup.policy": ("delete", 5),
    }
    assert (
        alter(client, TOPIC, topic, version=version, configs={"cleanup.policy": "compact"}) is ErrorCode.none
    )
    assert described(client, TOPIC, topic, *KEYS) == {
        "retention.ms": ("604800000", 5),
        "segment.bytes": ("1073741824", 5),
        "cleanup.policy": ("compact", 1),
    }
    assert alter(client, TOPIC, topic, version=version) is ErrorCode.none
    assert described(client, TOPIC, topic, "cleanup.policy") == {"cleanup.policy": ("delete", 5)}


def test_alter_configs_that_is_refused_or_only_validated_changes_nothing(
    client: WireClient, topic: str
) -> None:
    good = {"retention.ms": "1000"}
    assert alter(client, TOPIC, topic, configs=good) is ErrorCode.none
    assert alter(client, TOPIC, topic, validate_only=True, configs={"retention.ms": "5"}) is ErrorCode.none
    for wrong in ({"retention.ms": "long"}, {"no.such.key": "1"}, {**good, "segment.bytes": "1"}):
        assert alter(client, TOPIC, topic, configs=wrong) is ErrorCode.invalid_config
    assert alter(client, TOPIC, topic, configs={"retention.ms": None}) is ErrorCode.invalid_request
    twice = {
        "resource_type": TOPIC,
        "resource_name": topic,
        "configs": [{"name": "retention.ms", "value": "7"}] * 2,
    }
    assert alter(client, TOPIC, topic, resources=[twice]) is ErrorCode.invalid_request
    once = {**twice, "configs": twice["configs"][:1]}
    assert alter(client, TOPIC, topic, resources=[once, once]) is ErrorCode.invalid_request
    assert alter(client, TOPIC, "nowhere", configs=good) is ErrorCode.unknown_topic_or_partition
    assert alter(client, 99, topic, configs=good) is ErrorCode.invalid_request
    assert described(client, TOPIC, topic, "retention.ms") == {"retention.ms": ("1000", 1)}


def test_alter_configs_of_brokers_takes_what_may_change_while_they_run(client: WireClient) -> None:
    key = "log.retention.ms"
    try:
        assert alter(client, BROKER, "", configs={key: "1000"}) is ErrorCode.none
        assert alter(client, BROKER, "1", configs={key: "2000", "max.connections": "77"}) is ErrorCode.none
        assert described(client, BROKER, "1", key, "max.connections") == {
            key: ("2000", 2),
            "max.connections": ("77", 2),
        }
        assert alter(client, BROKER, "1") is ErrorCode.none
        assert described(client, BROKER, "1", key) == {key: ("1000", 3)}
        assert alter(client, BROKER, "1", configs={"broker.id": "2"}) is ErrorCode.invalid_request
        assert alter(client, BROKER, "9", configs={key: "1"}) is ErrorCode.invalid_request
    finally:
        for name in ("", "1"):
            assert alter(client, BROKER, name) is ErrorCode.none


def test_alter_configs_of_kerberos_are_taken_for_one_broker_only(client: WireClient) -> None:
    """Nothing here depends on them, but librdkafka's own tests change one, as a setting that every broker takes."""
    key = "sasl.kerberos.min.time.before.relogin"
    try:
        assert alter(client, BROKER, "1", configs={key: "58000"}) is ErrorCode.none
        assert described(client, BROKER, "1", key) == {key: ("58000", 2)}
        assert alter(client, BROKER, "", configs={key: "58000"}) is ErrorCode.invalid_request
    finally:
        assert alter(client, BROKER, "1") is ErrorCode.none


def test_names_that_collide_are_told_apart_within_a_request_and_with_topics(client: WireClient) -> None:
    """Kafka's metrics have underscores for periods."""
    unique = uuid4().hex[:8]
    assert create(client, f"a.{unique}").error_code is ErrorCode.none
    names = [f"a_{unique}", f"b.{unique}.c", f"b_{unique}_c", f"b_{unique}.d", f"e{unique}"]
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in names
    ]
    answers = client.ask(CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=True).topics
    messages = {each.name: each.error_message for each in answers}
    assert messages == {
        names[0]: f"Topic '{names[0]}' collides with existing topics: a.{unique}",
        names[1]: None,
        names[2]: f"Topic '{names[2]}' collides with existing topics: {names[1]}",
        names[3]: None,
        names[4]: None,
    }


def test_topics_of_one_request_are_held_to_a_number_of_partitions_together(client: WireClient) -> None:
    unique = uuid4().hex[:8]
    topics = [
        {
            "name": f"{unique}-{number}",
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for number, partitions in enumerate((9_000, 1_001, 1_000, 1))
    ]
    answers = client.ask(CREATE_TOPICS, 7, topics=topics, timeout=5000, validate_only=True).topics
    too_many = "a request makes at most 10000 partitions, of all topics together"
    assert [each.error_message for each in answers] == [None, too_many, None, too_many]


# -- what happens while many logs are made -------------------------------------------------------------

MANY = 600


def ask_for_many(client: WireClient, directory: Path, name: str) -> None:
    """Returns while they are being made."""
    more = [{"name": name, "count": MANY, "assignments": None}]
    client.send(CREATE_PARTITIONS, 1, topics=more, timeout=30_000, validate_only=False)
    while not (directory / f"{name}-5").exists():
        time.sleep(0.001)


def directories_of(directory: Path, name: str) -> int:
    return len(list(directory.glob(f"{name}-*")))


def test_topic_that_is_deleted_and_made_again_while_its_logs_are_made_is_the_new_one(tmp_path: Path) -> None:
    with broker(tmp_path) as running, WireClient(running.bootstrap) as asking:
        create(asking, "t")
        ask_for_many(asking, tmp_path, "t")
        with WireClient(running.bootstrap) as client:
            (deleted,) = client.ask(DELETE_TOPICS, 3, topic_names=["t"], timeout=30_000).responses
            assert deleted.error_code is ErrorCode.none
            assert create(client, "t").error_code is ErrorCode.none
            assert partitions(client, "t") == 1
            assert asking.receive().results[0].error_code is ErrorCode.none
            deadline = time.monotonic() + 30
            while directories_of(tmp_path, "t") > 1:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert (tmp_path / "t-0").is_dir()


def test_broker_that_stops_while_logs_are_made_makes_the_others_when_it_starts(tmp_path: Path) -> None:
    with broker(tmp_path) as running, WireClient(running.bootstrap) as asking:
        create(asking, "t")
        ask_for_many(asking, tmp_path, "t")
    assert 5 < directories_of(tmp_path, "t") < MANY
    with broker(tmp_path) as running, WireClient(running.bootstrap) as client:
        assert partitions(client, "t") == MANY
        assert directories_of(tmp_path, "t") == MANY
