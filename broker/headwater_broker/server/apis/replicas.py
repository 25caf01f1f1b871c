"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments, where brokers do not replicate yet.

Elections and what is being reassigned are answered from the state as it is kept. A partition's data cannot move
to another broker, so that a reassignment which would need that is refused with the reason.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import (
    Change,
    ChangeKind,
    CoordinationError,
    PartitionState,
    TopicPartition,
)
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import (
    ALTER_PARTITION_REASSIGNMENTS,
    ELECT_LEADERS,
    LIST_PARTITION_REASSIGNMENTS,
)

_PREFERRED, _UNCLEAN = 0, 1


class ReplicaApis:
    """Who leads partitions, and where their replicas are."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(ELECT_LEADERS, self.elect_leaders)
        node.core.register(ALTER_PARTITION_REASSIGNMENTS, self.alter_reassignments)
        node.core.register(LIST_PARTITION_REASSIGNMENTS, self.list_reassignments)

    # -- elections -------------------------------------------------------------------------------------

    async def elect_leaders(self, request: Request) -> Response:
        """Makes preferred replicas the leaders; asked about all, tells those only where something happened."""
        kind = request.get("election_type", _PREFERRED)
        if kind not in (_PREFERRED, _UNCLEAN):
            return {"error_code": ErrorCode.invalid_request, "replica_election_results": []}
        requested = request.body.topic_partitions
        if requested is None:
            names: list[TopicPartition] = [
                (name, index)
                for name, topic in sorted(self._node.cluster.topics.items())
                for index in sorted(topic.partitions)
            ]
        else:
            names = [(topic.topic, index) for topic in requested for index in topic.partitions]
        results: dict[str, list[Response]] = {}
        for name, index in names:
            code, message = ErrorCode.none, None
            try:
                await self._elect(name, index, kind)
            except (ApiError, CoordinationError) as error:
                code, message = error_code(error), str(error)
            if requested is not None or code is not ErrorCode.election_not_needed:
                results.setdefault(name, []).append(
                    {"partition_id": index, "error_code": code, "error_message": message}
                )
        return {
            "error_code": ErrorCode.none,
            "replica_election_results": [
                {"topic": name, "partition_result": partitions} for name, partitions in results.items()
            ],
        }

    async def _elect(self, name: str, index: int, kind: int) -> None:
        state = self._partition(name, index)
        live = self._node.cluster.brokers
        preferred = state.replicas[0]
        if state.leader in live and (kind == _UNCLEAN or state.leader == preferred):
            raise ApiError(ErrorCode.election_not_needed, "Leader election not needed for topic partition.")
        eligible = [preferred] if kind == _PREFERRED else list(state.replicas)
        chosen = next((each for each in eligible if each in live), None)
        if kind == _PREFERRED and (chosen is None or chosen not in state.isr):
            message = f"Failed to elect leader for partition {name}-{index} under strategy PreferredReplica"
            raise ApiError(ErrorCode.preferred_leader_not_available, message)
        if chosen is None:
            message = f"Failed to elect leader for partition {name}-{index} under strategy OfflinePartition"
            raise ApiError(ErrorCode.eligible_leaders_not_available, message)
        isr = state.isr if chosen in state.isr else (chosen,)
        elected = replace(state, leader=chosen, leader_epoch=state.leader_epoch + 1, isr=isr)
        node = self._node
        if not await node.ask(node.coordinator.set_leader_states, {(name, index): elected}):
            raise ApiError(ErrorCode.request_timed_out, "the partition's state was changed by somebody else")
        await node.state.settle(Change(ChangeKind.TOPICS, name))

    def _partition(self, name: str, index: int) -> PartitionState:
        topic = self._node.cluster.topics.get(name)
        if topic is None or index not in topic.partitions:
            raise ApiError(ErrorCode.unknown_topic_or_partition, "The partition does not exist.")
        return topic.partitions[index]

    # -- reassignment ----------------------------------------------------------------------------------

    async def alter_reassignments(self, request: Request) -> Response:
        """Accepts assignments that are in force already, and refuses others, each partition for itself."""
        responses = []
        async for topic in unhurried(request.body.topics):
            partitions = []
            async for partition in unhurried(topic.partitions):
                code, message = ErrorCode.none, None
                try:
                    self._check_reassignment(topic.name, partition.partition_index, partition.replicas)
                except ApiError as error:
                    code, message = error.code, str(error)
                partitions.append(
                    {
                        "partition_index": partition.partition_index,
                        "error_code": code,
                        "error_message": message,
                    }
                )
            responses.append({"name": topic.name, "partitions": partitions})
        return {"error_code": ErrorCode.none, "error_message": None, "responses": responses}

    def _check_reassignment(self, name: str, index: int, replicas: Sequence[int] | None) -> None:
        state = self._partition(name, index)
        if replicas is None:
            message = "No partition reassignment is in progress."
            raise ApiError(ErrorCode.no_reassignment_in_progress, message)
        if not replicas:
            message = "Empty replica list specified in partition reassignment."
        elif len(set(replicas)) < len(replicas):
            message = f"Duplicate replica ids in partition reassignment replica list: {list(replicas)}"
        elif min(replicas) < 0:
            message = f"Invalid broker id in replica list: {list(replicas)}"
        elif not self._node.cluster.brokers.keys() >= set(replicas):
            live = sorted(self._node.cluster.brokers)
            message = (
                "Replica assignment has brokers that are not alive. "
                f"Replica list: {list(replicas)}, live broker list: {live}"
            )
        elif tuple(replicas) != state.replicas:
            message = f"brokers do not replicate yet: the partition stays on {list(state.replicas)}"
        else:
            return
        raise ApiError(ErrorCode.invalid_replica_assignment, message)

    def list_reassignments(self, request: Request) -> Response:
        """Partitions whose replicas are being moved."""
        requested_topics = request.body.topics
        requested: dict[str, set[int]] | None = None
        if requested_topics is not None:
            requested = {topic.name: set(topic.partition_indexes) for topic in requested_topics}
        topics: list[dict[str, Any]] = []
        for name, topic in sorted(self._node.cluster.topics.items()):
            partitions = [
                {
                    "partition_index": index,
                    "replicas": state.replicas,
                    "adding_replicas": state.adding,
                    "removing_replicas": state.removing,
                }
                for index, state in sorted(topic.partitions.items())
                if (state.adding or state.removing)
                and (requested is None or index in requested.get(name, ()))
            ]
            if partitions:
                topics.append({"name": name, "partitions": partitions})
        return {"error_code": ErrorCode.none, "error_message": None, "topics": topics}
