"""Settings as DescribeConfigs tells them: value, where it comes from, what else it could come from."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headwater_broker.log import BROKER_DEFAULTS, CONFIG_KEYS, ConfigKey, LogConfig, format_value
from headwater_broker.server.kafka_keys import kafka_keys
from headwater_broker.server.live import LiveSettings, may_change
from headwater_broker.server.properties import LISTENER_PREFIX, PROPERTIES, REPLICATION_RATES
from headwater_broker.server.settings import BrokerSettings

FROM_TOPIC, FROM_BROKER, FROM_ALL_BROKERS, FROM_START, FROM_DEFAULT = 1, 2, 3, 4, 5
"""Kafka's numbers: TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG, STATIC_BROKER_CONFIG,
DEFAULT_CONFIG."""

_TYPES = {
    "BOOLEAN": 1,
    "STRING": 2,
    "INT": 3,
    "SHORT": 4,
    "LONG": 5,
    "DOUBLE": 6,
    "LIST": 7,
    "CLASS": 8,
    "PASSWORD": 9,
}

_SYNONYMS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
"""Properties that say the same in other units, the one that wins first."""

Entry = Mapping[str, Any]

_INTERNAL = {"producer.id.expiration.check.interval.ms"}
"""What Kafka reads and does not show."""


class Describer:
    """Tells what holds and why; `places` are properties that the command line has settled."""

    def __init__(self, live: LiveSettings, places: Mapping[str, str]) -> None:
        self._live = live
        self._places = places

    def topic(
        self, own: Mapping[str, str], *, synonyms: bool = True, documentation: bool = True
    ) -> list[Entry]:
        """Every setting of a topic.

        Args:
            own: The topic's own settings.
            synonyms: Whether to name where else a value could come from.
            documentation: Whether to explain.
        """
        config = effective(own, self._live.current.log)
        return [
            self._topic_entry(key, own, config, synonyms=synonyms, documentation=documentation)
            for key in CONFIG_KEYS.values()
        ]

    def _topic_entry(
        self,
        key: ConfigKey,
        own: Mapping[str, str],
        config: LogConfig,
        *,
        synonyms: bool,
        documentation: bool,
    ) -> Entry:
        value = format_value(getattr(config, key.name.replace(".", "_")))
        sources = [] if key.broker_name is None else list(self._sources(key.broker_name))
        if key.name in own:
            sources.insert(0, _synonym(key.name, value, FROM_TOPIC))
        return {
            "name": key.name,
            "value": value,
            "read_only": False,
            "config_source": sources[0]["source"] if sources else FROM_DEFAULT,
            "is_sensitive": False,
            "synonyms": sources if synonyms else [],
            "config_type": _TYPES[key.kind],
            "documentation": key.doc if documentation else None,
        }

    def broker(self, *, synonyms: bool = True, documentation: bool = True) -> list[Entry]:
        """Every property of this broker."""
        names = {*kafka_keys(), *PROPERTIES, *BROKER_DEFAULTS} - _INTERNAL
        configured = {*self._live.static, *self._live.of_this_broker, *self._live.of_all_brokers}
        names.update(
            name for name in configured if name.startswith(LISTENER_PREFIX) or name in REPLICATION_RATES
        )
        return [
            self._broker_entry(name, None, synonyms=synonyms, documentation=documentation)
            for name in sorted(names)
        ]

    def all_brokers(self, *, synonyms: bool = True, documentation: bool = True) -> list[Entry]:
        """What was changed for all brokers."""
        return [
            self._broker_entry(name, FROM_ALL_BROKERS, synonyms=synonyms, documentation=documentation)
            for name in sorted(self._live.of_all_brokers)
        ]

    def _broker_entry(self, name: str, only: int | None, *, synonyms: bool, documentation: bool) -> Entry:
        kind, doc = _kind_and_doc(name)
        is_sensitive = kind == "PASSWORD"
        sources = [each for each in self._sources(name) if only in (None, each["source"])]
        value = sources[0]["value"] if sources else None
        if is_sensitive:
            value, sources = None, [{**each, "value": None} for each in sources]
        return {
            "name": name,
            "value": value,
            "read_only": not may_change(name),
            "config_source": sources[0]["source"] if sources else FROM_DEFAULT,
            "is_sensitive": is_sensitive,
            "synonyms": sources if synonyms else [],
            "config_type": _TYPES[kind],
            "documentation": doc if documentation else None,
        }

    def _sources(self, name: str) -> Iterator[dict[str, Any]]:
        """Where a property's value comes from, the one that holds first.

        As in Kafka, the search for one that has other spellings begins with its own.
        """
        names = next((names for names in _SYNONYMS if name in names), (name,))
        started = False
        for source, values in (
            (FROM_BROKER, self._live.of_this_broker),
            (FROM_ALL_BROKERS, self._live.of_all_brokers),
            (FROM_START, {**self._live.static, **self._places}),
        ):
            for each in names:
                if each in values:
                    started = started or each == name
                    if started:
                        yield _synonym(each, values[each], source)
        for each in names:
            default = _default(each)
            if default is not None:
                started = started or each == name
                if started:
                    yield _synonym(each, default, FROM_DEFAULT)


def effective(own: Mapping[str, str], base: LogConfig) -> LogConfig:
    """A topic's settings, from which what is stored but not known here is left out."""
    return LogConfig.parse({name: text for name, text in own.items() if name in CONFIG_KEYS}, base)


def list_elements(text: str | None) -> Sequence[str]:
    """The elements of a setting that is a list."""
    return [each for each in (text or "").split(",") if each]


def _synonym(name: str, value: str, source: int) -> dict[str, Any]:
    return {"name": name, "value": value, "source": source}


def _kind_and_doc(name: str) -> tuple[str, str]:
    if name.startswith(LISTENER_PREFIX):
        return _kind_and_doc_of_listener(name)
    if name in REPLICATION_RATES:
        return "LONG", REPLICATION_RATES[name]
    key = kafka_keys().get(name)
    if key is not None:
        return key.kind, key.doc
    if name in PROPERTIES:
        return PROPERTIES[name].kind, PROPERTIES[name].doc
    topic_key = CONFIG_KEYS[BROKER_DEFAULTS[name]]
    return topic_key.kind, topic_key.doc


def _kind_and_doc_of_listener(name: str) -> tuple[str, str]:
    """Of a property that a listener, or one of its SASL mechanisms, has for itself."""
    rest = name.removeprefix(LISTENER_PREFIX)
    while rest:
        rest = rest.partition(".")[2]
        if rest in kafka_keys() or rest in PROPERTIES:
            return _kind_and_doc(rest)
    return "PASSWORD", "A property of a listener."  # as Kafka has it: what is not known may be a secret


def _default(name: str) -> str | None:
    """A property's default as text; Kafka's own way to write it where it is the same."""
    key = kafka_keys().get(name)
    if name in PROPERTIES:
        value = getattr(BrokerSettings(), PROPERTIES[name].field)
        if value is None:
            return None
        is_kafkas = (
            key is not None
            and key.kind == "DOUBLE"
            and key.default is not None
            and float(key.default) == value
        )
        return key.default if key is not None and is_kafkas else format_value(value)
    if key is not None:
        return key.default
    return format_value(CONFIG_KEYS[BROKER_DEFAULTS[name]].default) if name in BROKER_DEFAULTS else None
