"""PLAIN (RFC 4616): name and password in one message; the listener's passwords come from its JAAS text."""

import hmac
import re
from collections.abc import Mapping

from headwater_broker.security.errors import AuthenticationFailedError
from headwater_broker.security.principal import USER, Principal

_OPTION = re.compile(r"""\s*([\w.\-@]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^\s;"]+)""")
_USER_PREFIX = "user_"


class PlainServer:
    """The server's side of one exchange: one step.

    Attributes:
        principal: Who the client is; None until it is proved.
        expires_ms: None: a password does not end.
    """

    def __init__(self, passwords: Mapping[str, str]) -> None:
        """Begins an exchange with the passwords that count."""
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._passwords = passwords

    def step(self, token: bytes) -> bytes:
        """Takes the client's message.

        Raises:
            AuthenticationFailedError: The client is not who it says, or the message is malformed.
        """
        try:
            authorize_as, name, password = token.decode().split("\0")
        except ValueError as error:
            message = "Invalid SASL/PLAIN response: expected 3 tokens"
            raise AuthenticationFailedError(message) from error
        if not name or not password:
            which = "password" if name else "username"
            raise AuthenticationFailedError(f"Authentication failed: {which} not specified")
        expected = self._passwords.get(name)
        # Compared in any case, so that the time taken does not tell whether there is such a user.
        is_right = hmac.compare_digest((expected or "").encode(), password.encode())
        if expected is None or not is_right:
            raise AuthenticationFailedError("Authentication failed: Invalid username or password")
        if authorize_as and authorize_as != name:
            message = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise AuthenticationFailedError(message)
        self.principal = Principal(USER, name)
        return b""


def plain_passwords(jaas: str) -> dict[str, str]:
    """The passwords by user of a `PlainLoginModule required ... user_alice="secret";`.

    Raises:
        ValueError: It is no such text; the message does not hold it, since it is secret.
    """
    match = re.fullmatch(r"\s*([\w.$]+)\s+(\w+)(.*?);?\s*", jaas, re.DOTALL)
    if match is None or not match[1].endswith(".PlainLoginModule"):
        raise ValueError(
            'write org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD" ...;'
        )
    options, position = {}, 0
    while match[3][position:].strip():
        option = _OPTION.match(match[3], position)
        if option is None:
            raise ValueError('write each option as name="value", with a semicolon behind the last')
        value = option[2]
        options[option[1]] = re.sub(r"\\(.)", r"\1", value[1:-1]) if value[0] == '"' else value
        position = option.end()
    return {
        name.removeprefix(_USER_PREFIX): value
        for name, value in options.items()
        if name.startswith(_USER_PREFIX)
    }
