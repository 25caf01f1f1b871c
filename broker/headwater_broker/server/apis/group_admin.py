"""DescribeGroups, ListGroups and DeleteGroups: what an operator asks about groups."""

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import AlreadyOwned, CoordinationError
from headwater_broker.groups import GroupDescription, GroupError
from headwater_broker.server.apis.membership import GroupRunner, group_error_code
from headwater_broker.server.core import Request, Response
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS

_CLASSIC = "classic"


class GroupAdminApis:
    """Groups with members live in the group coordinator; the others are known by their offsets."""

    def __init__(self, node: Node, runner: GroupRunner) -> None:
        self._node = node
        self._runner = runner
        node.core.register(DESCRIBE_GROUPS, self.describe_groups)
        node.core.register(LIST_GROUPS, self.list_groups)
        node.core.register(DELETE_GROUPS, self.delete_groups)

    async def describe_groups(self, request: Request) -> Response:
        """Members and their assignments."""
        answers = []
        stored = await self._stored()
        for group_id in request.body.groups:
            refusal = self._runner.refusal(group_id)
            if refusal is GroupError.NONE and stored is None:
                refusal = GroupError.COORDINATOR_NOT_AVAILABLE
            if refusal is GroupError.NONE:
                is_stored = stored is not None and group_id in stored
                answers.append(_described(self._runner.groups.describe(group_id, stored=is_stored)))
            else:
                answers.append(
                    {
                        "error_code": group_error_code(refusal),
                        "group_id": group_id,
                        "group_state": "",
                        "protocol_type": "",
                        "protocol_data": "",
                        "members": [],
                    }
                )
        return {"groups": answers}

    async def list_groups(self, request: Request) -> Response:
        """The groups that this broker coordinates."""
        stored = await self._stored()
        if stored is None:
            return {"error_code": ErrorCode.coordinator_not_available, "groups": []}
        types = [each.lower() for each in request.get("types_filter", ())]
        if types and _CLASSIC not in types:
            return {"error_code": ErrorCode.none, "groups": []}
        mine = {group_id for group_id in stored if self._node.cluster.coordinates(group_id)}
        overviews = self._runner.groups.list_groups(request.get("states_filter", ()), mine)
        return {
            "error_code": ErrorCode.none,
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
        stored = await self._stored()
        for group_id in request.body.groups_names:
            code = group_error_code(self._runner.refusal(group_id))
            if code is ErrorCode.none and stored is None:
                code = ErrorCode.coordinator_not_available
            if code is ErrorCode.none and stored is not None:
                code = group_error_code(self._runner.groups.delete(group_id, stored=group_id in stored))
            if code is ErrorCode.none:
                try:
                    await self._node.ask(self._node.coordinator.delete_group, group_id)
                except AlreadyOwned:
                    code = ErrorCode.non_empty_group
                except CoordinationError:
                    code = ErrorCode.coordinator_not_available
            results.append({"group_id": group_id, "error_code": code})
        return {"results": results}

    async def _stored(self) -> set[str] | None:
        """Groups that offsets are kept of; None while shared state does not answer."""
        try:
            return await self._node.ask(self._node.coordinator.groups)
        except CoordinationError:
            return None


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
