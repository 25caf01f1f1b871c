"""A whole broker in a thread of the test's process."""

import asyncio
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from headwater_broker.coordination import Coordinator, MemoryCoordinator
from headwater_broker.log import Clock
from headwater_broker.server import Broker, BrokerOptions, parse_listeners, parse_settings
from headwater_broker.server.properties import LISTENER_PLACES

_START_TIMEOUT_S = 60.0
_FOR_TESTS = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that answers.

    Attributes:
        host: Where it listens.
        port: Its port.
        data_dir: Its log directory.
        addresses: Host and port of each listener, where it has several.
    """

    host: str
    port: int
    data_dir: Path
    addresses: Mapping[str, tuple[str, int]]

    @property
    def bootstrap(self) -> str:
        """The address as clients want it."""
        return f"{self.host}:{self.port}"

    @property
    def bootstrap_servers(self) -> str:
        """The same, by the name that Kafka's settings have for it."""
        return self.bootstrap


@contextmanager
def broker(
    data_dir: Path | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    coordinator: Coordinator | None = None,
    broker_id: int = 1,
    port: int = 0,
    more_dirs: Sequence[Path] = (),
    clock: Clock | None = None,
) -> Iterator[RunningBroker]:
    """Runs a broker while the block lasts.

    Groups rebalance without the usual delay, and members may ask for short session timeouts.

    Args:
        data_dir: Its log directory, which outlives the block; None: a temporary one.
        properties: Broker properties by Kafka's names.
        coordinator: Shared state; None: in memory, in `data_dir`.
        broker_id: Its number.
        port: Where it listens, to have a broker come back; 0: on a free port.
        more_dirs: Its other log directories.
        clock: Its time, such as a `FixedClock`; None: the machine's.

    Raises:
        ServerError: It cannot start, or a property is wrong.
    """
    with ExitStack() as stack:
        if data_dir is None:
            data_dir = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-broker-")))
        all_properties = {**_FOR_TESTS, **(properties or {}), "broker.id": str(broker_id)}
        places = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            **{name: all_properties.pop(name) for name in LISTENER_PLACES & all_properties.keys()},
        }
        options = BrokerOptions(
            broker_id,
            data_dir,
            settings=parse_settings(all_properties),
            listeners=parse_listeners(places),
            more_dirs=tuple(more_dirs),
        )
        runner = _Runner(options, coordinator or MemoryCoordinator(data_dir), clock)
        addresses = runner.start()
        host, port = next(iter(addresses.values()))
        try:
            yield RunningBroker(host, port, data_dir, addresses)
        finally:
            runner.stop()


class _Runner:
    """The thread that the broker's loop runs in."""

    def __init__(self, options: BrokerOptions, coordinator: Coordinator, clock: Clock | None) -> None:
        self._options = options
        self._coordinator = coordinator
        self._clock = clock
        self._ready = threading.Event()
        self._addresses: Mapping[str, tuple[str, int]] = {}
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)

    def start(self) -> Mapping[str, tuple[str, int]]:
        self._thread.start()
        if not self._ready.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker did not start within {_START_TIMEOUT_S:.0f} s")
        if self._error is not None:
            raise self._error
        return self._addresses

    def stop(self) -> None:
        assert self._loop is not None
        assert self._stopping is not None
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        running = await Broker.start(self._options, self._coordinator, self._clock)
        self._addresses = running.addresses
        self._ready.set()
        await self._stopping.wait()
        await running.stop()
