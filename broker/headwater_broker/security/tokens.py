"""Delegation tokens (KIP-48): a secret that stands for its owner for a while."""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from headwater_broker.security.principal import Principal, parse_principal


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """How long tokens last.

    Attributes:
        max_lifetime_ms: The longest that a token can be renewed for (`delegation.token.max.lifetime.ms`).
        renewed_for_ms: How long it lasts if nothing else is said (`delegation.token.expiry.time.ms`).
    """

    max_lifetime_ms: int
    renewed_for_ms: int


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret, which follows from its id and the brokers' key.

    Attributes:
        token_id: Its public name.
        owner: Who it stands for.
        requester: Who asked for it.
        renewers: Who may renew it, beside the owner.
        issued_ms: When it was made.
        max_ms: When it ends at the latest.
        expires_ms: When it ends if nobody renews it.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    max_ms: int
    expires_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """Whether it has ended."""
        return self.max_ms < now_ms or self.expires_ms < now_ms

    def may_be_renewed_by(self, principal: Principal) -> bool:
        """Whether somebody may renew or expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: Principal) -> bool:
        """Whether somebody owns it, asked for it or may renew it, by which Kafka lists tokens."""
        return principal == self.requester or self.may_be_renewed_by(principal)

    def to_json(self) -> dict[str, Any]:
        """Version 3 of Kafka's JSON in ZooKeeper (`DelegationTokenManagerZk`)."""
        return {
            "version": 3,
            "owner": _sanitize(self.owner),
            "tokenRequester": _sanitize(self.requester),
            "renewers": [_sanitize(each) for each in self.renewers],
            "issueTimestamp": self.issued_ms,
            "maxTimestamp": self.max_ms,
            "expiryTimestamp": self.expires_ms,
            "tokenId": self.token_id,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "DelegationToken":
        """Reads what is kept, versions 1 to 3.

        Raises:
            ValueError: It is no token.
        """
        try:
            owner = _principal(value["owner"])
            return cls(
                token_id=str(value["tokenId"]),
                owner=owner,
                requester=_principal(value["tokenRequester"]) if value["version"] >= 3 else owner,
                renewers=tuple(_principal(each) for each in value["renewers"]),
                issued_ms=int(value["issueTimestamp"]),
                max_ms=int(value["maxTimestamp"]),
                expires_ms=int(value["expiryTimestamp"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"a delegation token without {error}") from error


def token_hmac(key: str, token_id: str) -> bytes:
    """A token's secret; base64 of it is the password of its SCRAM account."""
    return hmac.digest(key.encode(), token_id.encode(), "sha512")


def token_password(key: str, token_id: str) -> str:
    """The secret as the client's password."""
    return b64encode(token_hmac(key, token_id)).decode()


def _sanitize(principal: Principal) -> str:
    return quote(str(principal), safe="").replace("~", "%7E")


def _principal(text: str) -> Principal:
    return parse_principal(unquote(text))
