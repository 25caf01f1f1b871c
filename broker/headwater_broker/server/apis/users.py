"""DescribeUserScramCredentials and AlterUserScramCredentials: passwords of users, kept in shared state."""

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ChangeKind, ConfigKind, CoordinationError
from headwater_broker.coordination.model import DEFAULT_ENTITY
from headwater_broker.security.scram import (
    MAX_ITERATIONS,
    MECHANISM_BY_NUMBER,
    MIN_ITERATIONS,
    ScramCredential,
    ScramMechanism,
)
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS


class UserApis:
    """SCRAM credentials. What is checked, and in which order, is as in Kafka's `ZkAdminManager`."""

    def __init__(self, node: Node, writing: asyncio.Lock) -> None:
        """Makes the APIs answer.

        Args:
            node: The broker.
            writing: Held while a user's settings are read, changed and written: quotas are kept beside passwords.
        """
        self._node = node
        self._writing = writing
        node.core.register(DESCRIBE_USER_SCRAM_CREDENTIALS, self.describe)
        node.core.register(ALTER_USER_SCRAM_CREDENTIALS, self.alter)

    # -- describing ------------------------------------------------------------------------------------

    async def describe(self, request: Request) -> Response:
        """Which mechanisms users have passwords for; never the passwords."""
        try:
            configs = await self._node.ask(self._node.coordinator.configs, ConfigKind.USER)
        except CoordinationError as error:
            return {"error_code": error_code(error), "error_message": str(error), "results": []}
        requested = [each.name for each in request.body.users or ()]
        results = []
        counts = Counter(requested)
        async for name in unhurried(sorted(counts) if requested else sorted(configs)):
            infos = _infos(configs.get(name, {}))
            if requested or infos:
                results.append(_described(name, infos, is_twice=counts[name] > 1))
        return {"error_code": ErrorCode.none, "error_message": None, "results": results}

    # -- altering --------------------------------------------------------------------------------------

    async def alter(self, request: Request) -> Response:
        """Sets and removes passwords, each user for itself."""
        body = request.body
        users: dict[str, tuple[list[Any], list[Any]]] = {}
        for deletion in body.deletions:
            users.setdefault(deletion.name, ([], []))[0].append(deletion)
        for upsertion in body.upsertions:
            users.setdefault(upsertion.name, ([], []))[1].append(upsertion)
        results = []
        async with self._writing:
            async for name, (deletions, upsertions) in unhurried(users.items()):
                code, message = ErrorCode.none, None
                try:
                    await self._alter(name, deletions, upsertions)
                except (ApiError, CoordinationError) as error:
                    code, message = error_code(error), str(error)
                results.append({"user": name, "error_code": code, "error_message": message})
        with suppress(CoordinationError):
            await self._node.security.refresh(ChangeKind.CONFIGS)
        return {"results": results}

    async def _alter(self, name: str, deletions: list[Any], upsertions: list[Any]) -> None:
        _check(name, deletions, upsertions)
        node = self._node
        values = await node.ask(node.coordinator.get_config, ConfigKind.USER, name)
        for deletion in deletions:
            if values.pop(MECHANISM_BY_NUMBER[deletion.mechanism].value, None) is None:
                message = "Attempt to delete a user credential that does not exist"
                raise ApiError(ErrorCode.resource_not_found, message)
        for upsertion in upsertions:
            mechanism = MECHANISM_BY_NUMBER[upsertion.mechanism]
            credential = ScramCredential.of_salted_password(
                mechanism, upsertion.salt, upsertion.salted_password, upsertion.iterations
            )
            values[mechanism.value] = str(credential)
        await node.ask(node.coordinator.set_config, ConfigKind.USER, name, values)


def _infos(values: dict[str, str]) -> list[Response]:
    infos: list[Response] = []
    for mechanism in ScramMechanism:
        text = values.get(mechanism.value)
        if text is not None:
            with suppress(ValueError):
                iterations = ScramCredential.parse(text).iterations
                infos.append({"mechanism": mechanism.number, "iterations": iterations})
    return infos


def _described(name: str, infos: list[Response], *, is_twice: bool) -> Response:
    code, message = ErrorCode.none, None
    if not name:
        code, message = ErrorCode.resource_not_found, "Username must not be empty"
    elif is_twice:
        code = ErrorCode.duplicate_resource
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    elif not infos:
        code = ErrorCode.resource_not_found
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return {
        "user": name,
        "error_code": code,
        "error_message": message,
        "credential_infos": infos if code is ErrorCode.none else [],
    }


def _check(name: str, deletions: list[Any], upsertions: list[Any]) -> None:
    if not name:
        raise ApiError(ErrorCode.unacceptable_credential, "Username must not be empty")
    if name == DEFAULT_ENTITY:  # whose settings are everybody's that has none
        raise ApiError(ErrorCode.unacceptable_credential, f"{DEFAULT_ENTITY} is no user's name")
    changes = [each.mechanism for each in (*deletions, *upsertions)]
    if not MECHANISM_BY_NUMBER.keys() >= set(changes):
        raise ApiError(ErrorCode.unsupported_sasl_mechanism, "Unknown SCRAM mechanism")
    for upsertion in upsertions:
        if upsertion.iterations < MIN_ITERATIONS:
            raise ApiError(ErrorCode.unacceptable_credential, "Too few iterations")
        if upsertion.iterations > MAX_ITERATIONS:
            raise ApiError(ErrorCode.unacceptable_credential, "Too many iterations")
    if len(set(changes)) < len(changes):
        message = "A user credential cannot be altered twice in the same request"
        raise ApiError(ErrorCode.duplicate_resource, message)
