"""CreateTopics, DeleteTopics and CreatePartitions."""

import asyncio
import datetime as dt
import re
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar
from uuid import UUID, uuid4
from zlib import crc32

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import (
    AlreadyExists,
    Change,
    ChangeKind,
    CoordinationError,
    TopicState,
)
from headwater_broker.log import InvalidConfigError, LogConfig
from headwater_broker.server.core import Request, Response
from headwater_broker.server.described import Describer
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.internal_topics import INTERNAL_TOPICS, partitions_and_configs
from headwater_broker.server.node import Node
from headwater_broker.server.quotas import MutationQuota
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from headwater_broker.wire.codec import milliseconds
from headwater_client import COUNTS_TOPIC

_KRAFT_TOPIC = "__cluster_metadata"
_MAX_NAME_LENGTH = 249
_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{_MAX_NAME_LENGTH}}}")
_MAX_PARTITIONS = 10_000  # of one topic: each is a directory with three open files
_POLL_S = 0.02
_PLANNED_AT_ONCE = 20
"""Topics of a request whose plans take some ten milliseconds, with the description of their settings."""
_CHANGED_AT_ONCE = 100
"""Topics that shared state is asked for side by side; with more, they would not be there sooner."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _NewTopic:
    """What a request wants created."""

    assignment: Mapping[int, Sequence[int]]
    configs: Mapping[str, str]


class _Alike:
    """Names of topics by their form with underscores for periods, as in the names of Kafka's metrics."""

    def __init__(self, names: Iterable[str]) -> None:
        self._by_look: dict[str, list[str]] = {}
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        """Adds one."""
        self._by_look.setdefault(name.replace(".", "_"), []).append(name)

    def to(self, name: str) -> list[str]:
        """Other names that look the same."""
        return [each for each in self._by_look.get(name.replace(".", "_"), ()) if each != name]


class TopicAdmin:
    """Makes and removes topics in shared state; the logs follow from there."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._describer = Describer(node.live, node.places)
        node.core.register(CREATE_TOPICS, self.create_topics)
        node.core.register(DELETE_TOPICS, self.delete_topics)
        node.core.register(CREATE_PARTITIONS, self.create_partitions)

    # -- creating --------------------------------------------------------------------------------------

    async def create_automatically(self, name: str) -> None:
        """Creates a topic that somebody asked for, with the broker's defaults; an existing one is no error.

        Raises:
            ApiError: The name is not allowed, or shared state refused.
        """
        settings = self._node.settings
        if name in INTERNAL_TOPICS or name == COUNTS_TOPIC:
            try:
                await self.create_internal(name)
            except CoordinationError as error:
                raise ApiError(ErrorCode.leader_not_available, str(error)) from error
            return
        may_collide = "_" in name or "." in name
        _check_name(name, _Alike(self._node.cluster.topics if may_collide else ()))
        assignment = self._assign(name, settings.num_partitions, settings.default_replication_factor)
        try:
            await self._create(name, assignment, {})
        except AlreadyExists:
            await self._node.state.settle(Change(ChangeKind.TOPICS, name))
        except CoordinationError as error:
            raise ApiError(ErrorCode.leader_not_available, str(error)) from error

    async def create_internal(self, name: str) -> None:
        """Creates a topic that brokers write to; an existing one is no error.

        Raises:
            CoordinationError: Shared state refused.
        """
        brokers = len(self._node.cluster.brokers)
        partitions, configs = partitions_and_configs(name, self._node.settings, brokers)
        try:
            await self._create(name, self._assign(name, partitions, 1), configs)
        except AlreadyExists:
            await self._node.state.settle(Change(ChangeKind.TOPICS, name))

    def why_missing(self, name: str) -> ErrorCode:
        """The error code for a topic that is not there."""
        is_name = _NAME.fullmatch(name) and name not in (".", "..")
        return ErrorCode.unknown_topic_or_partition if is_name else ErrorCode.invalid_topic_exception

    async def create_topics(self, request: Request) -> Response:
        """Answers CreateTopics, each topic for itself."""
        body = request.body
        names = Counter(topic.name for topic in body.topics)
        quota = self._quota(request, strict_from=6)
        answers: list[Response] = []
        planned: dict[str, _NewTopic] = {}
        alike = _Alike(())
        async for name in unhurried(list(self._node.cluster.topics)):
            alike.add(name)
        room = _MAX_PARTITIONS
        for number, topic in enumerate(body.topics):
            if number % _PLANNED_AT_ONCE == _PLANNED_AT_ONCE - 1:
                await asyncio.sleep(0)  # others are served between
            try:
                if names[topic.name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Found multiple entries for this topic.")
                plan = self._plan(topic, alike)
                if len(plan.assignment) > room:
                    message = f"a request makes at most {_MAX_PARTITIONS} partitions, of all topics together"
                    raise ApiError(ErrorCode.invalid_partitions, message)
                quota.pay(len(plan.assignment))
                room -= len(plan.assignment)
            except (ApiError, InvalidConfigError) as error:
                answers.append(_refused(topic.name, error))
            else:
                planned[topic.name] = plan
                alike.add(topic.name)
                answers.append(self._created(topic.name, plan))
        if not request.get("validate_only", False):
            outcomes = await self._create_all(planned)
            async for index, answer in unhurried(enumerate(answers)):
                name = answer["name"]
                if name not in planned or names[name] > 1:
                    continue
                outcome = outcomes[name]
                if isinstance(outcome, TopicState) and milliseconds(body.timeout) <= 0:
                    outcome = _out_of_time()
                answers[index] = (
                    {**answer, "topic_id": outcome.topic_id}
                    if isinstance(outcome, TopicState)
                    else _refused(name, outcome)
                )
        return {"topics": answers, "throttle_time": quota.throttle_ms}

    async def _create_all(
        self, planned: Mapping[str, _NewTopic]
    ) -> dict[str, TopicState | ApiError | CoordinationError]:
        """Creates topics side by side; returns what became of each once all of them can be used."""
        results: dict[str, TopicState | ApiError | CoordinationError] = {}
        plans = list(planned.items())
        for start in range(0, len(plans), _CHANGED_AT_ONCE):
            some = plans[start : start + _CHANGED_AT_ONCE]
            outcomes = await _side_by_side(
                self._node.ask(
                    self._node.coordinator.create_topic, name, plan.assignment, plan.configs, uuid4()
                )
                for name, plan in some
            )
            results.update(zip((name for name, _ in some), outcomes, strict=True))
        await self._settle_on(name for name, outcome in results.items() if isinstance(outcome, TopicState))
        return results

    def _quota(self, request: Request, *, strict_from: int) -> MutationQuota:
        """What pays for the request; from that version on clients understand THROTTLING_QUOTA_EXCEEDED."""
        return self._node.security.quotas.mutation(
            request.connection, request.client_id, is_strict=request.version >= strict_from
        )

    def _plan(self, topic: Any, alike: _Alike) -> _NewTopic:
        """What is to be created for a topic of a request.

        Raises:
            ApiError, InvalidConfigError: It cannot be created.
        """
        settings = self._node.settings
        name: str = topic.name
        if name == _KRAFT_TOPIC:
            message = f"Creation of internal topic {name} is prohibited."
            raise ApiError(ErrorCode.invalid_request, message)
        _check_name(name, alike)
        if name in self._node.cluster.topics or name in self._node.cluster.deleting:
            raise ApiError(ErrorCode.topic_already_exists, f"Topic '{name}' already exists.")
        nulls = [config.name for config in topic.configs if config.value is None]
        if nulls:
            message = f"Null value not supported for topic configs: {', '.join(nulls)}"
            raise ApiError(ErrorCode.invalid_config, message)
        configs = {config.name: config.value for config in topic.configs}
        LogConfig.parse(configs, settings.log)
        if topic.assignments:
            if topic.num_partitions != -1 or topic.replication_factor != -1:
                message = "give an assignment, or numbers of partitions and replicas, not both"
                raise ApiError(ErrorCode.invalid_request, message)
            assignment = self._checked_assignment(
                {each.partition_index: each.broker_ids for each in topic.assignments}, first=0
            )
        else:
            partitions = settings.num_partitions if topic.num_partitions == -1 else topic.num_partitions
            replicas = (
                settings.default_replication_factor
                if topic.replication_factor == -1
                else topic.replication_factor
            )
            assignment = self._assign(name, partitions, replicas)
        return _NewTopic(assignment, configs)

    def _created(self, name: str, plan: _NewTopic) -> Response:
        """The answer for a topic whose id is not known yet."""
        return {
            "name": name,
            "topic_id": None,
            "error_code": ErrorCode.none,
            "error_message": None,
            "num_partitions": len(plan.assignment),
            "replication_factor": len(plan.assignment[0]),
            "configs": self._describer.topic(plan.configs, synonyms=False, documentation=False),
        }

    async def _create(
        self, name: str, assignment: Mapping[int, Sequence[int]], configs: Mapping[str, str]
    ) -> TopicState:
        node = self._node
        topic_id: UUID = uuid4()
        created = await node.ask(node.coordinator.create_topic, name, assignment, configs, topic_id)
        await self._settle_on([name])
        return created

    async def _settle_on(self, names: Iterable[str]) -> None:
        changes = [
            (Change(ChangeKind.TOPICS, each), Change(ChangeKind.CONFIGS, f"topics/{each}")) for each in names
        ]
        if changes:
            await self._node.state.settle(*chain.from_iterable(changes))

    def _assign(
        self, name: str, partitions: int, replicas: int, *, first: int = 0
    ) -> dict[int, tuple[int, ...]]:
        """Spreads partitions over the live brokers, each topic from another broker on."""
        if partitions < 1:
            raise ApiError(ErrorCode.invalid_partitions, "Number of partitions must be larger than 0.")
        _check_number(partitions)
        self._check_replicas(replicas)
        brokers = list(self._node.cluster.brokers) or [self._node.me.broker_id]
        start = crc32(name.encode())
        return {
            partition: (brokers[(start + partition) % len(brokers)],)
            for partition in range(first, first + partitions)
        }

    def _checked_assignment(
        self, assignment: Mapping[int, Sequence[int]], *, first: int
    ) -> dict[int, tuple[int, ...]]:
        if sorted(assignment) != list(range(first, first + len(assignment))):
            message = f"partitions should be a consecutive {first}-based integer sequence"
            raise ApiError(ErrorCode.invalid_replica_assignment, message)
        _check_number(first + len(assignment))
        for partition, brokers in assignment.items():
            problem = self._problem_of_replicas(partition, brokers)
            if problem is not None:
                raise ApiError(ErrorCode.invalid_replica_assignment, problem)
        for brokers in assignment.values():
            self._check_replicas(len(brokers))
        return {partition: tuple(brokers) for partition, brokers in sorted(assignment.items())}

    def _problem_of_replicas(self, partition: int, brokers: Sequence[int]) -> str | None:
        if not brokers:
            return f"Cannot have replication factor of 0 for partition id {partition}."
        if len(set(brokers)) < len(brokers):
            named = ", ".join(map(str, brokers))
            return (
                f"Duplicate brokers not allowed in replica assignment: {named} for partition id {partition}."
            )
        unknown = [str(each) for each in brokers if each not in self._node.cluster.brokers]
        return f"Unknown broker(s) in replica assignment: {', '.join(unknown)}." if unknown else None

    def _check_replicas(self, replicas: int) -> None:
        if replicas < 1:
            raise ApiError(ErrorCode.invalid_replication_factor, "Replication factor must be larger than 0.")
        if replicas > 1:
            message = f"a partition has one replica here, not {replicas}: brokers do not replicate yet"
            raise ApiError(ErrorCode.invalid_replication_factor, message)

    # -- deleting --------------------------------------------------------------------------------------

    async def delete_topics(self, request: Request) -> Response:
        """Answers DeleteTopics once the topics are gone, or the request's time has run out."""
        body = request.body
        requested: list[tuple[str | None, UUID | None]] = [
            (each, None) if isinstance(each, str) else (each.name, each.topic_id)
            async for each in unhurried(request.get("topics") or request.get("topic_names") or ())
        ]
        quota = self._quota(request, strict_from=5)
        is_malformed = any(name is not None and topic_id is not None for name, topic_id in requested)
        doomed: dict[str, None] = {}
        results: list[tuple[str | None, UUID | None, Exception | None]] = []
        async for requested_name, topic_id in unhurried(requested):
            name = requested_name
            try:
                if is_malformed:
                    reason = "Topic name and topic ID can not both be specified."
                    raise ApiError(ErrorCode.invalid_request, reason)
                self._check_deletion(request)
                name = self._resolve(name, topic_id)
                if name not in doomed:
                    self._check_present(name)
                    quota.pay(len(self._node.cluster.topics[name].partitions))
                    doomed[name] = None
            except ApiError as error:
                results.append((name, topic_id, error))
            else:
                results.append((name, topic_id, None))
        failed = await self._delete_all(list(doomed), body.timeout)
        answers = []
        async for name, topic_id, refusal in unhurried(results):
            why = refusal or failed.get(name or "")
            answers.append(
                {
                    "name": name,
                    "topic_id": topic_id,
                    "error_code": ErrorCode.none if why is None else error_code(why),
                    "error_message": None if why is None else str(why),
                }
            )
        return {"responses": answers, "throttle_time": quota.throttle_ms}

    def _check_deletion(self, request: Request) -> None:
        if not self._node.settings.delete_topic_enable:
            # The code is newer than version 2.
            code = ErrorCode.topic_deletion_disabled if request.version >= 3 else ErrorCode.invalid_request
            raise ApiError(code, "Topic deletion is disabled.")

    def _resolve(self, name: str | None, topic_id: UUID | None) -> str:
        """The name of a topic given by name or id."""
        if name is not None:
            return name
        topic = None if topic_id is None else self._node.cluster.topic_by_id(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.unknown_topic_id, "This server does not host this topic ID.")
        return topic.name

    def _check_present(self, name: str) -> None:
        if name not in self._node.cluster.topics:
            message = "This server does not host this topic-partition."
            raise ApiError(ErrorCode.unknown_topic_or_partition, message)

    async def _delete_all(self, names: Sequence[str], timeout: dt.timedelta) -> Mapping[str, Exception]:
        """Deletes topics side by side and waits until they are gone; returns what went wrong with which."""
        node, loop = self._node, asyncio.get_running_loop()
        deadline = loop.time() + milliseconds(timeout) / 1000
        outcomes: list[Any] = []
        for start in range(0, len(names), _CHANGED_AT_ONCE):
            some = names[start : start + _CHANGED_AT_ONCE]
            outcomes += await _side_by_side(node.ask(node.coordinator.delete_topic, name) for name in some)
        failed = {
            name: each for name, each in zip(names, outcomes, strict=True) if isinstance(each, Exception)
        }
        waited_for = [name for name in names if name not in failed]
        if waited_for:
            changes = (Change(ChangeKind.TOPICS, name) for name in waited_for)
            await node.state.settle(Change(ChangeKind.DELETIONS), *changes)
        if milliseconds(timeout) <= 0:
            failed.update((name, _out_of_time()) for name in waited_for)
            return failed
        while remaining := [name for name in waited_for if name in node.cluster.deleting]:
            if loop.time() >= deadline:
                for name in remaining:
                    message = f"topic {name} is marked, but not all of its logs are gone yet"
                    failed[name] = ApiError(ErrorCode.request_timed_out, message)
                break
            await asyncio.sleep(_POLL_S)
        return failed

    # -- more partitions -------------------------------------------------------------------------------

    async def create_partitions(self, request: Request) -> Response:
        """Answers CreatePartitions, each topic for itself."""
        quota = self._quota(request, strict_from=3)
        counts = Counter(topic.name for topic in request.body.topics)
        topics = {topic.name: topic for topic in request.body.topics}
        answers = []
        async for name, topic in unhurried(topics.items()):
            code, message = ErrorCode.none, None
            try:
                if counts[name] > 1:
                    raise ApiError(ErrorCode.invalid_request, "Duplicate topic in request.")
                await self._add_partitions(topic, quota, validate_only=request.body.validate_only)
                if not request.body.validate_only and milliseconds(request.body.timeout) <= 0:
                    raise _out_of_time()
            except (ApiError, CoordinationError) as error:
                code, message = error_code(error), str(error)
            answers.append({"name": name, "error_code": code, "error_message": message})
        return {"results": answers, "throttle_time": quota.throttle_ms}

    async def _add_partitions(self, topic: Any, quota: MutationQuota, *, validate_only: bool) -> None:
        node = self._node
        if topic.name in node.cluster.deleting:
            raise ApiError(ErrorCode.invalid_topic_exception, "The topic is queued for deletion.")
        state = node.cluster.topics.get(topic.name)
        if state is None:
            raise ApiError(ErrorCode.unknown_topic_or_partition, f"The topic '{topic.name}' does not exist.")
        if topic.name in INTERNAL_TOPICS:
            message = f"{topic.name} keeps its partitions: ids are spread over them by their number"
            raise ApiError(ErrorCode.invalid_partitions, message)
        present = len(state.partitions)
        if topic.count == present:
            raise ApiError(ErrorCode.invalid_partitions, f"Topic already has {present} partitions.")
        if topic.count < present:
            message = (
                f"Topic currently has {present} partitions, which is higher than the requested {topic.count}."
            )
            raise ApiError(ErrorCode.invalid_partitions, message)
        _check_number(topic.count)
        if topic.assignments is None:
            assignment = self._assign(topic.name, topic.count - present, 1, first=present)
        else:
            requested = {present + index: each.broker_ids for index, each in enumerate(topic.assignments)}
            if len(requested) != topic.count - present:
                message = (
                    f"Increasing the number of partitions by {topic.count - present} "
                    f"but {len(requested)} assignments provided."
                )
                raise ApiError(ErrorCode.invalid_replica_assignment, message)
            assignment = self._checked_assignment(requested, first=present)
        quota.pay(len(assignment))
        if not validate_only:
            await node.ask(node.coordinator.add_partitions, topic.name, assignment)
            await node.state.settle(Change(ChangeKind.TOPICS, topic.name))


def check_topic_name(name: str) -> None:
    """Checks that a topic could have this name.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > _MAX_NAME_LENGTH:
        problem = f"the length of '{name}' is longer than the max allowed length {_MAX_NAME_LENGTH}"
    elif _NAME.fullmatch(name):
        return
    else:
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    raise ApiError(ErrorCode.invalid_topic_exception, f"Topic name is invalid: {problem}")


def _check_name(name: str, alike: _Alike) -> None:
    check_topic_name(name)
    colliding = alike.to(name)
    if colliding:
        message = f"Topic '{name}' collides with existing topics: {', '.join(colliding)}"
        raise ApiError(ErrorCode.invalid_topic_exception, message)


def _check_number(partitions: int) -> None:
    if partitions > _MAX_PARTITIONS:
        message = f"a topic has 1 to {_MAX_PARTITIONS} partitions, not {partitions}"
        raise ApiError(ErrorCode.invalid_partitions, message)


def _out_of_time() -> ApiError:
    """What Kafka tells a client that gave no time; what it asked for is done all the same."""
    return ApiError(ErrorCode.request_timed_out, "the request did not want to wait")


async def _side_by_side(calls: Iterable[Awaitable[T]]) -> list[T | ApiError | CoordinationError]:
    """The results of calls of shared state, or its refusals."""
    outcomes: list[T | ApiError | CoordinationError] = []
    for outcome in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, CoordinationError):
            raise outcome
        outcomes.append(outcome)
    return outcomes


def _refused(name: str, error: Exception) -> Response:
    return {
        "name": name,
        "topic_id": None,
        "error_code": error_code(error),
        "error_message": str(error),
        "configs": None,
    }
