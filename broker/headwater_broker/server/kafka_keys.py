"""The broker properties that Apache Kafka 3.9 has, as consoles expect to be told of them: `kafka_keys.txt`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class KafkaKey:
    """One property.

    Attributes:
        name: Its name.
        kind: Kafka's word for its type: INT, LONG, SHORT, DOUBLE, BOOLEAN, STRING, LIST, CLASS or PASSWORD.
        default: Kafka's default as text; None: it has none.
        is_dynamic: Whether a running broker takes a new value.
        is_per_broker: Whether it takes it for itself only, not among the settings of all brokers.
        doc: One sentence.
    """

    name: str
    kind: str
    default: str | None
    is_dynamic: bool
    is_per_broker: bool
    doc: str


@cache
def kafka_keys() -> Mapping[str, KafkaKey]:
    """All of them by name, read when first asked for."""
    lines = (
        files("headwater_broker.server").joinpath("kafka_keys.txt").read_text(encoding="utf-8").splitlines()
    )
    lines = [line for line in lines if not line.startswith("#")]
    keys = {}
    for line, doc in zip(lines[::2], lines[1::2], strict=True):
        name, kind, default, scope = line.split()
        text = {"-": None, '""': ""}.get(default, default)
        keys[name] = KafkaKey(name, kind, text, scope != "fixed", scope == "broker", doc.strip())
    return MappingProxyType(keys)
