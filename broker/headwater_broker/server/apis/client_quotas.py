"""DescribeClientQuotas and AlterClientQuotas: limits of users, clients and addresses, kept in shared state."""

import asyncio
import ipaddress
import math
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ChangeKind, ConfigKind, CoordinationError
from headwater_broker.coordination.model import DEFAULT_ENTITY, split_user_client, user_client_name
from headwater_broker.security.quotas import IP_QUOTAS, QUOTAS, limits_of
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.slices import unhurried
from headwater_broker.wire.apis import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS

_USER, _CLIENT, _IP = "user", "client-id", "ip"
_EXACT, _DEFAULT, _ANY = range(3)
_LONG_MAX = 2**63 - 1

Entity = dict[str, str | None]
"""Names by type; None stands for whoever has no quotas of their own."""


class ClientQuotaApis:
    """Quotas as an operator sees them. What is checked is as in Kafka's `ZkAdminManager`."""

    def __init__(self, node: Node, writing: asyncio.Lock) -> None:
        """Makes the APIs answer.

        Args:
            node: The broker.
            writing: Held while a user's settings are read, changed and written: passwords are kept beside quotas.
        """
        self._node = node
        self._writing = writing
        node.core.register(DESCRIBE_CLIENT_QUOTAS, self.describe)
        node.core.register(ALTER_CLIENT_QUOTAS, self.alter)

    # -- describing ------------------------------------------------------------------------------------

    async def describe(self, request: Request) -> Response:
        """The quotas of the entities that a filter finds."""
        try:
            by_kind = _filter(request.body.components)
            entries = [
                {"entity": _parts(entity), "values": [{"key": key, "value": value} for key, value in limits]}
                for entity, limits in await self._all()
                if _matches(by_kind, entity, is_strict=request.body.strict)
            ]
        except (ApiError, CoordinationError) as error:
            return {"error_code": error_code(error), "error_message": str(error), "entries": None}
        return {"error_code": ErrorCode.none, "error_message": None, "entries": entries}

    async def _all(self) -> list[tuple[Entity, list[tuple[str, float]]]]:
        entities: list[tuple[Entity, list[tuple[str, float]]]] = []
        for kind, quotas in (
            (ConfigKind.USER, QUOTAS),
            (ConfigKind.CLIENT, QUOTAS),
            (ConfigKind.USER_CLIENT, QUOTAS),
            (ConfigKind.IP, IP_QUOTAS),
        ):
            configs = await self._node.ask(self._node.coordinator.configs, kind)
            for name, values in sorted(configs.items()):
                limits = list(limits_of(values, quotas))
                if limits:
                    entities.append((_entity(kind, name), limits))
        return entities

    # -- altering --------------------------------------------------------------------------------------

    async def alter(self, request: Request) -> Response:
        """Sets and removes quotas, each entity for itself."""
        answers = []
        async with self._writing:
            async for entry in unhurried(request.body.entries):
                code, message = ErrorCode.none, None
                try:
                    await self._alter(entry, validate_only=request.body.validate_only)
                except (ApiError, CoordinationError) as error:
                    code, message = error_code(error), str(error)
                answers.append(
                    {
                        "error_code": code,
                        "error_message": message,
                        "entity": [
                            {"entity_type": part.entity_type, "entity_name": part.entity_name}
                            for part in entry.entity
                        ],
                    }
                )
        if not request.body.validate_only:
            with suppress(CoordinationError):
                await self._node.security.refresh(ChangeKind.CONFIGS)
        return {"entries": answers}

    async def _alter(self, entry: Any, *, validate_only: bool) -> None:
        kind, name = _place(entry.entity)
        quotas = IP_QUOTAS if kind is ConfigKind.IP else QUOTAS
        if kind is ConfigKind.IP and name != DEFAULT_ENTITY:
            await self._node.ask(_check_address, name)
        changes: dict[str, str | None] = {}
        for change in entry.ops:
            if change.remove:
                changes[change.key] = None
                continue
            if change.key not in quotas:
                raise ApiError(ErrorCode.invalid_request, f"Invalid configuration key {change.key}")
            changes[change.key] = _number(change.key, change.value, is_whole=quotas[change.key])
        node = self._node
        values = await node.ask(node.coordinator.get_config, kind, name)
        merged = {key: value for key, value in {**values, **changes}.items() if value is not None}
        if not validate_only and merged != values:
            await node.ask(node.coordinator.set_config, kind, name, merged)


def _number(key: str, value: float, *, is_whole: bool) -> str:
    if not math.isfinite(value) or value <= 0:
        raise ApiError(
            ErrorCode.invalid_request, f"Invalid value {value} for quota {key}: give a number above 0"
        )
    if not is_whole:
        return repr(float(value))
    number = int(value + 1e-6)
    if abs(number - value) > 1e-6 or number > _LONG_MAX:
        raise ApiError(ErrorCode.invalid_request, f"Configuration {key} must be a LONG value")
    return str(number)


def _check_address(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        try:
            socket.getaddrinfo(name, None)
        except (OSError, UnicodeError):
            message = f"{name} is not a valid IP or resolvable host."
            raise ApiError(ErrorCode.invalid_request, message) from None


def _place(parts: Any) -> tuple[ConfigKind, str]:
    """Where the settings of an entity are kept."""
    entity: dict[str, str] = {}
    for part in parts:
        if part.entity_type not in (_USER, _CLIENT, _IP):
            raise ApiError(
                ErrorCode.invalid_request, f"Unhandled client quota entity type: {part.entity_type}"
            )
        if part.entity_type in entity:
            raise ApiError(ErrorCode.invalid_request, f"Duplicate quota entity type: {part.entity_type}")
        if part.entity_name == "":
            raise ApiError(ErrorCode.invalid_request, f"Empty {part.entity_type} not supported")
        if part.entity_name == DEFAULT_ENTITY:
            message = f"{DEFAULT_ENTITY} is no name: null stands for whoever has nothing of their own"
            raise ApiError(ErrorCode.invalid_request, message)
        entity[part.entity_type] = DEFAULT_ENTITY if part.entity_name is None else part.entity_name
    match sorted(entity):
        case ["client-id", "user"]:
            return ConfigKind.USER_CLIENT, user_client_name(entity[_USER], entity[_CLIENT])
        case ["user"]:
            return ConfigKind.USER, entity[_USER]
        case ["client-id"]:
            return ConfigKind.CLIENT, entity[_CLIENT]
        case ["ip"]:
            return ConfigKind.IP, entity[_IP]
        case []:
            raise ApiError(ErrorCode.invalid_request, "Invalid client quota entity")
    message = "Invalid quota entity combination, IP entity should not be used with user/client ID entity."
    raise ApiError(ErrorCode.invalid_request, message)


def _entity(kind: ConfigKind, name: str) -> Entity:
    if kind is ConfigKind.USER_CLIENT:
        user, client_id = split_user_client(name)
        return {_USER: _name(user), _CLIENT: _name(client_id)}
    types = {ConfigKind.USER: _USER, ConfigKind.CLIENT: _CLIENT, ConfigKind.IP: _IP}
    return {types[kind]: _name(name)}


def _name(name: str) -> str | None:
    return None if name == DEFAULT_ENTITY else name


def _parts(entity: Entity) -> list[Response]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]


def _filter(components: Any) -> dict[str, Any]:
    by_kind: dict[str, Any] = {}
    for component in components:
        kind = component.entity_type
        if kind == "":
            raise ApiError(ErrorCode.invalid_request, "Unexpected empty filter component entity type")
        if kind not in (_USER, _CLIENT, _IP):
            raise ApiError(ErrorCode.unsupported_version, f"Custom entity type '{kind}' not supported")
        if kind in by_kind:
            raise ApiError(ErrorCode.invalid_request, f"Duplicate {kind} filter component entity type")
        is_known = component.match_type in (_EXACT, _DEFAULT, _ANY)
        if not is_known or (component.match_type == _EXACT) != (component.match is not None):
            message = f"Unexpected match type: {component.match_type}"
            raise ApiError(ErrorCode.invalid_request, message)
        by_kind[kind] = component
    if _IP in by_kind and len(by_kind) > 1:
        message = (
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component."
        )
        raise ApiError(ErrorCode.invalid_request, message)
    return by_kind


def _matches(by_kind: Mapping[str, Any], entity: Entity, *, is_strict: bool) -> bool:
    for kind, component in by_kind.items():
        if kind not in entity:
            return False
        name = entity[kind]
        if component.match_type == _EXACT and name != component.match:
            return False
        if component.match_type == _DEFAULT and name is not None:
            return False
    return not is_strict or entity.keys() == by_kind.keys()
