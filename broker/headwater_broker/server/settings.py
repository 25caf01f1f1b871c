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
    auto_create_topics_enable: bool = True
    connections_max_idle_ms: int = 600_000
    default_replication_factor: int = 1
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
    max_connections: int = _INT_MAX
    max_incremental_fetch_session_cache_slots: int = 1000
    num_partitions: int = 1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_check_interval_ms: int = 600_000
    offsets_retention_minutes: int = 10_080
    producer_id_expiration_ms: int = 86_400_000
    socket_listen_backlog_size: int = 511  # Kafka's is 50: a herd of clients after a restart overflows it
    # Kafka's are 102400, which switches the kernel's own tuning off.
    socket_receive_buffer_bytes: int = -1
    socket_request_max_bytes: int = 104_857_600
    socket_send_buffer_bytes: int = -1
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


@dataclass(frozen=True, slots=True)
class Property:
    """One broker property.

    Attributes:
        name: Kafka's name.
        kind: Kafka's word for the type: INT, LONG, BOOLEAN or STRING.
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


PROPERTIES: Mapping[str, Property] = {
    each.name: each
    for each in (
        _int("broker.id", 0, "The broker's number in the cluster."),
        _text("broker.rack", "Where the broker stands, told to clients."),
        _boolean("auto.create.topics.enable", "Whether asking for a topic that is not there creates it."),
        _long("connections.max.idle.ms", 1, "How long a silent connection is kept."),
        _int("default.replication.factor", 1, "Replicas of a topic created without a number."),
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
        _int("max.connections", 0, "The most connections at a time."),
        _int("max.incremental.fetch.session.cache.slots", 0, "How many fetch sessions are remembered."),
        _int("num.partitions", 1, "Partitions of a topic created without a number."),
        _int("offset.metadata.max.bytes", 0, "The longest text kept with a committed offset."),
        _long(
            "offsets.retention.check.interval.ms", 1, "How often offsets are looked through for expired ones."
        ),
        _int("offsets.retention.minutes", 1, "How long offsets outlive their group's last member."),
        _int("producer.id.expiration.ms", 1, "How long an idle producer's sequence numbers are kept."),
        _int("socket.listen.backlog.size", 1, "Connections that may wait to be accepted."),
        _int("socket.receive.buffer.bytes", -1, "SO_RCVBUF; -1 leaves it to the kernel."),
        _int("socket.request.max.bytes", 1, "The largest request; a larger one closes its connection."),
        _int("socket.send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the kernel."),
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

PLACES = frozenset({"advertised.listeners", "listeners", "log.dir", "log.dirs", "zookeeper.connect"})
"""Properties that say where things are; each has a flag of its own, which wins."""

WITHOUT_EFFECT = frozenset(
    {
        "background.threads",
        "inter.broker.protocol.version",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
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
    for name, (target, factor) in _IN_OTHER_UNITS.items():
        if name in properties and target not in properties:
            topic_defaults[BROKER_DEFAULTS[target]] = _scaled(name, properties[name], factor)
    for name, text in properties.items():
        if name in PROPERTIES:
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
    settings = BrokerSettings(log=log, given=dict(properties))
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
        described[name] = (None if value is None else format_value(value), spec.kind, spec.doc)
    for broker_name, name in BROKER_DEFAULTS.items():
        key = CONFIG_KEYS[name]
        value = getattr(settings.log, name.replace(".", "_"))
        described[broker_name] = (format_value(value), key.kind, key.doc)
    return described


def _parse(spec: Property, text: str) -> Value:
    readers: dict[str, Callable[[str], Value]] = {
        "INT": int,
        "LONG": int,
        "DOUBLE": float,
        "BOOLEAN": {"true": True, "false": False}.__getitem__,
        "STRING": str,
    }
    try:
        value = readers[spec.kind](text.lower() if spec.kind == "BOOLEAN" else text)
    except (ValueError, KeyError):
        wanted = {"BOOLEAN": "true or false", "DOUBLE": "a number"}.get(spec.kind, "a whole number")
        raise UsageError(f"broker property {spec.name}={text} is not allowed: give {wanted}") from None
    if spec.kind in ("INT", "LONG", "DOUBLE") and not spec.low <= float(value or 0) <= spec.high:
        raise UsageError(f"broker property {spec.name}={text} is not allowed: give {spec.low} to {spec.high}")
    return value


def _scaled(name: str, text: str, factor: int) -> str:
    try:
        number = int(text)
    except ValueError:
        raise UsageError(f"broker property {name}={text} is not allowed: give a whole number") from None
    return str(number * factor if number >= 0 else -1)


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name, known_properties(), n=1, cutoff=0.0)
    return f"unknown broker property {name}; the nearest known one is {near[0]}"
