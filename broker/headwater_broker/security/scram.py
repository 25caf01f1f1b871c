"""SCRAM (RFC 5802) as Kafka speaks it: credentials as they are kept, and the server's side of the exchange.

Nobody's password is known here: a credential proves that the client knows it, and cannot be used in its place.
"""

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headwater_broker.numbers import parse_integer
from headwater_broker.security.errors import AuthenticationFailedError
from headwater_broker.security.principal import USER, Principal

# The messages as Kafka's `ScramMessages` takes them: attributes in this order, names in ASCII. Extensions may follow,
# each attribute once: of `n=admin,n=alice` two programs could read two users. `m=`, which RFC 5802 has refused, is.
_SASLNAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[A-Za-z0-9/+]{4})*(?:[A-Za-z0-9/+]{3}=|[A-Za-z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<authorize_as>{_SASLNAME}))?,"
    rf"(?P<bare>n=(?P<name>{_SASLNAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<without_proof>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16384


class ScramMechanism(Enum):
    """A hash function to do it with; the value is the mechanism's name."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash_name(self) -> str:
        """The hash function as `hashlib` calls it."""
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def number(self) -> int:
        """Kafka's number on the wire."""
        return 1 if self is ScramMechanism.SHA_256 else 2


MECHANISM_BY_NUMBER: Mapping[int, ScramMechanism] = {each.number: each for each in ScramMechanism}


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What is kept of a password.

    Attributes:
        salt: Mixed into it.
        stored_key: Hash of the client's key; checks the client's proof.
        server_key: Proves to the client that the server knows the credential.
        iterations: How often the hash function was applied.
    """

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of_salted_password(
        cls, mechanism: ScramMechanism, salt: bytes, salted_password: bytes, iterations: int
    ) -> "ScramCredential":
        """What to keep, from what AlterUserScramCredentials sends."""
        client_key = _hmac(mechanism, salted_password, b"Client Key")
        return cls(
            salt,
            hashlib.new(mechanism.hash_name, client_key).digest(),
            _hmac(mechanism, salted_password, b"Server Key"),
            iterations,
        )

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, salt: bytes, password: str, iterations: int = MIN_ITERATIONS
    ) -> "ScramCredential":
        """What to keep, from the password itself. Takes some milliseconds."""
        salted = hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)
        return cls.of_salted_password(mechanism, salt, salted, iterations)

    @classmethod
    def parse(cls, text: str) -> "ScramCredential":
        """Reads what is kept, in Kafka's form (`ScramCredentialUtils`).

        Raises:
            ValueError: It is no credential.
        """
        parts = dict(part.partition("=")[::2] for part in text.split(","))
        try:
            return cls(
                b64decode(parts["salt"], validate=True),
                b64decode(parts["stored_key"], validate=True),
                b64decode(parts["server_key"], validate=True),
                parse_integer(parts["iterations"]),
            )
        except KeyError as error:
            raise ValueError(f"a SCRAM credential without {error}") from error

    def __str__(self) -> str:
        return (
            f"salt={b64encode(self.salt).decode()},stored_key={b64encode(self.stored_key).decode()},"
            f"server_key={b64encode(self.server_key).decode()},iterations={self.iterations}"
        )

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"  # the rest is secret


@dataclass(frozen=True, slots=True)
class Account:
    """Who a credential belongs to, and when it ends: a token's does."""

    principal: Principal
    credential: ScramCredential
    expires_ms: int | None = None


Lookup = Callable[[str, bool], Account | None]
"""Finds an account by its name, or by a token's id where the second argument is true."""


class ScramServer:
    """The server's side of one exchange: two steps.

    Attributes:
        principal: Who the client is; None until it is proved.
        expires_ms: When what proved it ends, None for never.
    """

    def __init__(self, mechanism: ScramMechanism, lookup: Lookup, nonce: str) -> None:
        """Begins an exchange.

        Args:
            mechanism: Which hash function.
            lookup: Finds accounts.
            nonce: Random text without commas, new for each exchange.
        """
        self.principal: Principal | None = None
        self.expires_ms: int | None = None
        self._mechanism = mechanism
        self._lookup = lookup
        self._nonce = nonce
        self._account: Account | None = None
        self._first = ""

    def step(self, token: bytes) -> bytes:
        """Takes a message of the client's, returns the answer to it.

        Raises:
            AuthenticationFailedError: The client is not who it says, or the message is malformed.
        """
        try:
            message = token.decode()
            if self._account is None:
                return self._answer_first(message).encode()
            return self._answer_final(self._account, message).encode()
        except ValueError as error:
            raise self._failure() from error

    def _answer_first(self, message: str) -> str:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise self._failure()
        extensions = self._extensions(match["extensions"], "amnr")
        name = _saslname(match["name"])
        if match["authorize_as"] is not None and _saslname(match["authorize_as"]) != name:
            message = (
                "Authentication failed: Client requested an authorization id that is different from username"
            )
            raise AuthenticationFailedError(message)
        account = self._lookup(name, extensions.get("tokenauth", "").lower() == "true")
        if account is None or account.credential.iterations < MIN_ITERATIONS:
            raise self._failure()
        self._account = account
        self._nonce = match["nonce"] + self._nonce
        salt = b64encode(account.credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={account.credential.iterations}"
        self._first = f"{match['bare']},{answer}"
        return answer

    def _answer_final(self, account: Account, message: str) -> str:
        match = _CLIENT_FINAL.fullmatch(message)
        if match is None:
            raise self._failure()
        self._extensions(match["extensions"], "crp")
        if match["nonce"] != self._nonce or b64decode(match["channel"])[:2] != b"n,":
            raise self._failure()
        signed = f"{self._first},{match['without_proof']}".encode()
        credential = account.credential
        signature = _hmac(self._mechanism, credential.stored_key, signed)
        proof = b64decode(match["proof"])
        if len(proof) != len(signature):
            raise self._failure()
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._mechanism.hash_name, client_key).digest()
        if not hmac.compare_digest(stored_key, credential.stored_key):
            raise self._failure()
        self.principal = account.principal
        self.expires_ms = account.expires_ms
        return f"v={b64encode(_hmac(self._mechanism, credential.server_key, signed)).decode()}"

    def _extensions(self, text: str, reserved: str) -> dict[str, str]:
        """The attributes behind those that each message has; one that comes twice is refused."""
        pairs = [part.split("=", 1) for part in text.split(",")[1:]]
        names = [*reserved, *(name for name, _ in pairs)]
        if len(set(names)) < len(names):
            raise self._failure()
        return dict(pairs)

    def _failure(self) -> AuthenticationFailedError:
        # The same for a user that is not there and for a wrong password, as Kafka's.
        name = self._mechanism.value
        return AuthenticationFailedError(
            f"Authentication failed during authentication due to invalid credentials with SASL mechanism {name}"
        )


def scram_accounts(
    mechanism: ScramMechanism, credentials: Mapping[str, Mapping[str, str]], name: str
) -> Account | None:
    """A user's account, from the settings of all users; None where there is no usable credential."""
    text = credentials.get(name, {}).get(mechanism.value)
    if text is None:
        return None
    try:
        return Account(Principal(USER, name), ScramCredential.parse(text))
    except ValueError:
        return None


def _hmac(mechanism: ScramMechanism, key: bytes, data: bytes) -> bytes:
    return hmac.digest(key, data, mechanism.hash_name)


def _saslname(text: str) -> str:
    return text.replace("=2C", ",").replace("=3D", "=")
