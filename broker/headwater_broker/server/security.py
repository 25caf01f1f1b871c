"""What this broker knows of rules, users and tokens: a copy of the shared state, kept current by its watches."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from headwater_broker.coordination import Change, ChangeKind, ConfigKind, CoordinationError, Coordinator
from headwater_broker.log import Clock
from headwater_broker.security import Authorizer, Operation, Principal, ResourceType, parse_principal
from headwater_broker.security.scram import Account, ScramCredential, ScramMechanism, scram_accounts
from headwater_broker.security.tokens import DelegationToken, token_password
from headwater_broker.server.connection import Connection
from headwater_broker.server.errors import UsageError
from headwater_broker.server.quotas import Quotas
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.server.watcher import RETRY_S, Ask, Watcher
from headwater_broker.shown import MESSAGE_CHARS, shown

_LOG = logging.getLogger(__name__)
ClientConfigs = Mapping[ConfigKind, Mapping[str, Mapping[str, str]]]
"""Settings of users, clients, users' clients and addresses."""

_ALL = frozenset({ChangeKind.ACLS, ChangeKind.CONFIGS, ChangeKind.TOKENS})
_CLIENT_KINDS = (ConfigKind.USER, ConfigKind.CLIENT, ConfigKind.USER_CLIENT, ConfigKind.IP)
_TOPIC_PREFIXES = (f"{ConfigKind.TOPIC.value}/", f"{ConfigKind.BROKER.value}/")


class SecurityState(Watcher):
    """Rules, users, tokens and quotas, so that requests are answered without a look into shared state.

    Attributes:
        authorizer: Who may do what.
        client_configs: Settings of users and clients, as they are kept.
        quotas: Who may use how much.
        tokens: Delegation tokens by id.
        token_key: What tokens' secrets follow from; None where tokens are off.
    """

    def __init__(self, coordinator: Coordinator, settings: BrokerSettings, clock: Clock, ask: Ask) -> None:
        """Makes a state that knows nothing yet.

        Raises:
            UsageError: `super.users` is malformed.
        """
        try:
            names = (each.strip() for each in settings.super_users.split(";"))
            super_users = [parse_principal(each) for each in names if each]
        except ValueError as error:
            raise UsageError(f"broker property super.users={settings.super_users}: {error}") from error
        authorizer = settings.authorizer_class_name
        if authorizer and not authorizer.endswith((".AclAuthorizer", ".StandardAuthorizer")):
            raise UsageError(
                f"broker property authorizer.class.name={authorizer}: no Java class can be loaded here"
            )
        self.authorizer = Authorizer(super_users, allow_without_acl=settings.allow_everyone_if_no_acl_found)
        self.quotas = Quotas(settings, clock)
        self.client_configs: ClientConfigs = {kind: {} for kind in _CLIENT_KINDS}
        self.tokens: Mapping[str, DelegationToken] = {}
        self.token_key = settings.delegation_token_secret_key or settings.delegation_token_master_key
        super().__init__(coordinator, ask)
        self._clock = clock
        self._stale: set[ChangeKind] = set()
        self._on_client_configs: list[Callable[[ClientConfigs], None]] = []
        self._on_rules: list[Callable[[bool], None]] = []

    # -- life ------------------------------------------------------------------------------------------

    def on_rules(self, callback: Callable[[bool], None]) -> None:
        """Has `callback` told whether anybody can be refused anything, now and after each change of rules."""
        self._on_rules.append(callback)
        callback(self.authorizer.is_active)

    def on_client_configs(self, callback: Callable[[ClientConfigs], None]) -> None:
        """Has `callback` called with the settings of users and clients, now and after each change."""
        self._on_client_configs.append(callback)
        callback(self.client_configs)

    def note(self, change: Change) -> None:
        """Takes a report of a watch."""
        if change.kind in (ChangeKind.CONNECTED, ChangeKind.SESSION_RESTORED):
            self._stale |= _ALL
        elif change.kind not in _ALL or (change.name or "").startswith(_TOPIC_PREFIXES):
            return
        self._stale.add(change.kind) if change.kind in _ALL else None
        self._wake.set()

    async def _act(self) -> None:
        stale, self._stale = self._stale, set()
        try:
            await self.refresh(*stale)
        except CoordinationError as error:
            # What is known stays in force: nobody gains a right by cutting this broker off.
            _LOG.warning("rules and users cannot be read, trying again: %s", shown(error, MESSAGE_CHARS))
            self._stale |= stale
            await asyncio.sleep(RETRY_S)
            self._wake.set()

    async def load(self) -> None:
        """Reads everything once.

        Raises:
            CoordinationError: Shared state cannot be reached, or is corrupt.
        """
        await self.refresh(*_ALL)

    async def refresh(self, *kinds: ChangeKind) -> None:
        """Reads some of it again; afterwards it is in force.

        Raises:
            CoordinationError: Shared state cannot be reached.
        """
        async with self._reading:
            if ChangeKind.ACLS in kinds:
                self.authorizer.replace(await self._ask(self._coordinator.acls))
                for report in self._on_rules:
                    report(self.authorizer.is_active)
            if ChangeKind.CONFIGS in kinds:
                self.client_configs = await self._ask(_read_client_configs, self._coordinator)
                for callback in self._on_client_configs:
                    callback(self.client_configs)
            if ChangeKind.TOKENS in kinds:
                self.tokens = _read_tokens(await self._ask(self._coordinator.tokens))

    # -- questions -------------------------------------------------------------------------------------

    def allows(
        self, connection: Connection, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal of a connection may do something."""
        return self.authorizer.allows(connection.principal, connection.host, operation, resource_type, name)

    def account(self, mechanism: ScramMechanism, name: str, is_token: bool) -> Account | None:
        """A user's account, or a token's by its id."""
        if not is_token:
            return scram_accounts(mechanism, self.client_configs[ConfigKind.USER], name)
        token = self.tokens.get(name)
        if token is None or self.token_key is None or token.is_expired(self._clock.now_ms()):
            return None
        owner = Principal(token.owner.kind, token.owner.name, by_token=True)
        return Account(owner, _token_credential(mechanism, self.token_key, name), token.expires_ms)


@lru_cache(maxsize=1024)
def _token_credential(mechanism: ScramMechanism, key: str, token_id: str) -> ScramCredential:
    # The salt need not be secret, only different from token to token.
    return ScramCredential.of_password(mechanism, token_id.encode(), token_password(key, token_id))


def _read_client_configs(coordinator: Coordinator) -> ClientConfigs:
    return {kind: coordinator.configs(kind) for kind in _CLIENT_KINDS}


def _read_tokens(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, DelegationToken]:
    tokens = {}
    for token_id, value in stored.items():
        try:
            tokens[token_id] = DelegationToken.from_json(value)
        except ValueError as error:
            _LOG.warning(
                "delegation token %s is passed over: %s", shown(token_id), shown(error, MESSAGE_CHARS)
            )
    return tokens
