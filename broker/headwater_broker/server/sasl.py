"""SASL: the gate before a connection that must say who it is, and the two APIs by which it does."""

import asyncio
import logging
import secrets
import struct
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from kio.schema.errors import ErrorCode

from headwater_broker.log import Clock
from headwater_broker.security import Principal
from headwater_broker.security.errors import AuthenticationFailedError
from headwater_broker.security.plain import PlainServer, plain_passwords
from headwater_broker.security.scram import ScramMechanism, ScramServer
from headwater_broker.server.connection import Connection
from headwater_broker.server.core import Core, Request, Response
from headwater_broker.server.errors import UsageError
from headwater_broker.server.security import SecurityState
from headwater_broker.server.settings import BrokerSettings
from headwater_broker.shown import MESSAGE_CHARS, shown
from headwater_broker.wire import parse_request_header
from headwater_broker.wire.apis import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

_LOG = logging.getLogger(__name__)
_PLAIN = "PLAIN"
_SCRAM = {each.value: each for each in ScramMechanism}
_SIZE = struct.Struct(">i")


class Exchange(Protocol):
    """The server's side of one authentication."""

    principal: Principal | None
    expires_ms: int | None

    def step(self, token: bytes) -> bytes:
        """Takes a message of the client's, returns the answer to it."""


class SaslSettings:
    """What a listener's gates need.

    Attributes:
        mechanisms: Names of those that are offered.
    """

    def __init__(self, settings: BrokerSettings, listener: str, state: SecurityState, clock: Clock) -> None:
        """Reads a listener's `sasl.` properties.

        Raises:
            UsageError: One of them cannot be used.
        """
        texts = (settings.of_listener(listener, "sasl.enabled.mechanisms") or "").split(",")
        self.mechanisms = tuple(filter(None, (each.strip() for each in texts)))
        for mechanism in self.mechanisms:
            if mechanism not in (_PLAIN, *_SCRAM):
                names = ", ".join((_PLAIN, *_SCRAM))
                raise UsageError(f"sasl.enabled.mechanisms of {listener}: {mechanism} is not one of {names}")
        self.clock = clock
        self.max_frame_bytes = settings.socket_request_max_bytes
        self.max_token_bytes = settings.sasl_server_max_receive_size
        self.failure_delay_s = settings.connection_failed_authentication_delay_ms / 1000
        self._state = state
        self._passwords: Mapping[str, str] = {}
        jaas = settings.of_listener(listener, "sasl.jaas.config", _PLAIN)
        if _PLAIN in self.mechanisms and jaas is not None:
            try:
                self._passwords = plain_passwords(jaas)
            except ValueError as error:
                name = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
                raise UsageError(f"broker property {name}: {error}") from error
        self._max_session_ms = {
            each: int(settings.of_listener(listener, "connections.max.reauth.ms", each) or 0)
            for each in self.mechanisms
        }

    def exchange(self, mechanism: str) -> Exchange:
        """A new exchange."""
        if mechanism == _PLAIN:
            return PlainServer(self._passwords)
        scram = _SCRAM[mechanism]
        return ScramServer(scram, partial(self._state.account, scram), secrets.token_urlsafe(24))

    def session_ms(self, mechanism: str, expires_ms: int | None) -> int | None:
        """How long a session lasts that begins now; None for as long as it likes."""
        limits = [self._max_session_ms[mechanism]] if self._max_session_ms[mechanism] else []
        if expires_ms is not None:
            limits.append(max(expires_ms - self.clock.now_ms(), 0))
        return min(limits, default=None)


class SaslGate:
    """Lets nobody through who has not said who they are, or whose session is over.

    Kafka's rules (`SaslServerAuthenticator`): first perhaps ApiVersions, once; then SaslHandshake; then the
    mechanism's messages, in SaslAuthenticate requests or, after SaslHandshake 0, without any header. Later a
    SaslHandshake begins it anew (KIP-368), with the same mechanism and principal.
    """

    def __init__(self, connection: Connection, settings: SaslSettings) -> None:
        self.settings = settings
        self._connection = connection
        self._mechanism: str | None = None
        self._exchange: Exchange | None = None
        self._is_raw = False
        self._is_open = False
        self._may_ask_versions = True
        self._ends_s: float | None = None
        connection.max_frame_bytes = min(settings.max_token_bytes, settings.max_frame_bytes)

    @property
    def is_open(self) -> bool:
        """See `Gate`."""
        return (
            self._exchange is None
            and self._is_open
            and (self._ends_s is None or self.settings.clock.monotonic() < self._ends_s)
        )

    def intercept(self, connection: Connection, frame: memoryview) -> bool:
        """See `Gate`."""
        if self.is_open:
            return False
        if self._exchange is None and self._is_open:
            if parse_request_header(frame).api_key == SASL_HANDSHAKE:
                return False
            connection.close_reason = "its session is over, and it did not authenticate again"
            return True
        if self._exchange is not None and self._is_raw:
            self._take_raw(connection, frame.tobytes())
            return True
        key = parse_request_header(frame).api_key
        if self._exchange is not None:
            allowed = key == SASL_AUTHENTICATE
        else:
            allowed = key == SASL_HANDSHAKE or (key == API_VERSIONS and self._may_ask_versions)
            self._may_ask_versions = False
        if not allowed:
            connection.close_reason = f"API key {key} before authentication is complete"
        return not allowed

    def begin(self, mechanism: str, *, is_raw: bool) -> ErrorCode:
        """A handshake; the code says whether it can go on."""
        is_changed = self._is_open and mechanism != self._mechanism
        if mechanism not in self.settings.mechanisms or is_changed:
            self._connection.close_reason = f"SASL mechanism {shown(mechanism)} is not offered to it"
            return ErrorCode.unsupported_sasl_mechanism
        self._mechanism = mechanism
        self._is_raw = is_raw
        self._exchange = self.settings.exchange(mechanism)
        return ErrorCode.none

    def step(self, token: bytes) -> tuple[bytes, int]:
        """One message of the mechanism.

        Returns:
            The answer, and for how many milliseconds the session lasts: 0 for always, or where it is not complete.

        Raises:
            AuthenticationFailedError: The client is not who it says.
        """
        exchange, mechanism = self._exchange, self._mechanism
        assert exchange is not None
        assert mechanism is not None
        answer = exchange.step(token)
        principal = exchange.principal
        if principal is None:
            return answer, 0
        connection = self._connection
        if self._is_open and principal != connection.principal:
            message = (
                f"Cannot change principals during re-authentication from {connection.principal}: {principal}"
            )
            raise AuthenticationFailedError(message)
        session_ms = self.settings.session_ms(mechanism, exchange.expires_ms)
        self._ends_s = None if session_ms is None else self.settings.clock.monotonic() + session_ms / 1000
        self._exchange = None
        self._is_open = True
        connection.principal = principal
        connection.max_frame_bytes = self.settings.max_frame_bytes
        return answer, session_ms or 0

    @property
    def awaits_token(self) -> bool:
        """Whether a SaslAuthenticate is in order."""
        return self._exchange is not None

    def _take_raw(self, connection: Connection, token: bytes) -> None:
        try:
            answer, _ = self.step(token)
        except AuthenticationFailedError as error:
            connection.close_reason = str(error)
        else:
            connection.output.append(_SIZE.pack(len(answer)) + answer)


class SaslApis:
    """SaslHandshake and SaslAuthenticate."""

    def __init__(self, core: Core) -> None:
        core.register(SASL_HANDSHAKE, self.handshake)
        core.register(SASL_AUTHENTICATE, self.authenticate)

    def handshake(self, request: Request) -> Response:
        """Chooses a mechanism."""
        gate = request.connection.gate
        if not isinstance(gate, SaslGate):
            return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
        code = gate.begin(request.body.mechanism, is_raw=request.version == 0)
        return {"error_code": code, "mechanisms": gate.settings.mechanisms}

    async def authenticate(self, request: Request) -> Response:
        """Takes one message of the mechanism; a failure is told late, and closes the connection."""
        connection = request.connection
        gate = connection.gate
        if not isinstance(gate, SaslGate) or not gate.awaits_token:
            message = "SaslAuthenticate needs a SASL listener, and a SaslHandshake before it"
            return _refused(ErrorCode.illegal_sasl_state, message)
        try:
            answer, session_ms = gate.step(request.body.auth_bytes)
        except AuthenticationFailedError as error:
            _LOG.warning("%s failed to authenticate: %s", connection.peer, shown(error, MESSAGE_CHARS))
            await asyncio.sleep(gate.settings.failure_delay_s)
            connection.close_reason = "authentication failed"
            return _refused(ErrorCode.sasl_authentication_failed, str(error))
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "auth_bytes": answer,
            "session_lifetime": session_ms,
        }


def _refused(code: ErrorCode, message: str) -> Response:
    return {"error_code": code, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}
