"""The broker's settings while it runs: its properties, and what was changed since through the protocol."""

import logging
from collections.abc import Callable, Mapping

from headwater_broker.numbers import trimmed
from headwater_broker.server.connection_limits import parse_overrides
from headwater_broker.server.errors import UsageError
from headwater_broker.server.kafka_keys import kafka_keys
from headwater_broker.server.properties import LISTENER_PREFIX, PLACES, REPLICATION_RATES
from headwater_broker.server.settings import BrokerSettings, parse_settings
from headwater_broker.shown import MESSAGE_CHARS, shown

_LOG = logging.getLogger(__name__)

_DYNAMIC_OF_LISTENER = {"max.connection.creation.rate", "max.connections"}

Changed = Callable[[BrokerSettings], None]
"""Called with the new settings."""


class LiveSettings:
    """Belongs to the loop's thread.

    Attributes:
        current: What holds now.
        of_all_brokers: What was changed for every broker (the entity `<default>`).
        of_this_broker: What was changed for this one, which wins.
    """

    def __init__(self, static: BrokerSettings) -> None:
        """Begins with what the broker was started with."""
        self._static = static
        # Places are settled once: they are not among the settings that are read again at a change.
        self._first = {name: text for name, text in static.properties.items() if name not in PLACES}
        self._listeners: list[Changed] = []
        self.current = static
        self.of_all_brokers: Mapping[str, str] = {}
        self.of_this_broker: Mapping[str, str] = {}

    @property
    def static(self) -> Mapping[str, str]:
        """The properties that were given at the start, as text."""
        return self._static.properties

    def on_change(self, callback: Changed) -> None:
        """Has `callback` called when something changed."""
        self._listeners.append(callback)

    def take(self, of_all_brokers: Mapping[str, str], of_this_broker: Mapping[str, str]) -> None:
        """Takes what shared state holds; what cannot be used is passed over with a warning."""
        if (of_all_brokers, of_this_broker) == (self.of_all_brokers, self.of_this_broker):
            return
        self.of_all_brokers, self.of_this_broker = dict(of_all_brokers), dict(of_this_broker)
        before = self.current
        self.current = self._merged({**of_all_brokers, **of_this_broker})
        if self.current != before:
            for callback in self._listeners:
                callback(self.current)

    def check(self, changed: Mapping[str, str]) -> None:
        """Checks that the broker could run with these changes.

        Raises:
            UsageError: A name or a value is not allowed, or cannot be changed now.
        """
        fixed = sorted(name for name in changed if not may_change(name))
        if fixed:
            raise UsageError(f"Cannot update these configs dynamically: {', '.join(fixed)}")
        for name in REPLICATION_RATES.keys() & changed.keys():
            rate = trimmed(changed[name])
            if not rate.isascii() or not rate.isdigit():
                raise UsageError(f"{name}={changed[name]} is not allowed: give a whole number of bytes")
        parse_settings({**self._first, **_settings_in(changed)})
        parse_overrides(changed.get("max.connections.per.ip.overrides", ""))

    def check_for_all(self, changed: Mapping[str, str]) -> None:
        """Checks that every broker could run with these changes.

        Raises:
            UsageError: As `check` has it, or a broker takes the name only for itself.
        """
        self.check(changed)
        own = sorted(name for name in changed if name in kafka_keys() and kafka_keys()[name].is_per_broker)
        if own:
            raise UsageError(
                "Cannot update these configs at default cluster level, broker id must be specified: "
                + ", ".join(own)
            )

    def _merged(self, changed: Mapping[str, str]) -> BrokerSettings:
        good = dict(self._first)
        for name, value in _settings_in(changed).items():
            try:
                self.check({name: value})
                parse_settings({**good, name: value})
            except UsageError as error:
                _LOG.warning("a stored broker setting is passed over: %s", shown(error, MESSAGE_CHARS))
            else:
                good[name] = value
        return parse_settings(good)


def _settings_in(changed: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in changed.items() if name not in REPLICATION_RATES}


def may_change(name: str) -> bool:
    """Whether a running broker takes a new value of a property."""
    _, of_listener, rest = name.partition(LISTENER_PREFIX)
    if of_listener and rest.partition(".")[2] in _DYNAMIC_OF_LISTENER:
        return True
    if name in REPLICATION_RATES:
        return True
    key = kafka_keys().get(name)
    return key is not None and key.is_dynamic
