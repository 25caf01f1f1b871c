"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: the wire of the group coordinator."""

import asyncio
from collections.abc import Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.groups import (
    NO_GENERATION,
    GroupError,
    JoinRequest,
    JoinResponse,
    Leaver,
    LeaveResponse,
    SyncRequest,
)
from headwater_broker.server.core import Request, Response
from headwater_broker.server.group_runner import GroupRunner, group_error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from headwater_broker.wire.codec import milliseconds

_LEAVERS_AT_ONCE = 100


class MembershipApis:
    """The requests of members."""

    def __init__(self, node: Node, runner: GroupRunner) -> None:
        self._runner = runner
        node.core.register(JOIN_GROUP, self.join_group)
        node.core.register(SYNC_GROUP, self.sync_group)
        node.core.register(HEARTBEAT, self.heartbeat)
        node.core.register(LEAVE_GROUP, self.leave_group)

    async def join_group(self, request: Request) -> Response:
        """Waits until the rebalance is complete."""
        body = request.body
        session_timeout_ms = milliseconds(body.session_timeout)
        refusal = self._runner.refusal(body.group_id)
        if refusal is not GroupError.NONE:
            return _join_response(request, JoinResponse(refusal, body.member_id))
        join = JoinRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            instance_id=request.get("group_instance_id"),
            client_id=request.client_id,
            client_host="/" + request.connection.peer.rpartition(":")[0],
            session_timeout_ms=session_timeout_ms,
            # Version 0 has none: a member may take as long to rejoin as it may be silent.
            rebalance_timeout_ms=(
                milliseconds(body.rebalance_timeout) if request.version >= 1 else session_timeout_ms
            ),
            protocol_type=body.protocol_type,
            protocols=tuple((each.name, each.metadata) for each in body.protocols),
            require_member_id=request.version >= 4,
            supports_skip_assignment=request.version >= 9,
            reason=request.get("reason"),
        )
        future = _token()
        self._runner.deliver(self._runner.groups.join(self._runner.now_ms(), future, join))
        return _join_response(request, await future)

    async def sync_group(self, request: Request) -> Response:
        """Waits for the leader's assignment."""
        body = request.body
        refusal = self._runner.refusal(body.group_id)
        protocol = (request.get("protocol_type"), request.get("protocol_name"))
        if refusal is GroupError.NONE and request.version >= 5 and None in protocol:
            # KIP-559 has members say what they believe was chosen; the field is nullable, null is not allowed.
            refusal = GroupError.INCONSISTENT_GROUP_PROTOCOL
        if refusal is GroupError.COORDINATOR_LOAD_IN_PROGRESS:
            # As Kafka: a client that does not expect that error here joins again.
            refusal = GroupError.REBALANCE_IN_PROGRESS
        if refusal is not GroupError.NONE:
            return {"error_code": group_error_code(refusal), "assignment": b""}
        sync = SyncRequest(
            group_id=body.group_id,
            member_id=body.member_id,
            generation=body.generation_id,
            instance_id=request.get("group_instance_id"),
            protocol_type=protocol[0],
            protocol=protocol[1],
            assignments={each.member_id: each.assignment for each in body.assignments},
        )
        future = _token()
        self._runner.deliver(self._runner.groups.sync(self._runner.now_ms(), future, sync))
        response = await future
        return {
            "error_code": group_error_code(response.error),
            "protocol_type": response.protocol_type,
            "protocol_name": response.protocol,
            "assignment": response.assignment,
        }

    async def heartbeat(self, request: Request) -> Response:
        """Says whether the member is still one."""
        body = request.body
        error = self._runner.refusal(body.group_id)
        if error is GroupError.COORDINATOR_LOAD_IN_PROGRESS:
            # As Kafka: every session begins anew with the load, and to some clients any error ends their membership.
            return {"error_code": ErrorCode.none}
        if error is GroupError.NONE:
            future = _token()
            self._runner.deliver(
                self._runner.groups.heartbeat(
                    self._runner.now_ms(),
                    future,
                    body.group_id,
                    body.member_id,
                    body.generation_id,
                    request.get("group_instance_id"),
                )
            )
            error = (await future).error
        return {"error_code": group_error_code(error)}

    async def leave_group(self, request: Request) -> Response:
        """Takes one member out, or (from version 3 on) several."""
        body = request.body
        is_batch = request.version >= 3
        if is_batch:
            leavers = [
                Leaver(each.member_id, each.group_instance_id, getattr(each, "reason", None))
                async for each in unhurried(body.members)
            ]
        else:
            leavers = [Leaver(body.member_id)]
        refusal = self._runner.refusal(body.group_id)
        if refusal is not GroupError.NONE:
            return {"error_code": group_error_code(refusal), "members": []}
        members: list[Response] = []
        error = GroupError.NONE
        for start in range(0, max(len(leavers), 1), _LEAVERS_AT_ONCE):
            if start:
                await asyncio.sleep(0)  # others are served between
            response = await self._leave(body.group_id, leavers[start : start + _LEAVERS_AT_ONCE])
            error = response.error
            if error is not GroupError.NONE:
                break
            if not is_batch and response.leavers:
                error = response.leavers[0][1]
            members += [
                {
                    "member_id": leaver.member_id,
                    "group_instance_id": leaver.instance_id,
                    "error_code": group_error_code(leaver_error),
                }
                for leaver, leaver_error in response.leavers
            ]
        return {"error_code": group_error_code(error), "members": members}

    async def _leave(self, group_id: str, leavers: Sequence[Leaver]) -> LeaveResponse:
        future = _token()
        self._runner.deliver(self._runner.groups.leave(self._runner.now_ms(), future, group_id, leavers))
        response: LeaveResponse = await future
        return response


def _token() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def _join_response(request: Request, response: JoinResponse) -> Response:
    # Before version 7 a protocol cannot be null on the wire.
    no_protocol = None if request.version >= 7 else ""
    return {
        "error_code": group_error_code(response.error),
        "generation_id": response.generation if response.error is GroupError.NONE else NO_GENERATION,
        "protocol_type": response.protocol_type,
        "protocol_name": no_protocol if response.protocol is None else response.protocol,
        "leader": response.leader,
        "skip_assignment": response.skip_assignment,
        "member_id": response.member_id,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "metadata": member.metadata,
            }
            for member in response.members
        ],
    }
