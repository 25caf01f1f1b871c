"""Delegation tokens: CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken, DescribeDelegationToken."""

import asyncio
import logging
from base64 import urlsafe_b64encode
from contextlib import suppress
from dataclasses import replace
from hmac import compare_digest
from uuid import uuid4

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import ChangeKind, CoordinationError
from headwater_broker.security import Operation, Principal, ResourceType
from headwater_broker.security.principal import USER
from headwater_broker.security.tokens import DelegationToken, token_hmac
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.shown import shown
from headwater_broker.wire.apis import (
    CREATE_DELEGATION_TOKEN,
    DESCRIBE_DELEGATION_TOKEN,
    EXPIRE_DELEGATION_TOKEN,
    RENEW_DELEGATION_TOKEN,
)
from headwater_broker.wire.codec import milliseconds

_LOG = logging.getLogger(__name__)


class TokenApis:
    """Tokens, for whoever said by SASL or a certificate who they are (Kafka's `DelegationTokenManager`)."""

    def __init__(self, node: Node) -> None:
        self._node = node
        node.core.register(CREATE_DELEGATION_TOKEN, self.create)
        node.core.register(RENEW_DELEGATION_TOKEN, self.renew)
        node.core.register(EXPIRE_DELEGATION_TOKEN, self.expire)
        node.core.register(DESCRIBE_DELEGATION_TOKEN, self.describe)

    async def run(self) -> None:
        """Removes tokens that have ended, again and again."""
        node = self._node
        while True:
            await asyncio.sleep(node.settings.delegation_token_expiry_check_interval_ms / 1000)
            now_ms = node.clock.now_ms()
            for token in list(node.security.tokens.values()):
                if token.is_expired(now_ms):
                    with suppress(CoordinationError):
                        await node.ask(node.coordinator.remove_token, token.token_id)

    # -- the APIs --------------------------------------------------------------------------------------

    async def create(self, request: Request) -> Response:
        """A new token."""
        body = request.body
        requester = request.connection.principal
        owner = requester
        if request.get("owner_principal_name"):
            owner = Principal(body.owner_principal_type or "", body.owner_principal_name)
        try:
            self._check_allowed(request)
            if not owner.kind:
                raise ApiError(ErrorCode.invalid_principal_type)
            if owner != requester and not self._may(request, Operation.CREATE_TOKENS, str(owner)):
                raise ApiError(ErrorCode.delegation_token_authorization_failed)
            renewers = tuple(Principal(each.principal_type, each.principal_name) for each in body.renewers)
            if any(each.kind != USER for each in renewers):
                raise ApiError(ErrorCode.invalid_principal_type)
            key = self._key()
            token = self._new_token(owner, requester, renewers, milliseconds(body.max_lifetime))
            await self._put(token)
        except (ApiError, CoordinationError) as error:
            return _created(error_code(error), DelegationToken("", owner, requester, (), -1, -1, -1), b"")
        return _created(ErrorCode.none, token, token_hmac(key, token.token_id))

    async def renew(self, request: Request) -> Response:
        """Has a token end later."""
        try:
            token = self._own(request)
            now_ms = self._node.clock.now_ms()
            if token.is_expired(now_ms):
                raise ApiError(ErrorCode.delegation_token_expired)
            period_ms = milliseconds(request.body.renew_period)
            if period_ms < 0:
                period_ms = self._node.settings.delegation_token_expiry_time_ms
            expires_ms = min(token.max_ms, now_ms + period_ms)
            await self._put(replace(token, expires_ms=expires_ms))
        except (ApiError, CoordinationError) as error:
            return _expiry(error_code(error), -1)
        return _expiry(ErrorCode.none, expires_ms)

    async def expire(self, request: Request) -> Response:
        """Has a token end at once, or at a given time."""
        try:
            token = self._own(request)
            now_ms = self._node.clock.now_ms()
            period_ms = milliseconds(request.body.expiry_time_period)
            if period_ms < 0:
                await self._node.ask(self._node.coordinator.remove_token, token.token_id)
                await self._settle()
                return _expiry(ErrorCode.none, now_ms)
            if token.is_expired(now_ms):
                raise ApiError(ErrorCode.delegation_token_expired)
            expires_ms = min(token.max_ms, now_ms + period_ms)
            await self._put(replace(token, expires_ms=expires_ms))
        except (ApiError, CoordinationError) as error:
            return _expiry(error_code(error), -1)
        return _expiry(ErrorCode.none, expires_ms)

    def describe(self, request: Request) -> Response:
        """The tokens that the caller may see: its own, those it may renew, and those that a rule allows."""
        try:
            self._check_allowed(request)
            key = self._key()
        except ApiError as error:
            return {"error_code": error.code, "tokens": []}
        owners = request.body.owners
        requested_owners = None
        if owners is not None:
            requested_owners = {Principal(each.principal_type, each.principal_name) for each in owners}
        visible = [
            token
            for token in self._node.security.tokens.values()
            if (requested_owners is None or any(map(token.concerns, requested_owners)))
            and self._may_see(request, token)
        ]
        return {"error_code": ErrorCode.none, "tokens": [_described(token, key) for token in visible]}

    # -- rules -----------------------------------------------------------------------------------------

    def _check_allowed(self, request: Request) -> None:
        connection = request.connection
        endpoint = self._node.me.endpoint(connection.listener)
        is_nameless = endpoint.security_protocol == "SSL" and connection.principal.name == "ANONYMOUS"
        if connection.principal.by_token or endpoint.security_protocol == "PLAINTEXT" or is_nameless:
            message = "tokens are for those who said who they are, and not by a token"
            raise ApiError(ErrorCode.delegation_token_request_not_allowed, message)

    def _key(self) -> str:
        key = self._node.security.token_key
        if key is None:
            raise ApiError(ErrorCode.delegation_token_auth_disabled, "delegation.token.secret.key is not set")
        return key

    def _own(self, request: Request) -> DelegationToken:
        """The token that a request names by its secret, if the caller may change it."""
        self._check_allowed(request)
        key = self._key()
        secret: bytes = request.body.hmac
        for token in self._node.security.tokens.values():
            if compare_digest(token_hmac(key, token.token_id), secret):
                break
        else:
            raise ApiError(ErrorCode.delegation_token_not_found)
        if not token.may_be_renewed_by(request.connection.principal):
            raise ApiError(ErrorCode.delegation_token_owner_mismatch)
        return token

    def _may_see(self, request: Request, token: DelegationToken) -> bool:
        principal = request.connection.principal
        return (
            token.may_be_renewed_by(principal)
            or principal == token.requester
            or self._node.security.allows(
                request.connection, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
            )
            or self._may(request, Operation.DESCRIBE_TOKENS, str(token.owner))
        )

    def _may(self, request: Request, operation: Operation, owner: str) -> bool:
        return self._node.security.allows(request.connection, operation, ResourceType.USER, owner)

    # -- making and keeping them -----------------------------------------------------------------------

    def _new_token(
        self, owner: Principal, requester: Principal, renewers: tuple[Principal, ...], lifetime_ms: int
    ) -> DelegationToken:
        settings = self._node.settings
        longest_ms = settings.delegation_token_max_lifetime_ms
        now_ms = self._node.clock.now_ms()
        max_ms = now_ms + (longest_ms if lifetime_ms <= 0 else min(lifetime_ms, longest_ms))
        token_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        expires_ms = min(max_ms, now_ms + settings.delegation_token_expiry_time_ms)
        _LOG.info("%s makes a delegation token of %s: %s", shown(requester), shown(owner), token_id)
        return DelegationToken(token_id, owner, requester, renewers, now_ms, max_ms, expires_ms)

    async def _put(self, token: DelegationToken) -> None:
        await self._node.ask(self._node.coordinator.put_token, token.token_id, token.to_json())
        await self._settle()

    async def _settle(self) -> None:
        with suppress(CoordinationError):
            await self._node.security.refresh(ChangeKind.TOKENS)


def _of_token(token: DelegationToken) -> Response:
    """What both answers that hold a token say of it."""
    return {
        "principal_type": token.owner.kind,
        "principal_name": token.owner.name,
        "token_requester_principal_type": token.requester.kind,
        "token_requester_principal_name": token.requester.name,
        "issue_timestamp": token.issued_ms,
        "expiry_timestamp": token.expires_ms,
        "max_timestamp": token.max_ms,
        "token_id": token.token_id,
    }


def _created(code: ErrorCode, token: DelegationToken, secret: bytes) -> Response:
    return {
        "error_code": code,
        **_of_token(token),
        "hmac": secret,
    }


def _expiry(code: ErrorCode, expires_ms: int) -> Response:
    return {"error_code": code, "expiry_timestamp": expires_ms}


def _described(token: DelegationToken, key: str) -> Response:
    return {
        **_of_token(token),
        "hmac": token_hmac(key, token.token_id),
        "renewers": [{"principal_type": each.kind, "principal_name": each.name} for each in token.renewers],
    }
