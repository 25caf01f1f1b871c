"""The embedded ZooKeeper: the server from the PySpark wheel's jars, in a JVM of its own."""

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from headwater.config import shipped_dir
from headwater.errors import DependencyError
from headwater.stack.java import Java
from headwater.stack.logs import cannot_write, lines_since, open_log
from headwater.stack.places import pyspark_jars_dir
from headwater.stack.ports import accepts_connections, format_address, free_port, is_free, parse_address
from headwater.stack.processes import start_child
from headwater.stack.spec import ensemble_addresses

_MAIN_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_POLL_S = 0.02
# Another process may take the port between our look and ZooKeeper's; more than twice in a row is no accident.
_PORT_ATTEMPTS = 3
_OF_DATA = re.compile(
    r"CRC|magic number|snapshots? |EOFException|Unreasonable length|Unable to load database"
)
_ROOM_BYTES = 1 << 20  # ZooKeeper ends where its log of transactions cannot grow


class EmbeddedZooKeeper:
    """One standalone ZooKeeper over a folder; its port is kept from run to run while nobody else takes it.

    Args:
        folder: Holds its data, configuration, port and log.
        host: The address to listen on.
        java: What runs it.
        heap_mb: Its heap.
    """

    def __init__(self, folder: Path, host: str, java: Java, heap_mb: int) -> None:
        self._folder = folder
        self._host = host
        self._java = java
        self._heap_mb = heap_mb
        self._port = 0
        self._log = folder / "zookeeper.log"
        self._log_start = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients connect, once started."""
        return format_address(self._host, self._port)

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    def start(self, timeout_s: float, interrupted: Callable[[], bool]) -> bool:
        """Start it and wait until it serves requests.

        Args:
            timeout_s: How long that may take.
            interrupted: Asked while waiting; True gives up.

        Returns:
            False if it was interrupted.

        Raises:
            DependencyError: If it does not come up; the message gives its own reason and its log.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        for _ in range(_PORT_ATTEMPTS):
            self._spawn()
            deadline = time.monotonic() + timeout_s
            while self.process.poll() is None:
                if _serves(self._host, self._port):
                    return True
                if interrupted():
                    return False
                if time.monotonic() > deadline:
                    raise DependencyError(
                        f"the embedded ZooKeeper was not ready after {timeout_s:.0f} s: see {self._log}, "
                        "or raise stack.ready_timeout_s"
                    )
                time.sleep(_POLL_S)
            if not any("BindException" in line for line in lines_since(self._log, self._log_start)):
                break
        raise DependencyError(
            f"the embedded ZooKeeper stopped at start ({self._reason()}): see {self._log}{self._remedy()}"
        )

    def kill(self) -> None:
        """End what is left of a start that failed."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def disk_state(self) -> str:
        """What is wrong with its disk, after it ended; empty if nothing is."""
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return ""
        if disk.f_flag & os.ST_RDONLY:
            return f", as the disk of {self._folder} is read-only"
        return (
            f", as the disk of {self._folder} is full" if disk.f_bavail * disk.f_frsize < _ROOM_BYTES else ""
        )

    def _spawn(self) -> None:
        wheel_jars = pyspark_jars_dir()
        if wheel_jars is None:
            raise DependencyError(
                "the embedded ZooKeeper comes with PySpark, which is not installed: run "
                "pip install 'headwater[spark]', or use --zookeeper HOST:PORT or --coordinator memory"
            )
        self._port = self._choose_port()
        config = self._folder / "zoo.cfg"
        try:
            _replace(config, self._configuration())
            _replace(self._folder / "port", f"{self._port}\n")
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        logging = (shipped_dir("conf") / "zookeeper-log4j2.properties").as_uri()
        with open_log(self._log) as log:
            self._log_start = log.tell()
            self._process = start_child(
                [
                    str(self._java.executable),
                    f"-Xmx{self._heap_mb}m",
                    # A small server that is to be there soon: ready in 0.4 s with these two, 0.7 s without.
                    "-XX:+UseSerialGC",
                    "-XX:TieredStopAtLevel=1",
                    f"-Dlog4j2.configurationFile={logging}",
                    "-Dzookeeper.jmx.log4j.disable=true",
                    # A kill in the first second can leave a log without a whole snapshot; then the
                    # log has it all.
                    "-Dzookeeper.snapshot.trust.empty=true",
                    "-cp",
                    f"{wheel_jars}/*",
                    _MAIN_CLASS,
                    str(config),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
                # Ctrl-C reaches the whole process group; brokers still need ZooKeeper to sign off.
                ignored_signals=(signal.SIGINT,),
            )

    def _choose_port(self) -> int:
        if self._port and is_free(self._host, self._port):
            return self._port  # where the brokers look for it
        try:
            recorded = int((self._folder / "port").read_text(encoding="ascii"))
        except (OSError, ValueError):
            return free_port(self._host)
        return recorded if 0 < recorded < 65536 and is_free(self._host, recorded) else free_port(self._host)

    def _configuration(self) -> str:
        return (
            "# Written by headwater up at each start.\n"
            f"dataDir={self._folder / 'data'}\n"
            f"clientPort={self._port}\n"
            f"clientPortAddress={self._host}\n"
            # Sessions may last from 2 to 20 ticks: 2 to 20 s; the brokers' 18 s is Kafka's default.
            "tickTime=1000\n"
            "maxClientCnxns=0\n"
            "admin.enableServer=false\n"
            "4lw.commands.whitelist=srvr\n"
            "autopurge.purgeInterval=1\n"
            "autopurge.snapRetainCount=3\n"
        )

    def _remedy(self) -> str:
        """What to do if it cannot read its data; empty if it has another reason."""
        if not any(_OF_DATA.search(line) for line in lines_since(self._log, self._log_start)):
            return ""
        return f"; a file in {self._folder / 'data'} is damaged: put that folder back from a copy"

    def _reason(self) -> str:
        lines = lines_since(self._log, self._log_start)
        errors = [line for line in lines if " ERROR " in line and "Exiting JVM" not in line]
        telling = [line for line in lines if "Exception: " in line] or errors
        return (telling or lines or [f"exit status {self.process.returncode}"])[-1]


def _replace(path: Path, text: str) -> None:
    """Write a small file whole, unless it has that text already: a full disk must not destroy the old one."""
    if path.exists() and path.read_bytes() == text.encode():
        return
    fresh = path.with_name(path.name + ".new")
    try:
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def check_ensemble(zookeeper: str, timeout_s: float = 3.0) -> None:
    """Make sure that a server of an external ensemble can be reached, so that a wrong address is reported soon.

    Raises:
        DependencyError: If none accepts a connection.
    """
    addresses = [parse_address(each) for each in ensemble_addresses(zookeeper)]
    if not any(accepts_connections(host, port, timeout_s) for host, port in addresses):
        raise DependencyError(
            f"ZooKeeper at {zookeeper} does not answer: start it, correct --zookeeper, or leave it out "
            "to use the embedded one"
        )


def _serves(host: str, port: int) -> bool:
    """Whether ZooKeeper's `srvr` command answers with a mode: before that, it refuses sessions."""
    try:
        with closing(socket.create_connection((host, port), 1.0)) as connection:
            connection.sendall(b"srvr")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return b"Mode:" in answer
