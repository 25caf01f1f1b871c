"""ActiveMQ Classic from Maven, with KahaDB, under its own Java client.

Broker and client are small programs of java/, compiled here. Both are Java: what the client takes is in the table, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from beside_kafka import HEAP
from headwater.stack.java import find_java
from java_classes import NoCompilerError, compiled
from queues.system import PREFETCH_MESSAGES, SLICES, NoContenderError, Run, run_of
from support.load import LoadError
from support.maven import NoJarsError, cached_jars
from support.processes import cpu_s, free_port

VERSION = "6.3.1"
_JAVA = Path(__file__).with_name("java")
_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
_START_TIMEOUT_S = 60
_EXTRA_S = 120


class ActiveMq:
    """A broker that is running, and its client."""

    name = "activemq"
    title = f"ActiveMQ {VERSION}"
    client = "ActiveMqLoad.java: OpenWire, activemq-client with useAsyncSend"
    batches = (1,)

    def __init__(self, broker: int, client: subprocess.Popen[str], output: Path) -> None:
        self._broker = broker
        self._client = client
        self._output = output

    @contextlib.contextmanager
    def queue(self, name: str) -> Iterator[None]:
        """Which its producer makes by naming it."""
        yield
        self._run(0, f"delete {name}")

    def produce(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says."""
        return self._measure(seconds, f"produce {queue} {messages} {seconds} {SLICES}")

    def consume(self, queue: str, *, batch: int, messages: int, seconds: float) -> Run:
        """As `System` says."""
        return self._measure(seconds, f"consume {queue} {messages} {SLICES}")

    def cpu_s(self) -> float:
        """The broker process's own."""
        return cpu_s(self._broker)

    def _measure(self, seconds: float, line: str) -> Run:
        used_s = cpu_s(self._client.pid)
        seen = self._run(seconds, line)
        return run_of(seen | {"cpu_s": cpu_s(self._client.pid) - used_s})

    def _run(self, seconds: float, line: str) -> dict[str, Any]:
        assert self._client.stdin is not None
        assert self._client.stdout is not None
        answer = ""
        with contextlib.suppress(BrokenPipeError):
            self._client.stdin.write(f"{line}\n")
            self._client.stdin.flush()
            if select.select([self._client.stdout], [], [], seconds + _EXTRA_S)[0]:
                answer = self._client.stdout.readline()
        if not answer:
            raise LoadError(f"ActiveMQ, {line}: no answer came: {_end_of(self._output)}")
        found: dict[str, Any] = json.loads(answer)
        return found


@contextlib.contextmanager
def running_activemq(folder: Path) -> Iterator[ActiveMq]:
    """A broker in a new folder.

    Raises:
        NoContenderError: It is not to be had, there is no JDK, or it does not start.
    """
    pom = Path(__file__).with_name("activemq-jars.xml")
    try:
        jars = cached_jars(f"activemq-{VERSION}", "HEADWATER_ACTIVEMQ_JARS", pom, "ActiveMQ")
        sources = [_JAVA / "ActiveMqBroker.java", _JAVA / "ActiveMqLoad.java"]
        classes = compiled(sources, f"{jars}/*")
    except NoJarsError as error:
        raise NoContenderError(str(error)) from error
    except NoCompilerError as error:
        raise NoContenderError(f"ActiveMQ {error}") from error
    folder.mkdir()
    port = free_port()
    java = [str(find_java(os.environ).executable), f"-Xms{HEAP}", f"-Xmx{HEAP}", _QUIET]
    java += ["-cp", f"{classes}:{jars}/*"]
    url = f"tcp://127.0.0.1:{port}?jms.useAsyncSend=true&jms.copyMessageOnSend=false"
    url += f"&jms.prefetchPolicy.queuePrefetch={PREFETCH_MESSAGES}"
    output = folder / "output"
    with output.open("wb") as log, contextlib.ExitStack() as stack:
        server = [*java, "ActiveMqBroker", str(folder / "data"), str(port)]
        broker = subprocess.Popen(server, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(_stop, broker)
        _await_ready(broker, output)
        client = subprocess.Popen(
            [*java, "ActiveMqLoad", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        stack.callback(_stop, client)
        yield ActiveMq(broker.pid, client, output)


def _await_ready(broker: subprocess.Popen[str], output: Path) -> None:
    assert broker.stdout is not None
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline_s and broker.poll() is None:
        if select.select([broker.stdout], [], [], 1)[0] and broker.stdout.readline() == "ready\n":
            return
    raise NoContenderError(f"ActiveMQ does not start: {_end_of(output)}")


def _stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _end_of(output: Path) -> str:
    return output.read_text(errors="replace")[-1000:]
