"""The description of a local stack, before anything of it runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headwater.config import Settings
from headwater.errors import UsageError
from headwater.stack.ports import format_address, parse_address
from headwater_broker.numbers import is_natural

BROKER_ID = "broker.id"
_ALONE = "a broker that asks for passwords or TLS is started alone: python -m headwater_broker --set {}=..."
_PLACES = {
    "listeners": f"a stack listens at --host and --port; {_ALONE}",
    "listener.security.protocol.map": f"a stack's one listener is PLAINTEXT; {_ALONE}",
    "inter.broker.listener.name": f"a stack's one listener is PLAINTEXT; {_ALONE}",
    "log.dir": "a stack keeps its data in --data",
    "log.dirs": "a stack keeps its data in --data",
    "zookeeper.connect": "give --zookeeper",
}
"""Broker properties that a stack decides itself, and what to do instead: they would have no effect."""


@dataclass(frozen=True)
class StackSpec:
    """A local stack: where its data is, what it starts, where that listens.

    Attributes:
        data: The folder of everything's data; broker N's log directory is `data/broker-N/log`.
        host: The address to listen on.
        port: The first broker's port, the others' follow; 0 gives each a free one.
        broker_ids: One number for each broker.
        coordinator: `zookeeper` or `memory`.
        zookeeper: An external ensemble as `host:port,...[/chroot]`; empty for the embedded one.
        properties: Broker properties by Kafka's names, `broker.id` left out.
        zookeeper_heap_mb: The embedded ZooKeeper's heap.
        ready_timeout_s: How long ZooKeeper, and then each broker, may take.
        stop_timeout_s: How long a clean stop may take before a kill.
        registry_port: Where a schema registry listens, 0 for any free port; None for none.
    """

    data: Path
    host: str
    port: int
    broker_ids: tuple[int, ...]
    coordinator: str
    zookeeper: str
    properties: Mapping[str, str]
    zookeeper_heap_mb: int
    ready_timeout_s: float
    stop_timeout_s: float
    registry_port: int | None = None

    @property
    def embeds_zookeeper(self) -> bool:
        return self.coordinator == "zookeeper" and not self.zookeeper

    def port_of(self, index: int) -> int:
        """The port to ask for as the broker of this index; 0 leaves it to the system."""
        return self.port + index if self.port else 0


def stack_spec(settings: Settings, data: Path, assignments: Iterable[str] = ()) -> StackSpec:
    """The stack that the settings and the `--set` flags describe.

    Args:
        settings: The `[stack]` and `[broker]` sections.
        data: The data folder.
        assignments: Broker properties as `key=value`; they win over `[broker]`.

    Raises:
        UsageError: If they contradict each other or are not of their form.
    """
    stack = settings.stack
    properties = dict(settings.broker) | dict(_parse_assignment(each) for each in assignments)
    first_id = properties.pop(BROKER_ID, "1")
    if not is_natural(first_id):
        raise UsageError(f"broker.id={first_id} is not a number: give one from 0 up")
    for name in _PLACES.keys() & properties.keys():
        raise UsageError(f"{name} is not for headwater up: {_PLACES[name].format(name)}")
    if stack.coordinator == "memory" and stack.brokers > 1:
        raise UsageError(
            f"{stack.brokers} brokers need ZooKeeper: leave out --coordinator memory, or start one broker"
        )
    if stack.coordinator == "memory" and stack.zookeeper:
        raise UsageError("--zookeeper and --coordinator memory exclude each other: leave one out")
    if stack.port and stack.port + stack.brokers - 1 > 65535:
        raise UsageError(f"{stack.brokers} brokers from port {stack.port} on would pass port 65535")
    for address in ensemble_addresses(stack.zookeeper):
        try:
            parse_address(address)
        except ValueError as error:
            raise UsageError(
                f"--zookeeper {stack.zookeeper} is not of the form host:port,host:port/chroot"
            ) from error
    return StackSpec(
        data=data,
        host=stack.host,
        port=stack.port,
        broker_ids=tuple(range(int(first_id), int(first_id) + stack.brokers)),
        coordinator=stack.coordinator,
        zookeeper=stack.zookeeper,
        properties=properties,
        zookeeper_heap_mb=stack.zookeeper_heap_mb,
        ready_timeout_s=stack.ready_timeout_s,
        stop_timeout_s=stack.stop_timeout_s,
        registry_port=stack.registry_port if stack.registry else None,
    )


def ensemble_addresses(zookeeper: str) -> list[str]:
    """The addresses of `host:port,host:port/chroot`; a missing port is ZooKeeper's 2181."""
    hosts = zookeeper.partition("/")[0]
    addresses = [each.strip() for each in hosts.split(",") if each.strip()]
    return [each if ":" in each else format_address(each, 2181) for each in addresses]


def _parse_assignment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name.strip():
        raise UsageError(f"--set {text} is not of the form key=value")
    return name.strip(), value.strip()
