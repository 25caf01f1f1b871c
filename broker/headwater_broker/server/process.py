"""The broker as a process: arguments in, one line out when it is ready, an exit status at the end."""

import argparse
import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater_broker.coordination import Coordinator, CorruptState, MemoryCoordinator, ZooKeeperCoordinator
from headwater_broker.log import LogDirError
from headwater_broker.server.broker import Broker, BrokerOptions
from headwater_broker.server.errors import ServerError, UsageError
from headwater_broker.server.settings import WITHOUT_EFFECT, parse_settings

_LOG = logging.getLogger(__name__)
_FAILED = 1


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """What the command line said.

    Attributes:
        broker: The broker's options.
        zookeeper: ZooKeeper's address; None for the coordinator in memory.
    """

    broker: BrokerOptions
    zookeeper: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a broker until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after a clean stop, 2 for wrong arguments, 3 for a port in use, 4 if ZooKeeper cannot
        be reached or refuses, 1 for anything else.
    """
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        coordinator = make_coordinator(options)
        asyncio.run(_serve(options.broker, coordinator))
    except ServerError as error:
        print(f"headwater_broker: {error}", file=sys.stderr)
        return error.exit_status
    except (LogDirError, CorruptState, OSError) as error:
        print(f"headwater_broker: {error}", file=sys.stderr)
        return _FAILED
    return 0


def parse_arguments(arguments: Sequence[str]) -> ProcessOptions:
    """Reads the command line.

    Raises:
        UsageError: It makes no sense; the message says why.
    """
    given = _parser().parse_args(arguments)
    properties: dict[str, str] = {}
    if given.properties is not None:
        properties.update(_read_properties(Path(given.properties)))
    for setting in given.set:
        name, equals, value = setting.partition("=")
        if not equals:
            raise UsageError(f"--set {setting}: write it as key=value")
        properties[name.strip()] = value.strip()
    if given.id is not None:
        properties["broker.id"] = str(given.id)
    settings = parse_settings(properties)
    for name in sorted(WITHOUT_EFFECT & properties.keys()):
        _LOG.warning("broker property %s is about machinery that this broker does not have", name)
    host, port = _address(given.listen, "--listen")
    advertised = None if given.advertise is None else _address(given.advertise, "--advertise")
    broker = BrokerOptions(settings.broker_id, Path(given.data), host, port, advertised, settings)
    return ProcessOptions(broker, given.zookeeper)


def make_coordinator(options: ProcessOptions) -> Coordinator:
    """Shared state as the command line asks for it, not connected yet."""
    if options.zookeeper is None:
        return MemoryCoordinator(options.broker.data_dir)
    try:
        return ZooKeeperCoordinator(
            options.zookeeper, session_timeout_ms=options.broker.settings.zookeeper_session_timeout_ms
        )
    except ValueError as error:
        raise UsageError(f"--zookeeper {options.zookeeper}: {error}") from error


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message} (see --help)")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m headwater_broker",
        description="Runs one broker, which every Kafka client speaks to.",
        epilog="example: python -m headwater_broker --listen 127.0.0.1:9092 --data data --coordinator memory",
    )
    parser.add_argument("--id", type=int, metavar="N", help="broker id (default: broker.id, else 1)")
    parser.add_argument(
        "--listen",
        default="127.0.0.1:9092",
        metavar="HOST:PORT",
        help="port 0 takes a free one (%(default)s)",
    )
    parser.add_argument("--advertise", metavar="HOST:PORT", help="what clients are told (default: --listen)")
    parser.add_argument("--data", required=True, metavar="DIR", help="log directory")
    shared = parser.add_mutually_exclusive_group(required=True)
    shared.add_argument("--zookeeper", metavar="HOST:PORT[,HOST:PORT...][/CHROOT]", help="ZooKeeper")
    shared.add_argument("--coordinator", choices=["memory"], help="no ZooKeeper: a single broker")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker property by Kafka's name"
    )
    parser.add_argument("--properties", metavar="FILE", help="a file of broker properties, as Kafka has it")
    return parser


def _address(text: str, option: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
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


async def _serve(options: BrokerOptions, coordinator: Coordinator) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # A stop that comes during the start, which may wait long for ZooKeeper, ends it.
    starting = loop.create_task(Broker.start(options, coordinator))
    stop_wanted = loop.create_task(stopping.wait())
    await asyncio.wait({starting, stop_wanted}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    try:
        broker = starting.result()
    except BaseException:
        stop_wanted.cancel()
        raise
    # What is alive now stays alive: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    host, port = broker.address
    print(f"ready {f'[{host}]' if ':' in host else host}:{port}", flush=True)
    _LOG.info("broker %d serves %s on %s:%d", options.broker_id, options.data_dir, host, port)
    await stop_wanted
    _LOG.info("stopping")
    await broker.stop()
    _LOG.info("stopped")
