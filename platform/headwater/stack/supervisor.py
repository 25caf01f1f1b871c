"""The parent process of a local stack: starts ZooKeeper and the brokers, watches and stops them."""

import errno
import fcntl
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from headwater.errors import PortInUseError, UsageError, UserError, reason
from headwater.stack.brokers import BrokerProcess
from headwater.stack.java import find_java
from headwater.stack.logs import cannot_write
from headwater.stack.ports import format_address, refusal
from headwater.stack.processes import start_ticks
from headwater.stack.registry import RegistryProcess
from headwater.stack.restarts import Restarts
from headwater.stack.spec import StackSpec
from headwater.stack.state import (
    START_MISSING,
    Member,
    StackState,
    note_parent,
    open_lock,
    read_state,
    remove_end,
    remove_state,
    running_state,
    write_end,
    write_state,
)
from headwater.stack.zookeeper import EmbeddedZooKeeper, check_ensemble

# The kernel ends the children of a killed parent at once; their memory may take a moment to be given back.
_PREVIOUS_CHILDREN_TIMEOUT_S = 10.0
_POLL_S = 0.05
_ENDED = -1  # no process has started then
# ZooKeeper keeps everything on disk, and brokers serve the partitions that they lead while they wait for it. So if it
# ends, it is started again for as long as they run, after pauses if it ends again, as on a full disk.
_STAYS_S = 60.0

_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs one stack in the foreground, from start to stop.

    Args:
        spec: What to start.
        environ: The environment, for finding Java.
        on_ready: Called once, with the first broker's advertised address, when clients can produce.
        tell: Called with a sentence when a child dies and the stack goes on.
    """

    def __init__(
        self,
        spec: StackSpec,
        environ: Mapping[str, str],
        *,
        on_ready: Callable[[str], None],
        tell: Callable[[str], None],
    ) -> None:
        self._spec = spec
        self._environ = environ
        self._on_ready = on_ready
        self._show = tell
        self._is_state_stale = False
        self._zookeeper: EmbeddedZooKeeper | None = None
        self._brokers: list[BrokerProcess] = []
        self._ended: list[Member] = []
        self._registry: RegistryProcess | None = None
        self._registry_restarts = Restarts()
        self._ready_at_ms = 0
        self._zookeeper_started_s = 0.0
        self._zookeeper_restarts = Restarts()
        self._stop_requests = 0
        self._start_requests = 0

    def run(self) -> None:
        """Start everything, wait for SIGTERM, SIGINT or SIGHUP, stop everything.

        `START_MISSING` has brokers that ended meanwhile started again.

        Raises:
            UserError: If something cannot be started, or the last broker dies.
        """
        try:
            self._spec.data.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._spec.data, error) from error
        with self._only_one(), self._signals() as wake_fd:
            remove_end(self._spec.data)
            try:
                self._start(wake_fd)
                if not self._interrupted():
                    self._become_ready()
                    self._watch(wake_fd)
            except UserError as error:
                if self._ready_at_ms:
                    write_end(self._spec.data, str(error))
                raise
            finally:
                self._stop()
                remove_state(self._spec.data)

    # -- start

    def _start(self, wake_fd: int) -> None:
        self._await_previous_children()
        self._check_coordinator()
        self._check_ports()
        zookeeper = self._start_zookeeper()
        for index in range(len(self._spec.broker_ids)):
            if self._interrupted():
                return
            broker = BrokerProcess(self._spec, index, zookeeper)
            broker.start()
            self._brokers.append(broker)
            self._write_state()
        self._await_brokers(wake_fd)
        if self._spec.registry_port is not None and not self._interrupted():
            self._registry = RegistryProcess(self._spec, [broker.address for broker in self._brokers])
            self._registry.start()
            self._registry.await_ready(self._spec.ready_timeout_s, self._interrupted)

    def _start_zookeeper(self) -> str:
        """Bring the shared state up; returns its address, empty for the memory coordinator."""
        spec = self._spec
        if spec.coordinator == "memory":
            return ""
        if spec.zookeeper:
            check_ensemble(spec.zookeeper)
            return spec.zookeeper
        self._zookeeper = EmbeddedZooKeeper(
            spec.data / "zookeeper", spec.host, find_java(self._environ), spec.zookeeper_heap_mb
        )
        self._zookeeper.start(spec.ready_timeout_s, self._interrupted)
        return self._zookeeper.address

    def _await_brokers(self, wake_fd: int) -> None:
        deadline = time.monotonic() + self._spec.ready_timeout_s
        waiting = list(self._brokers)
        while waiting and not self._interrupted():
            for broker in waiting:
                if not broker.read_ready() and broker.process.poll() is not None:
                    raise broker.failure()
            waiting = [broker for broker in waiting if not broker.address]
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise UserError(
                    f"broker {waiting[0].id} was not ready after {self._spec.ready_timeout_s:.0f} s: "
                    f"see {waiting[0].log}, or raise stack.ready_timeout_s"
                )
            fds = [broker.stdout_fd for broker in waiting]
            select.select([wake_fd, *fds], [], [], max(0.0, deadline - time.monotonic()))
            _drain(wake_fd)

    def _become_ready(self) -> None:
        self._ready_at_ms = time.time_ns() // 1_000_000
        self._write_state()
        self._on_ready(self._brokers[0].address)

    def _await_previous_children(self) -> None:
        """After a kill -9 of a stack's parent, wait until the kernel has ended its children."""
        previous = read_state(self._spec.data)
        deadline = time.monotonic() + _PREVIOUS_CHILDREN_TIMEOUT_S
        for member in previous.members if previous else ():
            while member.is_alive:
                if time.monotonic() > deadline:
                    raise UserError(
                        f"process {member.pid}, a {member.role} of an earlier run, still holds "
                        f"{self._spec.data}: end it with kill {member.pid}"
                    )
                time.sleep(_POLL_S)

    def _check_coordinator(self) -> None:
        """Refuses another coordinator than the one that the cluster was begun with."""
        spec = self._spec
        memory_files = [spec.data / f"broker-{each}" / "log" / "coordinator.json" for each in spec.broker_ids]
        if spec.coordinator != "memory" and any(file.exists() for file in memory_files):
            raise UsageError(
                f"the stack in {spec.data} was begun with --coordinator memory: give it again, or choose another "
                "--home"
            )
        if spec.coordinator == "memory" and (spec.data / "zookeeper").exists():
            raise UsageError(
                f"the stack in {spec.data} was begun with ZooKeeper: leave --coordinator memory out, or choose another "
                "--home"
            )

    def _check_ports(self) -> None:
        for index in range(len(self._spec.broker_ids)):
            port = self._spec.port_of(index)
            error = refusal(self._spec.host, port)
            if error is None:
                continue
            address = format_address(self._spec.host, port)
            if error.errno == errno.EADDRINUSE:
                raise PortInUseError(
                    f"another process listens on {address}: stop it, or choose another port with --port"
                )
            raise UserError(
                f"cannot listen on {address} ({reason(error)}): give an address of this "
                "machine with --host, and a port that you may use with --port"
            )

    def _tell(self, sentence: str) -> None:
        with suppress(OSError):  # standard error may go to a full disk
            self._show(sentence)

    # -- run

    def _watch(self, wake_fd: int) -> None:
        """Sleep until a signal arrives, a child ends, or one that was started again is ready."""
        while not self._interrupted():
            fds = [os.pidfd_open(process.pid) for process in self._running()]
            starting = [broker.stdout_fd for broker in self._brokers if not broker.address]
            if (
                self._registry is not None
                and self._registry_restarts.due_s is None
                and not self._registry.address
            ):
                starting.append(self._registry.stdout_fd)
            restarts = (self._zookeeper_restarts, self._registry_restarts)
            due = [each.due_s for each in restarts if each.due_s is not None]
            due_s = min(due, default=None)
            try:
                timeout_s = None if due_s is None else max(due_s - time.monotonic(), 0.0)
                select.select([wake_fd, *fds, *starting], [], [], timeout_s)
            finally:
                for fd in fds:
                    os.close(fd)
            _drain(wake_fd)
            if not self._interrupted():
                self._look_after_children()

    def _look_after_children(self) -> None:
        if self._zookeeper is not None and self._zookeeper.process.poll() is not None:
            self._look_after_zookeeper(self._zookeeper)
        if self._registry is not None:
            self._look_after_registry(self._registry)
        if [broker for broker in self._brokers if not broker.address and broker.read_ready()]:
            self._write_state()
        for broker in [broker for broker in self._brokers if broker.process.poll() is not None]:
            self._brokers.remove(broker)
            if not self._brokers:
                raise broker.failure()
            self._ended.append(Member("broker", broker.id, broker.address, broker.process.pid, _ENDED))
            self._tell(f"{broker.failure()}; the other brokers go on, and headwater up starts it again")
            self._write_state()
        if self._start_requests:
            self._start_requests = 0
            self._start_missing()

    def _start_missing(self) -> None:
        """Start the brokers again that have ended while others went on."""
        zookeeper = self._zookeeper.address if self._zookeeper is not None else self._spec.zookeeper
        missing, self._ended = self._ended, []
        for member in missing:
            assert member.id is not None
            broker = BrokerProcess(self._spec, self._spec.broker_ids.index(member.id), zookeeper)
            try:
                broker.start()
            except UserError as error:
                self._tell(str(error))
                self._ended.append(member)
                continue
            self._brokers.append(broker)
        self._write_state()

    def _look_after_zookeeper(self, zookeeper: EmbeddedZooKeeper) -> None:
        """Start ZooKeeper again, which has ended: at once, or after a pause if it was started just before."""
        now, restarts = time.monotonic(), self._zookeeper_restarts
        if restarts.due_s is None:
            if now - self._zookeeper_started_s > _STAYS_S:
                restarts.pause_s = 0.0
            self._tell(
                f"ZooKeeper ended with status {zookeeper.process.returncode}{zookeeper.disk_state()}; it is started "
                f"{restarts.again}"
            )
            restarts.postpone(now)
        if restarts.is_waiting(now):
            return
        try:
            zookeeper.start(self._spec.ready_timeout_s, self._interrupted)
        except UserError as error:
            zookeeper.kill()
            if restarts.is_news:
                self._tell(f"{error}; the brokers go on with what needs no ZooKeeper, and it is tried again")
            restarts.postpone(time.monotonic())
            return
        self._zookeeper_started_s, restarts.due_s = time.monotonic(), None
        if not self._interrupted():
            self._tell("ZooKeeper runs again")
        self._write_state()

    def _look_after_registry(self, registry: RegistryProcess) -> None:
        """Start the schema registry again if it has ended: its schemas are in the brokers."""
        now, restarts = time.monotonic(), self._registry_restarts
        if restarts.due_s is None:
            if not registry.address and registry.read_ready():
                restarts.pause_s = 0.0
                self._tell("the schema registry runs again")
                self._write_state()
            if registry.process.poll() is None:
                return
            registry.address = ""
            if restarts.is_news:
                self._tell(f"{registry.failure()}; it is started {restarts.again}")
            restarts.postpone(now)
        if restarts.is_waiting(now):
            return
        restarts.due_s = None
        try:
            registry.start()
        except UserError as error:  # its log cannot be written
            self._tell(str(error))
            restarts.due_s = time.monotonic() + restarts.pause_s
        self._write_state()

    def _running(self) -> list[subprocess.Popen[bytes]]:
        """The children that have not been found ended."""
        processes = [broker.process for broker in self._brokers]
        if self._registry is not None and self._registry_restarts.due_s is None:
            processes.append(self._registry.process)
        if self._zookeeper is None or self._zookeeper_restarts.due_s is not None:
            return processes
        return [*processes, self._zookeeper.process]

    # -- stop

    def _stop(self) -> None:
        """Brokers first, since they sign off in ZooKeeper; a second stop signal kills what is left."""
        requests = self._stop_requests
        deadline = time.monotonic() + self._spec.stop_timeout_s
        groups = [[broker.process for broker in self._brokers]]
        if self._registry is not None:
            groups.insert(0, [self._registry.process])
        if self._zookeeper is not None and self._zookeeper.is_started:
            groups.append([self._zookeeper.process])
        for processes in groups:
            for process in processes:
                process.terminate()
            while any(process.poll() is None for process in processes):
                if time.monotonic() > deadline or self._stop_requests > requests + 1:
                    for process in processes:
                        process.kill()
                time.sleep(_POLL_S)

    # -- the parent itself

    def _write_state(self) -> None:
        members = []
        if self._zookeeper is not None:
            members.append(
                _member("zookeeper", None, self._zookeeper.address, self._zookeeper.process.pid),
            )
        members += [_member("broker", each.id, each.address, each.process.pid) for each in self._brokers]
        members += self._ended
        if self._registry is not None:
            members.append(_member("registry", None, self._registry.address, self._registry.process.pid))
        try:
            self._replace_state(tuple(members))
            self._is_state_stale = False
        except OSError as error:
            if not self._ready_at_ms:
                raise cannot_write(self._spec.data, error) from error
            if not self._is_state_stale:
                self._tell(f"{cannot_write(self._spec.data, error)}; headwater status shows what was before")
            self._is_state_stale = True

    def _replace_state(self, members: tuple[Member, ...]) -> None:
        write_state(
            self._spec.data,
            StackState(
                pid=os.getpid(),
                start_ticks=start_ticks(os.getpid()) or 0,
                ready=self._ready_at_ms > 0,
                started_at_ms=self._ready_at_ms,
                coordinator=self._spec.coordinator,
                zookeeper=self._zookeeper.address if self._zookeeper is not None else self._spec.zookeeper,
                members=members,
                host=self._spec.host,
                properties=dict(self._spec.properties),
            ),
        )

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Hold the data folder for this process; the kernel releases it when the process ends in any way."""
        try:
            lock_file = open_lock(self._spec.data)
        except OSError as error:
            raise cannot_write(self._spec.data, error) from error
        with lock_file as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                running = running_state(self._spec.data)
                where = f" on {running.bootstrap}" if running else ""
                raise UserError(
                    f"a stack already runs over {self._spec.data}{where}: use it, stop it with "
                    "headwater down, or choose another --home"
                ) from error
            note_parent(lock)
            yield

    @contextmanager
    def _signals(self) -> Iterator[int]:
        """Count stop signals, and give a file descriptor that is readable once one has come."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)

        def note(number: int, frame: FrameType | None) -> None:
            if number == START_MISSING:
                self._start_requests += 1
            else:
                self._stop_requests += 1

        before = {each: signal.signal(each, note) for each in (*_STOP_SIGNALS, START_MISSING)}
        before_fd = signal.set_wakeup_fd(writer.fileno())
        try:
            yield reader.fileno()
        finally:
            signal.set_wakeup_fd(before_fd)
            for each, handler in before.items():
                signal.signal(each, handler)
            reader.close()
            writer.close()

    def _interrupted(self) -> bool:
        return self._stop_requests > 0


def _drain(wake_fd: int) -> None:
    """Reads the bytes that signals have written: their handler has counted the signals."""
    with suppress(BlockingIOError):
        os.read(wake_fd, 4096)


def _member(role: str, id_: int | None, address: str, pid: int) -> Member:
    return Member(role=role, id=id_, address=address, pid=pid, start_ticks=start_ticks(pid) or 0)
