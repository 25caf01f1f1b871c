"""How requests are guarded: who asks, and the two shapes that most guards have.

A guard stands before an API's handler. It lets through what the caller may do, and adds to the answer what was
refused, under Kafka's code for it. Handlers know nothing of all this.
"""

import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from kio.schema.errors import ErrorCode

from headwater_broker.security import CLUSTER_NAME, Operation, ResourceType
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Handler, Request, Response
from headwater_broker.server.security import SecurityState
from headwater_broker.server.slices import unhurried

T = TypeVar("T")

FEW = 100
"""So many items of a request are looked at at once."""

Answer = Response | Awaitable[Response]

CODES = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    ResourceType.DELEGATION_TOKEN: ErrorCode.delegation_token_authorization_failed,
}
"""What is answered where something is refused (Kafka's `AclEntry.authorizationError`)."""


class Caller:
    """Who asks."""

    def __init__(self, state: SecurityState, connection: Connection) -> None:
        self._authorizer = state.authorizer
        self._principal = connection.principal
        self._host = connection.host

    def may(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether the caller may do something with one resource."""
        return self._authorizer.allows(self._principal, self._host, operation, resource_type, name)

    def may_cluster(self, operation: Operation) -> bool:
        """Whether the caller may do something with the cluster."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def may_some(self, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether the caller may do something with at least one resource of a type."""
        return self._authorizer.allows_some(self._principal, self._host, operation, resource_type)

    def operations(self, resource_type: ResourceType, name: str) -> int:
        """What the caller may do with a resource, as Kafka's bit field."""
        return self._authorizer.operations(self._principal, self._host, resource_type, name)


Guard = Callable[[Caller, Request, Handler], Answer]
"""Answers a request, with the handler's help for what is allowed."""


def narrowed(request: Request, **fields: Any) -> Request:
    """The request with some fields of its body replaced."""
    return Request(request.header, dataclasses.replace(request.body, **fields), request.connection)


def split(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[tuple[T, ...], list[T]]:
    """Items that are allowed, and those that are not."""
    allowed: list[T] = []
    refused: list[T] = []
    for item in items:
        (allowed if is_allowed(item) else refused).append(item)
    return tuple(allowed), refused


async def split_many(items: Iterable[T], is_allowed: Callable[[T], bool]) -> tuple[tuple[T, ...], list[T]]:
    """The same, where items are many: others are served in between."""
    allowed: list[T] = []
    refused: list[T] = []
    async for item in unhurried(items):
        (allowed if is_allowed(item) else refused).append(item)
    return tuple(allowed), refused


def parted(
    items: Sequence[T],
    is_allowed: Callable[[T], bool],
    go_on: Callable[[tuple[T, ...], list[T]], Answer],
) -> Answer:
    """The answer of a guard that goes on with the items that are allowed and those that are not."""
    if len(items) <= FEW:
        return go_on(*split(items, is_allowed))
    return _parted_many(items, is_allowed, go_on)


async def _parted_many(
    items: Sequence[T],
    is_allowed: Callable[[T], bool],
    go_on: Callable[[tuple[T, ...], list[T]], Answer],
) -> Response:
    allowed, refused = await split_many(items, is_allowed)
    return await awaited(go_on(allowed, refused))


async def awaited(answer: Answer) -> Response:
    """An answer, once it is there."""
    return await answer if inspect.isawaitable(answer) else answer


def then(answer: Answer, change: Callable[[Response], Response]) -> Answer:
    """An answer that is changed once it is there."""
    if not inspect.isawaitable(answer):
        return change(answer)
    return _then(answer, change)


async def _then(answer: Awaitable[Response], change: Callable[[Response], Response]) -> Response:
    return change(await answer)


def whole(
    resource_type: ResourceType,
    operation: Operation,
    refuse: Callable[[Request, ErrorCode], Response],
    *,
    name: Callable[[Request], str] = lambda _: CLUSTER_NAME,
) -> Guard:
    """A guard that refuses the request as a whole.

    Args:
        resource_type: Of what the request is about.
        operation: What it does with that.
        refuse: The answer with a code.
        name: Which resource it is about.
    """

    def guard(caller: Caller, request: Request, handler: Handler) -> Answer:
        if caller.may(operation, resource_type, name(request)):
            return handler(request)
        return refuse(request, CODES[resource_type])

    return guard


def each(
    resource_type: ResourceType,
    operation: Operation,
    request_field: str,
    answer_field: str,
    refuse: Callable[[Any, ErrorCode], Response],
    *,
    name: Callable[[Any], str] = lambda item: item.name,
) -> Guard:
    """A guard that refuses some of the items of a request.

    Args:
        resource_type: Of what an item is about.
        operation: What is done with that.
        request_field: The request's field with the items.
        answer_field: The answer's field with the results.
        refuse: An item's result with a code.
        name: Which resource an item is about.
    """

    code = CODES[resource_type]

    def guard(caller: Caller, request: Request, handler: Handler) -> Answer:
        def go_on(allowed: tuple[Any, ...], refused: list[Any]) -> Answer:
            if not refused:
                return handler(request)
            answer = handler(narrowed(request, **{request_field: allowed}))
            if len(refused) > FEW:
                return _adding_many(answer, answer_field, refused, lambda item: refuse(item, code))
            return then(
                answer, lambda answer: adding(answer, answer_field, [refuse(item, code) for item in refused])
            )

        items: Sequence[Any] = getattr(request.body, request_field)
        return parted(items, lambda item: caller.may(operation, resource_type, name(item)), go_on)

    return guard


async def _adding_many(
    answer: Answer, field: str, refused: Iterable[T], refuse: Callable[[T], Response]
) -> Response:
    answer = await awaited(answer)
    return adding(answer, field, [refuse(item) async for item in unhurried(refused)])


def both(first: Guard, second: Guard) -> Guard:
    """Two guards, one behind the other."""

    def guard(caller: Caller, request: Request, handler: Handler) -> Answer:
        return first(caller, request, lambda passed: second(caller, passed, handler))

    return guard


def adding(answer: Response, field: str, items: Iterable[Response]) -> Response:
    """The answer with more items in one of its lists."""
    return {**answer, field: [*answer[field], *items]}
