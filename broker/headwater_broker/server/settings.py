"""The broker's properties, under Kafka's names, with their types, defaults and limits in one table."""

import dataclasses
import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater_broker.log import (
    BROKER_DEFAULTS,
    CONFIG_KEYS,
    InvalidConfigError,
    LogConfig,
    format_value,
    parse_value,
)
from headwater_broker.server.errors import UsageError
from headwater_broker.server.kafka_keys import kafka_keys

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1

Value = int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What one broker was told to do; a field is the property's name with underscores for dots.

    Each property is described in `PROPERTIES`; the defaults are Apache Kafka 3.9's but where a comment says
    otherwise.
    """

    broker_id: int = 1
    broker_rack: str | None = None
    # Kafka's is false, and its authorizer is off unless asked for; ours is always there.
    allow_everyone_if_no_acl_found: bool = True
    authorizer_class_name: str = ""
    auto_create_topics_enable: bool = True
    connection_failed_authentication_delay_ms: int = 100
    connections_max_idle_ms: int = 600_000
    connections_max_reauth_ms: int = 0
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    default_replication_factor: int = 1
    delegation_token_expiry_check_interval_ms: int = 3_600_000
    delegation_token_expiry_time_ms: int = 86_400_000
    delegation_token_master_key: str | None = None
    delegation_token_max_lifetime_ms: int = 604_800_000
    delegation_token_secret_key: str | None = None
    delete_topic_enable: bool = True
    group_initial_rebalance_delay_ms: int = 3000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = _INT_MAX
    group_min_session_timeout_ms: int = 6000
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_enable: bool = True
    log_cleaner_io_buffer_load_factor: float = 0.9
    log_cleaner_io_max_bytes_per_second: float = 1.7976931348623157e308
    log_cleaner_threads: int = 1
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_scheduler_interval_ms: int = 1000  # Kafka's is "never"; without it flush.ms would do nothing
    log_retention_check_interval_ms: int = 300_000
    max_connection_creation_rate: int = _INT_MAX
    max_connections: int = _INT_MAX
    max_connections_per_ip: int = _INT_MAX
    max_connections_per_ip_overrides: str = ""
    max_incremental_fetch_session_cache_slots: int = 1000
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    quota_window_num: int = 11
    quota_window_size_seconds: int = 1
    # Kafka's is GSSAPI, which is not spoken here.
    sasl_enabled_mechanisms: str = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    sasl_server_max_receive_size: int = 524_288
    socket_listen_backlog_size: int = 511  # Kafka's is 50: a herd of clients after a restart overflows it
    # Kafka's are 102400, which switches the kernel's own tuning off.
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = -1
    ssl_cipher_suites: str = ""
    ssl_client_auth: str = "none"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    ssl_key_password: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: str | None = None
    ssl_keystore_type: str = "PEM"  # Kafka's is JKS, which is Java's own
    ssl_principal_mapping_rules: str = "DEFAULT"
    ssl_truststore_certificates: str | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str = "PEM"
    super_users: str = ""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_max_timeout_ms: int = 900_000
    transaction_state_log_num_partitions: int = 50
    transaction_state_log_segment_bytes: int = 104_857_600
    transactional_id_expiration_ms: int = 604_800_000
    # Kafka's is that of the session, 18 s: long to look at a wrong address.
    zookeeper_connection_timeout_ms: int = 6000
    zookeeper_session_timeout_ms: int = 18_000
    log: LogConfig = dataclasses.field(default_factory=LogConfig)
    given: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
    listener_overrides: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def of_listener(self, listener: str, name: str, mechanism: str | None = None) -> str | None:
        """A property as text, as it holds for one listener and SASL mechanism.

        Args:
            listener: The listener's name.
            name: The property's.
            mechanism: The mechanism; None for a property that does not depend on it.

        Returns:
            What was given for the listener's mechanism, else for the listener, else for all; None for nothing.
        """
        prefix = f"listener.name.{listener.lower()}."
        if mechanism is not None:
            text = self.listener_overrides.get(f"{prefix}{mechanism.lower()}.{name}")
            if text is not None:
                return text
        text = self.listener_overrides.get(prefix + name)
        if text is not None or name not in PROPERTIES:
            return text
        value: Value = getattr(self, PROPERTIES[name].field)
        return None if value is None else format_value(value)


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


def _int(name: str, low: int, doc: str) -> Property:
    return Property(name, "INT", low, _INT_MAX, doc)


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
        _int("connection.failed.authentication.delay.ms", 0, "How long a failed authentication is not told."),
        _long("connections.max.idle.ms", 1, "How long a silent connection is kept."),
        _long("connections.max.reauth.ms", 0, "How long a SASL session lasts without authenticating again."),
        _int("controller.quota.window.num", 1, "Samples kept for controller mutation quotas."),
        _int("controller.quota.window.size.seconds", 1, "Length of each of these samples."),
        _int("default.replication.factor", 1, "Replicas of a topic created without a number."),
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
        _int("offsets.retention.minutes", 1, "How long offsets outlive their group's last member."),
        _int("producer.id.expiration.check.interval.ms", 1, "How often idle producers are looked for."),
        _int("producer.id.expiration.ms", 1, "How long an idle producer's sequence numbers are kept."),
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

_IN_OTHER_UNITS: Mapping[str, tuple[str, int]] = {
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
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        "offsets.topic.segment.bytes",
        "queued.max.requests",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    }
)
"""Kafka's properties about machinery that this broker does not have: taken, so that a properties file written
for Kafka works, and named in the log."""


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


def parse_settings(properties: Mapping[str, str]) -> BrokerSettings:
    """Reads properties as they come from the command line or a file.

    Raises:
        UsageError: An unknown property (the nearest known one is named) or a value that is not allowed.
    """
    fields: dict[str, Value] = {}
    topic_defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}
    for name, (target, factor) in _IN_OTHER_UNITS.items():
        if name in properties and target not in properties:
            topic_defaults[BROKER_DEFAULTS[target]] = _scaled(name, properties[name], factor)
    for name, text in properties.items():
        if name.startswith(LISTENER_PREFIX):
            override = _checked_override(name)
            overrides[override] = text.strip()
            of_all = override.removeprefix(LISTENER_PREFIX).partition(".")[2]
            if of_all in PROPERTIES:
                _parse(PROPERTIES[of_all], text.strip(), name)
        elif name in PROPERTIES:
            fields[PROPERTIES[name].field] = _parse(PROPERTIES[name], text.strip())
        elif name in BROKER_DEFAULTS:
            topic_defaults[BROKER_DEFAULTS[name]] = text
            _check_topic_default(name, text)
        elif name not in _IN_OTHER_UNITS and not has_no_effect(name):
            raise UsageError(_unknown(name))
    try:
        log = LogConfig.parse(topic_defaults)
    except InvalidConfigError as error:
        raise UsageError(f"broker property: {error}") from error
    if fields.get("authorizer_class_name"):
        # As Kafka's authorizers have it: a file that names one means what it does not allow to be refused.
        fields.setdefault("allow_everyone_if_no_acl_found", False)
    settings = BrokerSettings(log=log, given=dict(properties), listener_overrides=overrides)
    return dataclasses.replace(settings, **fields)  # type: ignore[arg-type]


def _check_topic_default(name: str, text: str) -> None:
    try:
        parse_value(BROKER_DEFAULTS[name], text, shown_as=name)
    except InvalidConfigError as error:
        raise UsageError(f"broker property: {error}") from error


def has_no_effect(name: str) -> bool:
    """Whether a property is taken, so that a file written for Kafka works, though nothing here depends on it.

    What would make Kafka safer is not among them: it must not seem to be in force.
    """
    if name in WITHOUT_EFFECT:
        return True
    if name in PROPERTIES or name in BROKER_DEFAULTS or name in _IN_OTHER_UNITS or name in PLACES:
        return False
    if name.startswith(LISTENER_PREFIX):
        return False
    return name in kafka_keys() and not name.startswith(_NOT_TO_BE_IGNORED)


def known_properties() -> list[str]:
    """The names of all properties that are taken."""
    return sorted({*PROPERTIES, *BROKER_DEFAULTS, *_IN_OTHER_UNITS, *PLACES, *WITHOUT_EFFECT})


def describe_settings(settings: BrokerSettings) -> dict[str, tuple[str | None, str, str]]:
    """Every property that has an effect, for DescribeConfigs.

    Returns:
        By name: the value as text, Kafka's word for its type, and one sentence about it.
    """
    described: dict[str, tuple[str | None, str, str]] = {}
    for name, spec in PROPERTIES.items():
        value: Value = getattr(settings, spec.field)
        text = None if value is None or spec.kind == "PASSWORD" else format_value(value)
        described[name] = (text, spec.kind, spec.doc)
    for broker_name, name in BROKER_DEFAULTS.items():
        key = CONFIG_KEYS[name]
        value = getattr(settings.log, name.replace(".", "_"))
        described[broker_name] = (format_value(value), key.kind, key.doc)
    return described


def _parse(spec: Property, text: str, shown_as: str | None = None) -> Value:
    name = shown_as or spec.name
    readers: dict[str, Callable[[str], Value]] = {
        "INT": int,
        "LONG": int,
        "DOUBLE": float,
        "BOOLEAN": {"true": True, "false": False}.__getitem__,
        "STRING": str,
        "LIST": str,
        "PASSWORD": str,
    }
    try:
        value = readers[spec.kind](text.lower() if spec.kind == "BOOLEAN" else text)
    except (ValueError, KeyError):
        wanted = {"BOOLEAN": "true or false", "DOUBLE": "a number"}.get(spec.kind, "a whole number")
        raise UsageError(f"broker property {name}={text} is not allowed: give {wanted}") from None
    if spec.kind in ("INT", "LONG", "DOUBLE") and not spec.low <= float(value or 0) <= spec.high:
        raise UsageError(f"broker property {name}={text} is not allowed: give {spec.low} to {spec.high}")
    return value


LISTENER_PREFIX = "listener.name."
_PER_LISTENER = (
    "connections.max.reauth.ms",
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "ssl.",
)


def _checked_override(name: str) -> str:
    """`listener.name.<listener>.[<mechanism>.]<property>`, where the listener may have a property of its own."""
    prefix, listener, rest = name[: len(LISTENER_PREFIX)], *name[len(LISTENER_PREFIX) :].partition(".")[::2]
    known = any(
        each in (rest, rest.partition(".")[2]) or (each.endswith(".") and each in f".{rest}")
        for each in _PER_LISTENER
    )
    if not listener or not known:
        raise UsageError(
            f"broker property {name}: after listener.name.<listener>. comes one of {', '.join(_PER_LISTENER)}..."
        )
    return f"{prefix}{listener.lower()}.{rest}"


def _scaled(name: str, text: str, factor: int) -> str:
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"broker property {name}={text} is not allowed: give a whole number") from None
    return str(number * factor if number >= 0 else -1)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, known_properties(), n=1, cutoff=0.0)
    return f"unknown broker property {name}; the nearest known one is {near[0]}"
