"""Processes that benchmarks start and look at: our broker, ZooKeeper, and what /proc says of any."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from headwater.stack.java import find_java

_LOWEST_PORT = 10_000


@contextlib.contextmanager
def running(data: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """A broker process: the process, its address, and how long it took to be ready."""
    command = [sys.executable, "-m", "headwater_broker", "--listen", "127.0.0.1:0", "--data", str(data)]
    started = time.monotonic()
    process = subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield process, line.split()[1], time.monotonic() - started
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def zookeeper(directory: Path) -> Iterator[str]:
    """ZooKeeper's server, from PySpark's jars."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    port = free_port()
    configuration = directory / "zoo.cfg"
    configuration.write_text(
        f"dataDir={directory}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=2000\n"
        "admin.enableServer=false\n",
        encoding="ascii",
    )
    jars = f"{Path(spec.origin).parent / 'jars'}/*"
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    java = str(find_java(os.environ).executable)
    process = subprocess.Popen(
        [java, "-Xmx64m", "-cp", jars, main, str(configuration)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    """A port of the loopback that nobody has, and that stays free until it is bound, or bound again after a restart.

    The kernel gives none of these to outgoing connections. From its own range it may: to somebody else's, or to the
    connection that looks for the server on that very port, which is then connected to itself.
    """
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(ephemeral.read_text(encoding="ascii").split()[0]) if ephemeral.exists() else 0
    for _ in range(1000):
        with socket.socket() as probe:
            port = random.SystemRandom().randrange(_LOWEST_PORT, first) if first > _LOWEST_PORT else 0
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found: int = probe.getsockname()[1]
                return found
    raise OSError("no port of the loopback is free")


def resident_mb(pid: int) -> float:
    """Resident memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return round(int(status.split("VmRSS:")[1].split()[0]) / 1024, 1)


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
