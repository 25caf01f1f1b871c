"""DescribeAcls, CreateAcls and DeleteAcls: access rules, kept in shared state."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ChangeKind, CoordinationError
from headwater_broker.log import Slices
from headwater_broker.security import (
    CLUSTER_NAME,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    parse_principal,
)
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS

E = TypeVar("E", bound=IntEnum)

Entries = frozenset[AclEntry]

_AT_ONCE = 100
"""So many rules or filters of a request are checked before others get their turn."""

_CHANGES_AT_ONCE = 4
"""So many go to shared state side by side."""

_Filter = tuple[AclFilter, list[Response]]
"""A filter, and where its answers go."""


@dataclass(frozen=True, slots=True)
class _Binding:
    pattern: ResourcePattern
    entry: AclEntry


class AclApis:
    """The rules as an operator sees them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(DESCRIBE_ACLS, self.describe_acls)
        node.core.register(CREATE_ACLS, self.create_acls)
        node.core.register(DELETE_ACLS, self.delete_acls)

    async def describe_acls(self, request: Request) -> Response:
        """The rules that a filter finds."""
        try:
            chosen = _filter(request.body)
            acls = await self._node.ask(self._node.coordinator.acls)
        except (ApiError, CoordinationError) as error:
            return {"error_code": error_code(error), "error_message": str(error), "resources": []}
        resources = []
        for pattern, entries in sorted(acls.items()):
            matching = sorted(each for each in entries if chosen.matches_entry(each))
            if matching and chosen.matches_pattern(pattern):
                resources.append(
                    {
                        "resource_type": pattern.resource_type,
                        "resource_name": pattern.name,
                        "pattern_type": pattern.pattern_type,
                        "acls": [_entry_fields(each) for each in matching],
                    }
                )
        return {"error_code": ErrorCode.none, "error_message": None, "resources": resources}

    async def create_acls(self, request: Request) -> Response:
        """Adds rules, each for itself; an existing one is no error."""
        bindings = await self._node.core.work.done(request.connection, _bindings(request.body.creations))
        added: dict[ResourcePattern, set[AclEntry]] = {}
        for binding in bindings:
            if isinstance(binding, _Binding):
                added.setdefault(binding.pattern, set()).add(binding.entry)
        failed: dict[ResourcePattern, CoordinationError] = {}

        async def add(pattern: ResourcePattern) -> None:
            try:
                await self._change(pattern, _adding(added[pattern]))
            except CoordinationError as error:
                failed[pattern] = error

        patterns = list(added)
        for at in range(0, len(patterns), _CHANGES_AT_ONCE):
            await asyncio.gather(*map(add, patterns[at : at + _CHANGES_AT_ONCE]))
        await self._settle()
        results = []
        for binding in bindings:
            problem = binding if isinstance(binding, ApiError) else failed.get(binding.pattern)
            results.append(_result(problem))
        return {"results": results}

    async def delete_acls(self, request: Request) -> Response:
        """Removes the rules that each filter finds; a rule that several find is in the answer of the first."""
        work = self._node.core.work
        answers: list[dict[str, Any]] = []
        filters = await work.done(request.connection, _filters(request.body.filters, answers))
        try:
            patterns = await self._node.ask(self._node.coordinator.acls) if filters else {}
        except CoordinationError as error:
            return {"filter_results": [{**_result(error), "matching_acls": []} for _ in answers]}
        for pattern in sorted(patterns):
            chosen_here = await work.done(request.connection, _of_pattern(filters, pattern))
            if chosen_here:
                await self._delete(pattern, chosen_here)
        await self._settle()
        return {"filter_results": answers}

    async def _delete(self, pattern: ResourcePattern, filters: list[_Filter]) -> None:
        removed: dict[AclEntry, list[Response]] = {}

        def without(present: Entries) -> Entries:
            removed.clear()
            for entry in sorted(present):
                into = next((into for each, into in filters if each.matches_entry(entry)), None)
                if into is not None:
                    removed[entry] = into
            return present - removed.keys()

        problem: CoordinationError | None = None
        try:
            await self._change(pattern, without)
        except CoordinationError as error:
            problem = error
        for entry, into in removed.items():
            into.append(
                {
                    **_result(problem),
                    "resource_type": pattern.resource_type,
                    "resource_name": pattern.name,
                    "pattern_type": pattern.pattern_type,
                    **_entry_fields(entry),
                }
            )

    async def _change(self, pattern: ResourcePattern, change: Callable[[Entries], Entries]) -> None:
        await self._node.ask(self._node.coordinator.update_acls, pattern, change)

    async def _settle(self) -> None:
        """What was changed is in force here before it is acknowledged, or soon after where ZooKeeper went away."""
        with suppress(CoordinationError):
            await self._node.security.refresh(ChangeKind.ACLS)


def _bindings(creations: Iterable[Any]) -> Slices[list["_Binding | ApiError"]]:
    bindings: list[_Binding | ApiError] = []
    for number, creation in enumerate(creations):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        try:
            bindings.append(_binding(creation))
        except ApiError as error:
            bindings.append(error)
    return bindings


def _filters(requested: Iterable[Any], answers: list[dict[str, Any]]) -> Slices[list[_Filter]]:
    """The filters that make sense; an answer is begun for each one."""
    filters: list[_Filter] = []
    for number, each in enumerate(requested):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        try:
            chosen = _filter(each)
        except ApiError as error:
            answers.append({**_result(error), "matching_acls": []})
            continue
        matching: list[Response] = []
        filters.append((chosen, matching))
        answers.append({**_result(None), "matching_acls": matching})
    return filters


def _of_pattern(filters: Iterable[_Filter], pattern: ResourcePattern) -> Slices[list[_Filter]]:
    """The filters that a pattern passes."""
    passed = []
    for number, (each, into) in enumerate(filters):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        if each.matches_pattern(pattern):
            passed.append((each, into))
    return passed


def _adding(entries: Iterable[AclEntry]) -> Callable[[Entries], Entries]:
    return lambda present: present | frozenset(entries)


def _result(problem: Exception | None) -> dict[str, Any]:
    code = ErrorCode.none if problem is None else error_code(problem)
    return {"error_code": code, "error_message": None if problem is None else str(problem)}


def _entry_fields(entry: AclEntry) -> dict[str, Any]:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _enum_member(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise ApiError(ErrorCode.invalid_request, f"{number} is no {kind.__name__}") from None


def _filter(fields: Any) -> AclFilter:
    """A filter from DescribeAcls or DeleteAcls, whose fields are named alike."""
    return AclFilter(
        _enum_member(ResourceType, fields.resource_type_filter),
        fields.resource_name_filter,
        _enum_member(PatternType, fields.pattern_type_filter),
        fields.principal_filter,
        fields.host_filter,
        _enum_member(Operation, fields.operation),
        _enum_member(Permission, fields.permission_type),
    )


def _binding(creation: Any) -> _Binding:
    resource_type = _enum_member(ResourceType, creation.resource_type)
    pattern_type = _enum_member(PatternType, creation.resource_pattern_type)
    operation = _enum_member(Operation, creation.operation)
    permission = _enum_member(Permission, creation.permission_type)
    name: str = creation.resource_name
    if resource_type is ResourceType.CLUSTER and name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        raise ApiError(ErrorCode.invalid_request, message)
    if not name:
        raise ApiError(ErrorCode.invalid_request, "Invalid empty resource name")
    if "/" in name:
        raise ApiError(ErrorCode.invalid_request, f"an ACL's resource name holds no slash: {name!r}")
    if (
        resource_type is ResourceType.ANY
        or pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
        or operation is Operation.ANY
        or permission is Permission.ANY
    ):
        raise ApiError(ErrorCode.invalid_request, "ANY and MATCH are for filters: an ACL says one thing")
    try:
        parse_principal(creation.principal)
    except ValueError as error:
        raise ApiError(ErrorCode.invalid_request, str(error)) from error
    entry = AclEntry(creation.principal, creation.host, operation, permission)
    return _Binding(ResourcePattern(resource_type, name, pattern_type), entry)
