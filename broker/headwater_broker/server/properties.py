"""The table of the broker's properties: names, types and limits, and what is taken without effect."""

import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater_broker.log import BROKER_DEFAULTS
from headwater_broker.numbers import parse_decimal, parse_integer
from headwater_broker.server.errors import UsageError
from headwater_broker.server.kafka_keys import kafka_keys

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

Value = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Property:
    """One broker property.

    Attributes:
        name: Kafka's name.
        kind: Kafka's word for the type: INT, LONG, BOOLEAN, STRING, LIST or PASSWORD.
        low: The least number allowed.
        high: The greatest.
        doc: One sentence.
    """

    name: str
    kind: str
    low: float
    high: float
    doc: str

    @property
    def field(self) -> str:
        """The attribute of `BrokerSettings`."""
        return self.name.replace(".", "_")


def _int(name: str, low: int, doc: str, high: int = _INT_MAX) -> Property:
    return Property(name, "INT", low, high, doc)


def _long(name: str, low: int, doc: str) -> Property:
    return Property(name, "LONG", low, _LONG_MAX, doc)


def _boolean(name: str, doc: str) -> Property:
    return Property(name, "BOOLEAN", 0, 0, doc)


def _double(name: str, low: float, high: float, doc: str) -> Property:
    return Property(name, "DOUBLE", low, high, doc)


def _text(name: str, doc: str) -> Property:
    return Property(name, "STRING", 0, 0, doc)


def _list(name: str, doc: str) -> Property:
    return Property(name, "LIST", 0, 0, doc)


def _secret(name: str, doc: str) -> Property:
    return Property(name, "PASSWORD", 0, 0, doc)


PROPERTIES: Mapping[str, Property] = {
    each.name: each
    for each in (
        _int("broker.id", 0, "The broker's number in the cluster."),
        _text("broker.rack", "Where the broker stands, told to clients."),
        _boolean("allow.everyone.if.no.acl.found", "Whether all may do all with what no ACL is about."),
        _text("authorizer.class.name", "Kafka's AclAuthorizer, which is in force in any case, and no other."),
        _boolean("auto.create.topics.enable", "Whether asking for a topic that is not there creates it."),
        _secret(
            "confluent.basic.auth.user.info", "USER:PASSWORD for the schema registry, where it asks for them."
        ),
        _text(
            "confluent.schema.registry.url",
            "The schema registry that knows the ids of schemas, for topics with confluent.value.schema.validation.",
        ),
        _text(
            "confluent.ssl.truststore.location",
            "PEM file of the authorities of the schema registry's certificate; by default the system's.",
        ),
        _int("connection.failed.authentication.delay.ms", 0, "How long a failed authentication is not told."),
        _long("connections.max.idle.ms", 1, "How long a silent connection is kept."),
        _long("connections.max.reauth.ms", 0, "How long a SASL session lasts without authenticating again."),
        _int("controller.quota.window.num", 1, "Samples kept for controller mutation quotas."),
        _int("controller.quota.window.size.seconds", 1, "Length of each of these samples."),
        _long("counts.interval.ms", 1, "How often records are counted where counts.bucket.ms asks for it."),
        _int("default.replication.factor", 1, "Replicas of a topic created without a number: one.", high=1),
        _long("delegation.token.expiry.check.interval.ms", 1, "How often expired tokens are removed."),
        _long("delegation.token.expiry.time.ms", 1, "How long a token lasts until it must be renewed."),
        _secret("delegation.token.master.key", "The old name of delegation.token.secret.key."),
        _long("delegation.token.max.lifetime.ms", 1, "How long a token can be renewed for at most."),
        _secret("delegation.token.secret.key", "Makes and verifies tokens; the same on all brokers."),
        _boolean("delete.topic.enable", "Whether topics may be deleted."),
        _int("group.initial.rebalance.delay.ms", 0, "How long a new group waits for more members."),
        _int("group.max.session.timeout.ms", 1, "The longest session timeout that a member may ask for."),
        _int("group.max.size", 1, "The most members that a group may have."),
        _int("group.min.session.timeout.ms", 0, "The shortest session timeout that a member may ask for."),
        _long("log.cleaner.backoff.ms", 0, "How long compaction rests where no log is dirty enough."),
        _long("log.cleaner.dedupe.buffer.size", 1, "Memory of a compaction's map of keys."),
        _boolean("log.cleaner.enable", "Whether logs are compacted."),
        _double("log.cleaner.io.buffer.load.factor", 0, 1, "How full the map of keys may be."),
        _double(
            "log.cleaner.io.max.bytes.per.second",
            0,
            sys.float_info.max,
            "What a compaction may read a second.",
        ),
        _int("log.cleaner.threads", 0, "How many logs may be compacted at a time."),
        _int("log.flush.offset.checkpoint.interval.ms", 1, "How often the recovery points are saved."),
        _long("log.flush.scheduler.interval.ms", 1, "How often flush.ms is looked at."),
        _long("log.retention.check.interval.ms", 1, "How often retention is applied."),
        _int("max.connection.creation.rate", 0, "The most connections that are let in a second."),
        _int("max.connections", 0, "The most connections at a time."),
        _int("max.connections.per.ip", 0, "The most connections at a time from one address."),
        _text("max.connections.per.ip.overrides", "The same for some addresses or hosts: host:number,..."),
        _int("max.incremental.fetch.session.cache.slots", 0, "How many fetch sessions are remembered."),
        _int("num.partitions", 1, "Partitions of a topic created without a number."),
        _int("offset.metadata.max.bytes", 0, "The longest text kept with a committed offset."),
        _long(
            "offsets.retention.check.interval.ms", 1, "How often offsets are looked through for expired ones."
        ),
        _int("offsets.topic.num.partitions", 1, "Partitions of __consumer_offsets when it is made."),
        _int("offsets.topic.segment.bytes", 1, "Segment size of __consumer_offsets when it is made."),
        _int("offsets.retention.minutes", 1, "How long offsets outlive their group's last member."),
        _int("producer.id.expiration.check.interval.ms", 1, "How often idle producers are looked for."),
        _int("producer.id.expiration.ms", 1, "How long an idle producer's sequence numbers are kept."),
        _long(
            "queued.max.request.bytes",
            -1,
            "What large requests may take while they come in, all together; -1 leaves it to the broker.",
        ),
        _int("quota.window.num", 1, "Samples kept for client quotas."),
        _int("quota.window.size.seconds", 1, "Length of each of these samples."),
        _list("sasl.enabled.mechanisms", "SASL mechanisms of the listeners."),
        _int("sasl.server.max.receive.size", 1, "The largest request before authentication."),
        _int("socket.listen.backlog.size", 1, "Connections that may wait to be accepted."),
        _int("socket.receive.buffer.bytes", -1, "SO_RCVBUF; -1 leaves it to the kernel."),
        _int("socket.request.max.bytes", 1, "The largest request; a larger one closes its connection."),
        _int("socket.send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the kernel."),
        _list("ssl.cipher.suites", "Cipher suites of TLS 1.2, in OpenSSL's or the standard's names."),
        _text("ssl.client.auth", "Whether clients show a certificate: none, requested or required."),
        _list("ssl.enabled.protocols", "Versions of TLS."),
        _secret("ssl.key.password", "Password of the private key."),
        _secret("ssl.keystore.certificate.chain", "The broker's certificates, as PEM."),
        _secret("ssl.keystore.key", "The broker's private key, as PEM."),
        _text("ssl.keystore.location", "File of the broker's private key and certificates."),
        _secret("ssl.keystore.password", "Not used with PEM, where ssl.key.password is."),
        _text("ssl.keystore.type", "PEM, the one type that is read here."),
        _text("ssl.principal.mapping.rules", "How a certificate's subject becomes a principal."),
        _secret("ssl.truststore.certificates", "Certificates of whom clients' certificates must be, as PEM."),
        _text("ssl.truststore.location", "File of these certificates."),
        _text("ssl.truststore.type", "PEM, the one type that is read here."),
        _list("super.users", "Principals that may do everything, with semicolons between them."),
        _int(
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            1,
            "How often transactions that have been open for too long are looked for.",
        ),
        _int(
            "transaction.max.timeout.ms", 1, "The longest timeout that a transactional producer may ask for."
        ),
        _int("transaction.state.log.num.partitions", 1, "Partitions of __transaction_state when it is made."),
        _int(
            "transaction.state.log.segment.bytes", 1, "Segment size of __transaction_state when it is made."
        ),
        _int("transactional.id.expiration.ms", 1, "How long an idle transactional id is remembered."),
        _int("zookeeper.connection.timeout.ms", 1, "How long to wait for ZooKeeper at start."),
        _int("zookeeper.session.timeout.ms", 1, "How long ZooKeeper keeps a silent broker registered."),
    )
}

IN_OTHER_UNITS: Mapping[str, tuple[str, int]] = {
    "log.retention.hours": ("log.retention.ms", 3_600_000),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.roll.hours": ("log.roll.ms", 3_600_000),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", 3_600_000),
}
"""Kafka's coarser spellings; the one in milliseconds wins where both are given."""

LISTENER_PLACES = frozenset(
    {"advertised.listeners", "inter.broker.listener.name", "listener.security.protocol.map", "listeners"}
)
"""Properties that say where the broker listens; see `listeners`."""

PLACES = frozenset({"log.dir", "log.dirs", "zookeeper.connect"}) | LISTENER_PLACES
"""Properties that say where things are; each has a flag of its own, which wins."""

REPLICATION_RATES: Mapping[str, str] = {
    "follower.replication.throttled.rate": "Bytes a second that followers fetch at most.",
    "leader.replication.throttled.rate": "Bytes a second that leaders send to followers at most.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "Bytes a second that moves between disks take at most.",
}
"""What Kafka takes from a running broker only, which its reassignment tool sets: taken, without effect."""

WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "inter.broker.protocol.version",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "sasl.mechanism.inter.broker.protocol",
        "security.inter.broker.protocol",
        "offsets.topic.replication.factor",
        "queued.max.requests",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }
)
"""Kafka's properties about machinery that this broker does not have: taken, so that a properties file written
for Kafka works, and named in the log."""


REPLICATION_FACTORS = frozenset(
    {
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    }
)
"""Of topics, of the broker's own as well."""

_NOT_TO_BE_IGNORED = (
    "alter.config.policy",
    "authorizer",
    "client.quota",
    "create.topic.policy",
    "delegation.token",
    "principal.builder",
    "sasl.",
    "security.",
    "ssl.",
    "zookeeper.s",
)

_PROMISING_NOTHING = (
    "sasl.kerberos.",
    "sasl.login.refresh.",
    "ssl.endpoint.identification.algorithm",
    "ssl.keymanager.algorithm",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
"""Properties of what a listener cannot use here, and of Java's TLS. `ssl.endpoint.identification.algorithm` is about
connections that a broker opens to others; it changes nothing for those that it accepts."""


LISTENER_PREFIX = "listener.name."
_PER_LISTENER = (
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.",
)


def checked_override(name: str) -> str:
    """`listener.name.<listener>.[<mechanism>.]<property>`, where the listener may have a property of its own."""
    prefix, listener, rest = name[: len(LISTENER_PREFIX)], *name[len(LISTENER_PREFIX) :].partition(".")[::2]
    is_per_listener = any(
        each in (rest, rest.partition(".")[2]) or (each.endswith(".") and each in f".{rest}")
        for each in _PER_LISTENER
    )
    if not listener or not is_per_listener:
        raise UsageError(
            f"broker property {name}: after listener.name.<listener>. comes one of {', '.join(_PER_LISTENER)}..."
        )
    return f"{prefix}{listener.lower()}.{rest}"


def has_no_effect(name: str) -> bool:
    """Whether a property is taken, so that a file written for Kafka works, though nothing here depends on it.

    Properties that would make Kafka safer are not among them: they must not seem to be in force.
    """
    if name in WITHOUT_EFFECT:
        return True
    if name in PROPERTIES or name in BROKER_DEFAULTS or name in IN_OTHER_UNITS or name in PLACES:
        return False
    if name.startswith(LISTENER_PREFIX):
        return False
    if name.startswith(_PROMISING_NOTHING):
        return name in kafka_keys()
    return name in kafka_keys() and not name.startswith(_NOT_TO_BE_IGNORED)


def check_replication_factor(name: str, text: str) -> None:
    """Refuses what would promise replicas that nobody keeps.

    Raises:
        UsageError: More than one replica is asked for.
    """
    if text.strip().isdecimal() and int(text) > 1:
        raise UsageError(
            f"broker property {name}={text} is not allowed: brokers do not replicate to each other yet, so each "
            "partition has one replica: give 1"
        )


def known_properties() -> list[str]:
    """The names of all properties that are taken."""
    return sorted({*PROPERTIES, *BROKER_DEFAULTS, *IN_OTHER_UNITS, *PLACES, *WITHOUT_EFFECT})


def unknown_property(name: str) -> str:
    """What to say of a property that is not known."""
    near = difflib.get_close_matches(name, known_properties(), n=1, cutoff=0.0)
    return f"unknown broker property {name}; the nearest known one is {near[0]}"


def parse_property(spec: Property, text: str, display_name: str | None = None) -> Value:
    """A property's value from text.

    Raises:
        UsageError: It is not allowed; the message calls the property `display_name`.
    """
    name = display_name or spec.name
    readers: dict[str, Callable[[str], Value]] = {
        "INT": parse_integer,
        "LONG": parse_integer,
        "DOUBLE": parse_decimal,
        "BOOLEAN": {"true": True, "false": False}.__getitem__,
        "STRING": str,
        "LIST": str,
        "PASSWORD": str,
    }
    try:
        value = readers[spec.kind](text.lower() if spec.kind == "BOOLEAN" else text)
    except (ValueError, KeyError):
        expected = {"BOOLEAN": "true or false", "DOUBLE": "a number"}.get(spec.kind, "a whole number")
        raise UsageError(f"broker property {name}={text} is not allowed: give {expected}") from None
    if name in REPLICATION_FACTORS:
        check_replication_factor(name, text)
    if spec.kind in ("INT", "LONG", "DOUBLE") and not spec.low <= float(value or 0) <= spec.high:
        raise UsageError(f"broker property {name}={text} is not allowed: give {spec.low} to {spec.high}")
    return value
