"""What Metadata answers about topics that are not there, as bytes of Kafka's protocol."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.testing import RunningBroker
from headwater_broker.testing.wire import WireClient
from headwater_broker.wire import apis

DEADLINE_S = 60


def test_metadata_that_creates_a_topic_answers_leader_not_available_once(any_broker: RunningBroker) -> None:
    name = f"topic-{uuid4().hex[:8]}"
    with WireClient(any_broker.bootstrap) as client:
        [created] = client.ask(
            apis.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True
        ).topics
        assert (created.error_code, created.partitions) == (ErrorCode.leader_not_available, ())
        [described] = client.ask(
            apis.METADATA, 4, topics=[{"name": name}], allow_auto_topic_creation=True
        ).topics
        assert (described.error_code, len(described.partitions)) == (ErrorCode.none, 1)


def test_metadata_just_after_a_deletion_shows_no_partitions(any_broker: RunningBroker) -> None:
    """kafka-go's own tests ask so, with a request that would create the topic again."""
    name = f"topic-{uuid4().hex[:8]}"
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    with WireClient(any_broker.bootstrap) as client:
        [made] = client.ask(
            apis.CREATE_TOPICS, 4, topics=[topic], timeout=DEADLINE_S * 1000, validate_only=False
        ).topics
        assert made.error_code is ErrorCode.none
        [gone] = client.ask(apis.DELETE_TOPICS, 3, topic_names=[name], timeout=DEADLINE_S * 1000).responses
        assert gone.error_code is ErrorCode.none
        [described] = client.ask(apis.METADATA, 1, topics=[{"name": name}]).topics
        assert (described.error_code, described.partitions) == (ErrorCode.leader_not_available, ())
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            [described] = client.ask(apis.METADATA, 1, topics=[{"name": name}]).topics
            if described.error_code is ErrorCode.none:
                break
        assert len(described.partitions) == 1


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize(
    "topic", [{"name": "clicks", "topic_id": UUID(int=1)}, {"name": None, "topic_id": None}]
)
def test_metadata_by_id_before_there_were_answers_to_it_is_refused(
    any_broker: RunningBroker, version: int, topic: dict[str, Any]
) -> None:
    """As Kafka refuses it, all of the request: these versions have ids, and no way to leave out a name."""
    named = {"name": f"topic-{uuid4().hex[:8]}", "topic_id": None}
    with WireClient(any_broker.bootstrap) as client:
        answer = client.ask(
            *(apis.METADATA, version),
            topics=[topic, named],
            allow_auto_topic_creation=True,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        assert [each.error_code for each in answer.topics] == [ErrorCode.invalid_request] * 2
        assert [each.name for each in answer.topics] == [topic["name"] or "", named["name"]]


def test_one_request_about_thousands_of_topics_lets_others_be_answered_first(
    any_broker: RunningBroker,
) -> None:
    """Its answer is that of a request about each alone, and comes in its connection's order."""
    name = f"topic-{uuid4().hex[:8]}"
    topic = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    resource = {"resource_type": 2, "resource_name": name, "configuration_keys": None}
    described = {"include_synonyms": True, "include_documentation": False}
    named = {"allow_auto_topic_creation": False}
    with WireClient(any_broker.bootstrap) as many, WireClient(any_broker.bootstrap) as other:
        many.ask(apis.CREATE_TOPICS, 4, topics=[topic], timeout=DEADLINE_S * 1000, validate_only=False)
        [alone] = many.ask(apis.DESCRIBE_CONFIGS, 4, resources=[resource], **described).results
        [shown] = many.ask(apis.METADATA, 4, topics=[{"name": name}], **named).topics
        many.send(apis.DESCRIBE_CONFIGS, 4, resources=[resource] * 2000, **described)
        many.send(apis.METADATA, 4, topics=[{"name": name}] * 2000, **named)
        many.send(apis.API_VERSIONS, 0)
        for _ in range(5):
            assert other.ask(apis.API_VERSIONS, 0).error_code is ErrorCode.none
        assert not many.has_answer()
        assert set(many.receive().results) == {alone}
        assert set(many.receive().topics) == {shown}
        assert many.receive().error_code is ErrorCode.none
