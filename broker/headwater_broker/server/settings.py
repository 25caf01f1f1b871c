"""What one broker was told to do: its properties, read and with their defaults."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from headwater_broker.log import (
    BROKER_DEFAULTS,
    InvalidConfigError,
    LogConfig,
    format_value,
    parse_value,
)
from headwater_broker.numbers import parse_integer, trimmed
from headwater_broker.server.errors import UsageError
from headwater_broker.server.properties import (
    IN_OTHER_UNITS,
    LISTENER_PREFIX,
    PROPERTIES,
    REPLICATION_FACTORS,
    Value,
    check_replication_factor,
    checked_override,
    has_no_effect,
    parse_property,
    unknown_property,
)

_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """What one broker was told to do; a field is the property's name with underscores for dots.

    Each property is described in `properties`; the defaults are Apache Kafka 3.9's but where a comment says
    otherwise.
    """

    broker_id: int = 1
    broker_rack: str | None = None
    # Kafka's is false, and its authorizer is off unless asked for; ours is always there.
    allow_everyone_if_no_acl_found: bool = True
    authorizer_class_name: str = ""
    auto_create_topics_enable: bool = True
    confluent_basic_auth_user_info: str | None = None
    confluent_schema_registry_url: str = ""
    confluent_ssl_truststore_location: str | None = None
    connection_failed_authentication_delay_ms: int = 100
    connections_max_idle_ms: int = 600_000
    connections_max_reauth_ms: int = 0
    controller_quota_window_num: int = 11
    controller_quota_window_size_seconds: int = 1
    counts_interval_ms: int = 10_000
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
    offsets_topic_num_partitions: int = 50
    offsets_topic_segment_bytes: int = 104_857_600
    producer_id_expiration_check_interval_ms: int = 600_000
    producer_id_expiration_ms: int = 86_400_000
    # Kafka's is no limit at all; -1 is a limit of this broker's own here.
    queued_max_request_bytes: int = -1
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
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)
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


def parse_settings(properties: Mapping[str, str]) -> BrokerSettings:
    """Reads properties as they come from the command line or a file.

    Raises:
        UsageError: An unknown property (the nearest known one is named) or a value that is not allowed.
    """
    fields: dict[str, Value] = {}
    topic_defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}
    for name, (target, factor) in IN_OTHER_UNITS.items():
        if name in properties and target not in properties:
            topic_defaults[BROKER_DEFAULTS[target]] = _scaled(name, properties[name], factor)
    for name, text in properties.items():
        if name.startswith(LISTENER_PREFIX):
            override = checked_override(name)
            overrides[override] = trimmed(text)
            of_all = override.removeprefix(LISTENER_PREFIX).partition(".")[2]
            for each in (
                of_all,
                of_all.partition(".")[2],
            ):  # the second where a SASL mechanism stands before it
                if each in PROPERTIES:
                    parse_property(PROPERTIES[each], trimmed(text), name)
        elif name in PROPERTIES:
            fields[PROPERTIES[name].field] = parse_property(PROPERTIES[name], trimmed(text))
        elif name in BROKER_DEFAULTS:
            topic_defaults[BROKER_DEFAULTS[name]] = text
            _check_topic_default(name, text)
        elif name in REPLICATION_FACTORS:
            check_replication_factor(name, text)
        elif name not in IN_OTHER_UNITS and not has_no_effect(name):
            raise UsageError(unknown_property(name))
    try:
        log = LogConfig.parse(topic_defaults)
    except InvalidConfigError as error:
        raise UsageError(f"broker property: {error}") from error
    if fields.get("authorizer_class_name"):
        # As Kafka's authorizers have it: in a file that names one, what no rule allows is to be refused.
        fields.setdefault("allow_everyone_if_no_acl_found", False)
    settings = BrokerSettings(log=log, properties=dict(properties), listener_overrides=overrides)
    return dataclasses.replace(settings, **fields)  # type: ignore[arg-type]


def _check_topic_default(name: str, text: str) -> None:
    try:
        parse_value(BROKER_DEFAULTS[name], text, display_name=name)
    except InvalidConfigError as error:
        raise UsageError(f"broker property: {error}") from error


def _scaled(name: str, text: str, factor: int) -> str:
    try:
        number = parse_integer(text)
    except ValueError:
        raise UsageError(f"broker property {name}={text} is not allowed: give a whole number") from None
    return str(number * factor if number >= 0 else -1)
