"""The broker as a process: arguments in, one line out when it is ready, an exit status at the end."""

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

from headwater_broker.coordination import Coordinator, CorruptState, MemoryCoordinator, ZooKeeperCoordinator
from headwater_broker.log import LogDirError
from headwater_broker.server.arguments import ProcessOptions, parse_arguments
from headwater_broker.server.broker import Broker, BrokerOptions
from headwater_broker.server.errors import ServerError, UsageError
from headwater_broker.server.loggers import LineFormatter
from headwater_broker.shown import escaped

_LOG = logging.getLogger(__name__)
_FAILED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a broker until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after a clean stop, 2 for wrong arguments, 3 for a port in use, 4 if ZooKeeper cannot
        be reached or refuses, 1 for anything else.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.captureWarnings(True)
    # A log on a full disk takes no line: that is no reason to try and write a traceback there.
    logging.raiseExceptions = False
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        _raise_descriptor_limit()
        coordinator = make_coordinator(options)
        asyncio.run(_serve(options.broker, coordinator))
    except ServerError as error:
        _say(str(error))
        return error.exit_status
    except (LogDirError, CorruptState) as error:
        _say(str(error))
        return _FAILED
    except OSError as error:
        _say(f"cannot use {error.filename}: {error.strerror}" if error.filename else str(error))
        return _FAILED
    return 0


def _say(sentence: str) -> None:
    """Tells why the process ends, on a line of its log."""
    print(f"headwater_broker: {escaped(sentence)}", file=sys.stderr)


def _raise_descriptor_limit() -> None:
    """Takes all the files and connections that the process may have, as Java does for Kafka (MaxFDLimit).

    Every partition and every client holds one; shells often give 1024.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):  # some systems have a lower bound that they do not tell
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    _LOG.info("files and connections together: at most %d", resource.getrlimit(resource.RLIMIT_NOFILE)[0])


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


async def _serve(options: BrokerOptions, coordinator: Coordinator) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    # A stop that comes during the start, which may wait long for ZooKeeper, ends it.
    starting = loop.create_task(Broker.start(options, coordinator))
    stop_requested = loop.create_task(stopping.wait())
    await asyncio.wait({starting, stop_requested}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    try:
        broker = starting.result()
    except BaseException:
        stop_requested.cancel()
        raise
    # What is alive now stays alive: the collector need not look at it again and again.
    gc.collect()
    gc.freeze()
    host, port = broker.address
    print(f"ready {f'[{host}]' if ':' in host else host}:{port}", flush=True)
    _LOG.info("broker %d serves %s on %s:%d", options.broker_id, options.data_dir, host, port)
    await stop_requested
    _LOG.info("stopping")
    await broker.stop()
    _LOG.info("stopped")
