"""Brokers under the workload of the Kafka paper: `make bench-queues`, or `python -m queues [--messages N]`.

The paper is Kreps, Narkhede, Rao, "Kafka: a Distributed Messaging System for Log Processing" (NetDB 2011), section 5:
one producer sends messages of 200 bytes to one broker, one at a time or, where the broker's protocol has batches, 50 at
a time; then one consumer takes them. The paper's 10 million are scaled down by `--messages`. JSON on standard output, a
table on standard error; with `--write` the table and the paper's two figures into docs/. Nothing is asserted: compare
within one run only.

- Contenders: Headwater, as users run it, with ZooKeeper and its own settings (`queues.kafka`); Apache Kafka, the newest
  that Maven serves, one KRaft node with its defaults (`queues.kafka`); RabbitMQ as Debian has it (`queues.rabbitmq`);
  ActiveMQ Classic from Maven with KahaDB (`queues.activemq`). One that is not to be had is left out, and told.
- All persist messages without waiting for the disk, and no producer waits for an acknowledgement, as in the paper.
  Consumers have 1,000 messages or 200 KB ahead; but RabbitMQ sends as fast as the connection takes it, as it has no
  such limit with automatic acknowledgement. No replicas, no compression, one queue or partition.
- Clients: generators in C that send ready-made bytes, and ActiveMQ's own in Java. All compare each message that they
  take with what was produced. What a client takes of the processor is in the table: where it is much beside the
  broker's, as with the Java one, the client is a part of what is measured.
- A producer's time ends when the broker has all of its messages; a consumer's begins before it asks for the first.
- Each round takes each contender once; the order of the brokers changes from round to round. A first round, which is
  not counted, lets Java compile. Before each run dirty pages are written (sync), so that nobody pays for another's.
- The brokers are all up, and share the cores with the one client. Processor time is the broker process's own, user and
  system: the Erlang VM's, the Java VM's or Python's; not ZooKeeper's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from headwater.stack.java import find_java
from queues.activemq import running_activemq
from queues.kafka import running_apache_kafka, running_headwater
from queues.rabbitmq import running_rabbitmq
from queues.report import (
    CONSUMED,
    DIRECTIONS,
    FIGURE_FILES,
    PRODUCED,
    Contender,
    Measured,
    figure,
    medians,
    ran_with,
    section,
    slice_medians,
    table,
)
from queues.system import NoContenderError, Run, System
from support.load import Load, LoadError, NoCompilerError
from support.pages import BROKER_PAGE, FIGURES, write_section

SECTION = "make bench-queues"
"""Of the page."""

NAMES = {"headwater": "Headwater", "kafka": "Apache Kafka", "rabbitmq": "RabbitMQ", "activemq": "ActiveMQ"}


class Bench:
    """Takes measurements and keeps them.

    Attributes:
        rounds: What each round saw, by contender and direction.
        left_out: Contenders that are not to be had or failed, each with the reason.
    """

    def __init__(self, messages: int, seconds: float) -> None:
        self.rounds: dict[Contender, dict[str, list[Measured]]] = {}
        self.left_out: dict[str, str] = {}
        self._messages = messages
        self._seconds = seconds

    def round(self, systems: Sequence[System], number: int, warm_up: int | None = None) -> None:
        """Each contender once; nothing is kept of a warm-up with so many messages."""
        for system in systems:
            for batch in system.batches:
                if NAMES[system.name] in self.left_out:
                    continue
                try:
                    self._take(system, batch, f"bench-{batch}-{number}", warm_up)
                except (LoadError, KafkaException) as error:
                    self.leave_out(system.name, error)

    def leave_out(self, name: str, error: Exception) -> None:
        """A contender that goes no further."""
        self.left_out[NAMES[name]] = str(error)
        print(f"without {NAMES[name]}: {error}", file=sys.stderr)

    def _take(self, system: System, batch: int, queue: str, warm_up: int | None) -> None:
        with system.queue(queue):
            messages = warm_up or self._messages
            produced = self._measure(
                system,
                lambda: system.produce(queue, batch=batch, messages=messages, seconds=self._seconds),
            )
            consumed = self._measure(
                system,
                lambda: system.consume(
                    queue, batch=batch, messages=produced.run.messages, seconds=self._seconds
                ),
            )
        if warm_up is None:
            kept = self.rounds.setdefault(
                Contender(system.name, system.title, batch, system.client),
                {direction: [] for direction in DIRECTIONS},
            )
            for direction, seen in ((PRODUCED, produced), (CONSUMED, consumed)):
                kept[direction].append(seen)
                rate = seen.run.messages / seen.run.seconds
                cpu_us = seen.broker_cpu_s / seen.run.messages * 1e6
                told = f"{rate / 1e3:9.1f} k messages/s, {cpu_us:6.2f} us CPU"
                print(f"{system.title:20} {batch:3} {direction} {told}", file=sys.stderr)

    @staticmethod
    def _measure(system: System, run: Callable[[], Run]) -> Measured:
        os.sync()
        used_s = system.cpu_s()
        seen = run()
        return Measured(seen, system.cpu_s() - used_s)


def _java() -> str:
    command = [str(find_java(os.environ).executable), "-version"]
    return subprocess.run(command, capture_output=True, text=True).stderr.partition("\n")[0]


def run(
    names: Sequence[str], messages: int, rounds: int, warm_up: int, seconds: float
) -> tuple[dict[str, Any], str, dict[str, str]]:
    """Starts the brokers and takes the rounds; gives the figures, the table and the pictures.

    Raises:
        NoCompilerError: There is nothing to build the generators with.
        NoContenderError: None of the brokers is to be had.
    """
    load_before = os.getloadavg()
    bench = Bench(messages, seconds)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-queues-")))
        load = Load(folder)
        starts: dict[str, Callable[[], AbstractContextManager[System]]] = {
            "headwater": lambda: running_headwater(folder / "headwater", load),
            "kafka": lambda: running_apache_kafka(folder / "kafka", load),
            "rabbitmq": lambda: running_rabbitmq(folder / "rabbitmq"),
            "activemq": lambda: running_activemq(folder / "activemq"),
        }
        systems = []
        for name in names:
            try:
                systems.append(stack.enter_context(starts[name]()))
            except NoContenderError as error:
                bench.leave_out(name, error)
        started = time.monotonic()
        bench.round(systems, -1, warm_up)
        for number in range(rounds):
            bench.round(systems if number % 2 == 0 else systems[::-1], number)
        took_s = time.monotonic() - started
    contenders = [each for name in names for each in bench.rounds if each.name == name]
    if not contenders:
        raise NoContenderError("no contender was measured")
    found = {contender: medians(bench.rounds[contender]) for contender in contenders}
    figures = {
        "versions": {
            **{each.name: each.title for each in contenders},
            "python": sys.version.partition(" ")[0],
            "java": _java(),
            "compiler": load.compiler,
            "system": f"{os.uname().sysname} {os.uname().machine}",
        },
        "cores": os.cpu_count(),
        "load_average_before": load_before,
        "load_average_after": os.getloadavg(),
        "messages": messages,
        "rounds": rounds,
        "warm_up_messages": warm_up,
        "most_seconds_each": seconds,
        "took_s": round(took_s),
        "left_out": bench.left_out,
        "contenders": [
            {
                **asdict(contender),
                "medians": found[contender],
                "slices": {way: slice_medians(bench.rounds[contender][way]) for way in DIRECTIONS},
                "all_rounds": {
                    way: [_told(seen) for seen in bench.rounds[contender][way]] for way in DIRECTIONS
                },
            }
            for contender in contenders
        ],
    }
    ran = ran_with(figures)
    pictures = {FIGURE_FILES[way]: figure(way, contenders, bench.rounds, ran) for way in DIRECTIONS}
    return figures, table(contenders, found), pictures


def _told(seen: Measured) -> dict[str, float]:
    return {
        "messages": seen.run.messages,
        "seconds": seen.run.seconds,
        "client_cpu_s": round(seen.run.client_cpu_s, 3),
        "broker_cpu_s": round(seen.broker_cpu_s, 3),
    }


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000, help="that a producer sends")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=int, default=200_000, help="messages of each contender that are not counted"
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="after which a producer stops")
    parser.add_argument("--contenders", default=",".join(NAMES), help="some of these")
    parser.add_argument("--write", action="store_true", help="the table and the figures into docs/")
    given = parser.parse_args()
    names = given.contenders.split(",")
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"there is no contender {unknown[0]!r}; there are {', '.join(NAMES)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that no process of it stays behind
    try:
        figures, drawn, pictures = run(names, given.messages, given.rounds, given.warm_up, given.seconds)
    except (NoCompilerError, NoContenderError) as error:
        sys.exit(str(error))
    print(json.dumps(figures, indent=2))
    print(drawn, file=sys.stderr)
    if given.write:
        FIGURES.mkdir(exist_ok=True)
        for name, picture in pictures.items():
            (FIGURES / name).write_text(picture, encoding="utf-8")
        write_section(BROKER_PAGE, SECTION, section(figures, drawn))


if __name__ == "__main__":
    main()
