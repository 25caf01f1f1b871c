"""Who a client is, once it has said so."""

from dataclasses import dataclass, field

USER = "User"
"""The only kind of principal that this broker makes, as Kafka's default principal builder."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A kind and a name, such as `User:alice`.

    Attributes:
        kind: Nearly always `User`.
        name: The name.
        by_token: Whether it came in by a delegation token; such a session may make no tokens itself.
    """

    kind: str
    name: str
    by_token: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Whoever comes through a listener that asks for no name."""


def parse_principal(text: str) -> Principal:
    """Reads `User:alice`; the name may hold colons.

    Raises:
        ValueError: There is no colon, or nothing before or behind it.
    """
    kind, colon, name = text.partition(":")
    if not (colon and kind and name):
        raise ValueError(f"{text!r} is no principal: write it as User:name")
    return Principal(kind, name)
