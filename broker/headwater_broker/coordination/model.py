"""The things that brokers share: who is up, which topics there are, who leads, how far groups have read."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import quote, unquote
from uuid import UUID, uuid4

NO_LEADER = -1
"""Leader id of a partition that nobody leads, as Kafka writes it."""

DEFAULT_ENTITY = "<default>"
"""Name of the settings for users, clients or addresses that have none of their own."""

_EMPTY = "%"  # the encoding of no other name: a per cent sign is always followed by two digits
_SANITIZED = {DEFAULT_ENTITY: DEFAULT_ENTITY, "": _EMPTY, ".": "%2E", "..": "%2E%2E"}

PRODUCER_ID_BLOCK_SIZE = 1000
"""Producer ids handed out at a time (Kafka's `ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE`)."""

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One advertised listener of a broker."""

    host: str
    port: int
    listener: str = "PLAINTEXT"
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker as it registers itself.

    Attributes:
        broker_id: its `broker.id`.
        endpoints: advertised listeners, the first PLAINTEXT one being what old clients use.
        rack: `broker.rack`.
        identity: something that only this broker's data directory has (its `directory.id`, or the directory's
            absolute path): a registration with the same id and identity is our own stale one and is replaced.
        features: supported features by name, as (min, max) versions.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    identity: str = ""
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint:
        """Its address for clients that came through a listener of that name; the first one if it has none."""
        return next((each for each in self.endpoints if each.listener == listener), self.endpoints[0])


@dataclass(frozen=True, slots=True)
class Controller:
    """Which broker is the controller, and the epoch of its reign."""

    broker_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Replicas of one partition and who leads it.

    Attributes:
        replicas: broker ids, preferred leader first.
        leader: broker id or `NO_LEADER`.
        leader_epoch: grows by one whenever the leader changes.
        isr: in-sync replicas.
        controller_epoch: epoch of the controller that wrote this state.
        version: version of the stored state, -1 if none is stored yet. A write names the version that it
            replaces.
        adding: replicas being added by a reassignment.
        removing: replicas being removed by one.
    """

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    version: int = -1
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic with all its partitions, keyed and sorted by partition number."""

    name: str
    topic_id: UUID
    partitions: Mapping[int, PartitionState]


@dataclass(frozen=True, slots=True)
class Committed:
    """How far a group has read one partition.

    Attributes:
        offset: the next record to read.
        leader_epoch: of the last record read, -1 if not known.
        metadata: what the client wanted to keep with it.
        timestamp_ms: when it was committed, None if not known.
        expires_ms: when it expires, where its client asked for that (OffsetCommit 2 to 4), else None.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    timestamp_ms: int | None = None
    expires_ms: int | None = None


class ConfigKind(Enum):
    """Kinds of dynamic configuration; the value is the directory's name under `/config`."""

    TOPIC = "topics"
    BROKER = "brokers"
    CLIENT = "clients"
    USER = "users"
    USER_CLIENT = "users/clients"
    """A client id of one user; its name is made by `user_client_name`."""
    IP = "ips"


class ChangeKind(Enum):
    """What a watch reports."""

    BROKERS = "brokers"
    """The set of live brokers, or an address, changed."""
    TOPICS = "topics"
    """`Change.name` (None: any topic) was created or deleted, or its partitions or their leaders changed."""
    CONFIGS = "configs"
    """`Change.name` is the entity, such as `topics/clicks`; None: any."""
    DELETIONS = "deletions"
    """Topics wait for deletion: see `Coordinator.pending_deletions`."""
    ACLS = "acls"
    """Some access rules changed."""
    TOKENS = "tokens"
    """Some delegation token was made, changed or removed."""
    CONTROLLER = "controller"
    """The controller resigned, died or was elected."""
    DISCONNECTED = "disconnected"
    """No connection; the session may live on."""
    CONNECTED = "connected"
    """The connection is back within the same session. Everything may have changed meanwhile."""
    SESSION_LOST = "session lost"
    """The session expired. The broker's registration is gone until `SESSION_RESTORED`."""
    SESSION_RESTORED = "session restored"
    """A new session; the broker is registered again. Everything may have changed meanwhile."""


@dataclass(frozen=True, slots=True)
class Change:
    """One report of a watch. Reports may be merged or repeated: read the state, do not count reports."""

    kind: ChangeKind
    name: str | None = None


def user_client_name(user: str, client_id: str) -> str:
    """The name of a client id of one user, for `ConfigKind.USER_CLIENT`."""
    return f"{sanitize(user)}/clients/{sanitize(client_id)}"


def split_user_client(name: str) -> tuple[str, str]:
    """User and client id of a name that `user_client_name` made."""
    user, _, client_id = name.split("/")
    return desanitize(user), desanitize(client_id)


def sanitize(name: str) -> str:
    """A user's or client's name as one component of a path, as Kafka's `Sanitizer` writes it.

    `<default>` stands for whoever has nothing of their own, and stays as it is.
    """
    if name in _SANITIZED:
        return _SANITIZED[name]
    return quote(name, safe="", errors="surrogatepass").replace("~", "%7E")


def desanitize(component: str) -> str:
    """The name that `sanitize` made the component of."""
    return "" if component == _EMPTY else unquote(component, errors="surrogatepass")


def led_by_first(assignment: Mapping[int, Sequence[int]], controller_epoch: int) -> dict[int, PartitionState]:
    """New partitions: the first replica leads, all are in sync."""
    return {
        number: PartitionState(
            replicas=tuple(replicas),
            leader=replicas[0],
            isr=tuple(replicas),
            controller_epoch=controller_epoch,
        )
        for number, replicas in sorted(assignment.items())
    }


def new_cluster_id() -> str:
    """A random UUID as Kafka writes it: URL-safe base64 without padding."""
    while True:
        text = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):  # Kafka avoids these: command lines would take them for options
            return text
