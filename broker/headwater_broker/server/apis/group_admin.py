"""DescribeGroups, ListGroups and DeleteGroups: what an operator asks about groups."""

from collections.abc import Collection, Mapping

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import AlreadyOwned, CoordinationError
from headwater_broker.groups import GroupDescription, GroupError, describe_registered
from headwater_broker.server.answers import undescribed_group
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError
from headwater_broker.server.group_offsets import GroupOffsets, StagedOffsets
from headwater_broker.server.group_runner import GroupRunner, group_error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS

_CLASSIC = "classic"


class GroupAdminApis:
    """Groups with members live in the group coordinator, or (ZooKeeper consumers and streaming jobs) by
    themselves in shared state; the others are known by their offsets, those of open transactions too.
    """

    def __init__(
        self,
        node: Node,
        runner: GroupRunner,
        offsets: GroupOffsets,
        staged: StagedOffsets,
    ) -> None:
        self._node = node
        self._runner = runner
        self._offsets = offsets
        self._staged = staged
        node.core.register(DESCRIBE_GROUPS, self.describe_groups)
        node.core.register(LIST_GROUPS, self.list_groups)
        node.core.register(DELETE_GROUPS, self.delete_groups)

    async def describe_groups(self, request: Request) -> Response:
        """Members and their assignments."""
        answers = []
        stored = await self._stored(request.body.groups)
        async for group_id in unhurried(request.body.groups):
            try:
                answer = _described(await self._describe(group_id, stored))
            except ApiError as error:
                answer = undescribed_group(group_id, error.code)
            answers.append(answer)
        return {"groups": answers}

    async def _describe(self, group_id: str, stored: Mapping[str, bool] | None) -> GroupDescription:
        refusal = self._runner.refusal(group_id)
        if refusal is not GroupError.NONE:
            raise ApiError(group_error_code(refusal))
        stored_groups = stored or {}
        description = self._runner.groups.describe(group_id, stored=group_id in stored_groups)
        if description.members:
            return description
        if stored is None:
            raise ApiError(ErrorCode.coordinator_not_available)
        if not stored_groups.get(group_id):
            return description
        coordinator = self._node.coordinator
        try:
            members = await self._node.ask(coordinator.members, group_id)
            owners = await self._node.ask(coordinator.owners, group_id)
        except CoordinationError as error:
            raise ApiError(ErrorCode.coordinator_not_available) from error
        return describe_registered(group_id, members, owners)

    async def list_groups(self, request: Request) -> Response:
        """The groups that this broker coordinates."""
        stored = await self._stored()
        if stored is None:
            return {"error_code": ErrorCode.coordinator_not_available, "groups": []}
        types = [each.lower() for each in request.get("types_filter", ())]
        if types and _CLASSIC not in types:
            return {"error_code": ErrorCode.none, "groups": []}
        coordinates = self._node.cluster.coordinates
        mine = {group_id: is_live for group_id, is_live in stored.items() if coordinates(group_id)}
        overviews = self._runner.groups.list_groups(request.get("states_filter", ()), mine)
        is_loading = self._runner.is_loading
        return {
            "error_code": ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.none,
            "groups": [
                {
                    "group_id": overview.group_id,
                    "protocol_type": overview.protocol_type,
                    "group_state": overview.state.value,
                    "group_type": _CLASSIC,
                }
                for overview in overviews
            ],
        }

    async def delete_groups(self, request: Request) -> Response:
        """Forgets groups without members, with their offsets."""
        results = []
        for group_id in dict.fromkeys(request.body.groups_names):
            results.append({"group_id": group_id, "error_code": await self._delete(group_id)})
        return {"results": results}

    async def _delete(self, group_id: str) -> ErrorCode:
        refusal = self._runner.refusal(group_id)
        if refusal is not GroupError.NONE:
            return group_error_code(refusal)
        if group_id in self._offsets.blocked:
            return ErrorCode.coordinator_not_available
        async with self._runner.deleting(group_id):
            return await self._delete_now(group_id)

    async def _delete_now(self, group_id: str) -> ErrorCode:
        stored = await self._stored([group_id])
        if stored is None:
            return ErrorCode.coordinator_not_available
        if stored.get(group_id):
            return ErrorCode.non_empty_group
        refusal = self._runner.groups.delete(group_id, stored=group_id in stored)
        if refusal is not GroupError.NONE:
            return group_error_code(refusal)
        try:
            await self._staged.drop_offsets(group_id)
            offsets = await self._node.ask(self._node.coordinator.fetch_offsets, group_id)
            await self._node.ask(self._node.coordinator.delete_group, group_id)
            self._runner.records.forgotten(group_id, offsets)
        except AlreadyOwned:  # it came to life meanwhile
            return ErrorCode.non_empty_group
        except (ApiError, CoordinationError):
            return ErrorCode.coordinator_not_available
        return ErrorCode.none

    async def _stored(self, names: Collection[str] | None = None) -> Mapping[str, bool] | None:
        """Groups in shared state (see `Coordinator.groups`) or, without members, in a transaction; None while shared
        state does not answer.
        """
        try:
            stored = await self._node.ask(self._node.coordinator.groups, names)
        except CoordinationError:
            return None
        staged = [each for each in self._staged.staged_groups() if names is None or each in names]
        return {**dict.fromkeys(staged, False), **stored}


def _described(description: GroupDescription) -> Response:
    return {
        "error_code": ErrorCode.none,
        "group_id": description.group_id,
        "group_state": description.state.value,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_metadata": member.metadata,
                "member_assignment": member.assignment,
            }
            for member in description.members
        ],
    }
