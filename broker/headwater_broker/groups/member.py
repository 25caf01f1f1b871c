"""One member of a group."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from headwater_broker.groups.kept import KeptMember
from headwater_broker.groups.messages import JoinedMember, MemberDescription


@dataclass(eq=False, slots=True)
class Member:
    """A member and what it waits for.

    Attributes:
        join_token: token of its parked JoinGroup.
        sync_token: token of its parked SyncGroup.
        is_new: it has not been in a generation yet, so it cannot send heartbeats.
        expires_ms: when it is removed unless it is heard of; None while a parked request stands for it.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    join_token: object | None = None
    sync_token: object | None = None
    is_new: bool = True
    expires_ms: int | None = None

    @classmethod
    def restored(cls, kept: KeptMember, protocol_type: str) -> Member:
        """A member of the generation that was kept."""
        fields = {name: getattr(kept, name) for name in KeptMember.__slots__}
        return cls(protocol_type=protocol_type, is_new=False, **fields)

    def to_keep(self) -> KeptMember:
        """What is to be kept of it."""
        return KeptMember(**{name: getattr(self, name) for name in KeptMember.__slots__})

    @property
    def is_static(self) -> bool:
        """Whether it has a `group.instance.id`."""
        return self.instance_id is not None

    @property
    def is_excused(self) -> bool:
        """Whether a parked request stands for its heartbeats; a new member's JoinGroup does not.

        A client that has gone away while its first JoinGroup was parked would otherwise stay for ever.
        """
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str) -> bytes | None:
        """What it said about itself for a protocol, None where it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), None)

    def vote(self, candidates: Collection[str]) -> str:
        """The candidate that it likes best."""
        return next(name for name, _ in self.protocols if name in candidates)

    def joined(self, protocol: str) -> JoinedMember:
        """As the leader sees it."""
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol) or b"")

    def describe(self, protocol: str | None) -> MemberDescription:
        """As DescribeGroups shows it; metadata and assignment only in a stable group, whose protocol is
        given.
        """
        return MemberDescription(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            (self.metadata(protocol) or b"") if protocol is not None else b"",
            self.assignment if protocol is not None else b"",
        )
