"""The broker's command line and its properties file, read into typed options."""

import argparse
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwater_broker.numbers import parse_integer
from headwater_broker.server.broker import BrokerOptions
from headwater_broker.server.errors import UsageError
from headwater_broker.server.listeners import ListenerSpec, parse_listeners
from headwater_broker.server.properties import PLACES, has_no_effect
from headwater_broker.server.settings import parse_settings

_LOG = logging.getLogger(__name__)
_DEFAULT_LISTEN = "127.0.0.1:9092"


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What the command line said.

    Attributes:
        broker: The broker's options.
        zookeeper: ZooKeeper's address; None for the coordinator in memory.
    """

    broker: BrokerOptions
    zookeeper: str | None


def parse_arguments(arguments: Sequence[str]) -> ProcessOptions:
    """Reads the command line; a flag wins over --set, and that over the properties file.

    Raises:
        UsageError: It makes no sense; the message says why.
    """
    flags = _parser().parse_args(arguments)
    properties: dict[str, str] = {}
    if flags.properties is not None:
        properties.update(_read_properties(Path(flags.properties)))
    for setting in flags.set:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: write it as key=value")
        properties[name.strip()] = value.strip()
    if flags.id is not None:
        properties["broker.id"] = str(flags.id)
    places = {name: properties.pop(name) for name in PLACES & properties.keys()}
    settings = parse_settings(properties)
    for name in sorted(filter(has_no_effect, properties)):
        _LOG.warning("broker property %s is about machinery that this broker does not have", name)
    settings = dataclasses.replace(settings, properties={**settings.properties, **places})
    data = flags.data or _log_dir(places)
    listeners = _listeners(flags, places)
    zookeeper = flags.zookeeper or (None if flags.coordinator else places.get("zookeeper.connect"))
    if zookeeper is None and flags.coordinator is None:
        raise UsageError(
            "say where shared state is: --zookeeper HOST:PORT, or --coordinator memory for one broker"
        )
    first, *more = _directories(data)
    broker = BrokerOptions(
        settings.broker_id, first, settings=settings, listeners=listeners, more_dirs=tuple(more)
    )
    return ProcessOptions(broker, zookeeper)


def _listeners(flags: argparse.Namespace, places: Mapping[str, str]) -> tuple[ListenerSpec, ...]:
    """Where to listen: --listen is one PLAINTEXT listener in place of all that the properties name.

    Raises:
        UsageError: They name one that asks for passwords or TLS: whoever relies on that is not to lose it.
    """
    if flags.listen is not None and "listeners" in places:
        guarded = [each for each in parse_listeners(places) if each.has_sasl or each.has_tls]
        if guarded:
            raise UsageError(
                "--listen is a listener without passwords or TLS in place of listeners, which has "
                f"{guarded[0].protocol}: leave --listen out"
            )
    if flags.listen is not None or "listeners" not in places:
        host, port = _address(flags.listen or _DEFAULT_LISTEN, "--listen")
        places = {name: text for name, text in places.items() if name == "advertised.listeners"}
        listeners = parse_listeners({**places, "listeners": f"PLAINTEXT://{_bracketed(host)}:{port}"})
    else:
        listeners = parse_listeners(places)
    if flags.advertise is None:
        return listeners
    if len(listeners) > 1:
        raise UsageError("--advertise says one address: with several listeners give advertised.listeners")
    return (replace(listeners[0], advertised=_address(flags.advertise, "--advertise")),)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m headwater_broker",
        description="Runs one broker, which every Kafka client speaks to.",
        epilog="example: python -m headwater_broker --listen 127.0.0.1:9092 --data data --coordinator memory",
    )
    parser.add_argument("--id", type=_integer, metavar="N", help="broker id (default: broker.id, else 1)")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help=f"port 0 takes a free one (default: listeners, else {_DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--advertise",
        metavar="HOST:PORT",
        help="what clients are told (default: advertised.listeners, else --listen)",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="log directory, or several with commas between them (default: log.dirs)"
    )
    shared = parser.add_mutually_exclusive_group()
    shared.add_argument(
        "--zookeeper", metavar="HOST:PORT[,HOST:PORT...][/CHROOT]", help="default: zookeeper.connect"
    )
    shared.add_argument("--coordinator", choices=["memory"], help="no ZooKeeper: a single broker")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker property by Kafka's name"
    )
    parser.add_argument("--properties", metavar="FILE", help="a file of broker properties, as Kafka has it")
    return parser


def _integer(text: str) -> int:
    try:
        return parse_integer(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text} is {error}") from None


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{option} {text}: write it as host:port, such as 127.0.0.1:9092")
    return host, int(port)


def _read_properties(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--properties {path} cannot be read: {error}") from error
    properties = {}
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, value = line.partition("=")
        if not equals:
            raise UsageError(f"{path}, line {number}: write it as key=value, not {line!r}")
        properties[name.strip()] = value.strip()
    return properties


def _directories(text: str) -> list[Path]:
    paths = [Path(each.strip()) for each in text.split(",") if each.strip()]
    if not paths or len({path.absolute() for path in paths}) < len(paths):
        raise UsageError(f"{text!r}: write different log directories, with commas between them")
    return paths


def _log_dir(places: Mapping[str, str]) -> str:
    text = places.get("log.dirs") or places.get("log.dir")
    if text is None:
        raise UsageError("say where the data is: --data DIR")
    return text
