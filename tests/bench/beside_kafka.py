"""The broker and Apache Kafka's under the same raw load, in turn: `python tests/bench/beside_kafka.py [--rounds N]`.

`make bench-broker` runs it. JSON on standard output, the table on standard error; with `--write` into docs/, too.
Nothing is asserted: compare within one run only.

- The load is tests/bench/load.c: one connection over the loopback, messages of 200 bytes without compression, Produce
  version 9 with one batch for one partition, Fetch version 12 with up to 1 MiB. It checks every answer.
- Our broker runs as users run it: with ZooKeeper, and with the settings that it has by itself. `acl` is the same with
  an ACL of one rule for every topic, so that the authorizer is asked about each request.
- The peer is one KRaft node of the newest Kafka that Maven serves, with its defaults and the Java options of its start
  script, but 1 GiB of heap.
- Both delete a topic's files at once (`log.segment.delete.delay.ms=0`); every measurement has a new topic.
- Each round takes every load once for each broker, and the order of the brokers changes from round to round. A first
  round that is not counted lets Java compile. Figures are medians of the rounds.
- No measurement writes more than 500 MB: beyond that a virtual machine's share of memory that it has yet to be given
  is what is measured, for both brokers.
- `cpu_us` is the processor time of the broker's process, user and system, for each request; it depends far less than
  the rate on what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)

from headwater.stack.java import find_java
from support.apache_kafka import NEWEST, NoKafkaError, kafka_jars, running_kafka
from support.load import Load, NoCompilerError
from support.pages import BROKER_PAGE, java_version, paragraph, rounds_of, write_section
from support.processes import cpu_s, running, zookeeper

HEAP = "1g"
FETCH_BYTES = 1 << 20
DELETED_AT_ONCE = {"log.segment.delete.delay.ms": "0"}
SECTION = "make bench-broker"
"""Of docs/reference/broker-figures.md."""


@dataclass(frozen=True)
class Produced:
    """A load of Produce requests.

    Attributes:
        name: In the JSON.
        title: In the table.
        acks: 0 or 1.
        messages: In each request.
        in_flight: Requests that may be unanswered.
    """

    name: str
    title: str
    acks: int
    messages: int
    in_flight: int


LOADS = (
    Produced("one_acks0", "1 message a request, acks=0", 0, 1, 0),
    Produced("one_acks1", "1 message a request, acks=1, pipelined", 1, 1, 1000),
    Produced("fifty_acks0", "50 messages a request, acks=0", 0, 50, 0),
    Produced("fifty_acks1", "50 messages a request, acks=1, pipelined", 1, 50, 1000),
    Produced("one_by_one", "1 message a request, acks=1, one in flight", 1, 1, 1),
)
FETCHED = "fetch"
WITH_ACL = "one_acks1"


@dataclass(frozen=True)
class Contender:
    """A broker that is running.

    Attributes:
        name: `headwater`, `headwater_acl` or `kafka`.
        pid: Its process.
        bootstrap: Its address.
    """

    name: str
    pid: int
    bootstrap: str

    @property
    def port(self) -> int:
        """Of its address."""
        return int(self.bootstrap.rpartition(":")[2])

    @contextlib.contextmanager
    def topic(self, name: str) -> Iterator[str]:
        """A new topic with one partition, gone at the end."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        self._await_leader(admin, name)
        try:
            yield name
        finally:
            admin.delete_topics([name])[name].result(30)

    def _await_leader(self, admin: AdminClient, name: str) -> None:
        """A KRaft controller answers before its broker leads: a request with acks=0 would close the connection."""
        partition = TopicPartition(name, 0)
        deadline_s = time.monotonic() + 30
        while True:
            try:
                admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(30)
                return
            except KafkaException:
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(0.05)


Figures = dict[str, dict[str, list[dict[str, float]]]]
"""What each round saw, by load and contender."""


class Bench:
    """Takes measurements and keeps them."""

    def __init__(self, load: Load, seconds: float, max_bytes: float) -> None:
        self.figures: Figures = {}
        self._load = load
        self._seconds = seconds
        self._max_bytes = max_bytes

    def round(self, contenders: Sequence[Contender], number: int, seconds: float | None = None) -> None:
        """Every load once for each contender; nothing is kept where `seconds` are given, for a warm-up."""
        for load in LOADS:
            for contender in contenders:
                if contender.name != "headwater_acl" or load.name == WITH_ACL:
                    self._produce(contender, load, number, seconds)
        for contender in contenders:
            if contender.name != "headwater_acl":
                self._fetch(contender, number, seconds)

    def _produce(self, contender: Contender, load: Produced, number: int, warm_up_s: float | None) -> None:
        with contender.topic(f"{load.name}-{number}") as topic:
            used_s = cpu_s(contender.pid)
            seen = self._load.produce(
                contender.port,
                topic,
                acks=load.acks,
                messages=load.messages,
                in_flight=load.in_flight,
                seconds=warm_up_s or self._seconds,
                max_bytes=self._max_bytes,
            )
            used_s = cpu_s(contender.pid) - used_s
        if warm_up_s is None:
            figures = {
                "requests_per_s": seen["requests"] / seen["seconds"],
                "messages_per_s": seen["messages"] / seen["seconds"],
                "cpu_us": used_s / seen["requests"] * 1e6,
            }
            figures |= {name: seen[name] for name in ("p50_us", "p99_us") if name in seen}
            self._keep(load.name, contender, figures)

    def _fetch(self, contender: Contender, number: int, warm_up_s: float | None) -> None:
        with contender.topic(f"{FETCHED}-{number}") as topic:
            self._load.produce(
                contender.port, topic, acks=1, messages=50, in_flight=100, seconds=60, max_bytes=500e6
            )
            used_s = cpu_s(contender.pid)
            seconds = warm_up_s or self._seconds
            seen = self._load.fetch(
                contender.port, topic, messages=50, max_bytes=FETCH_BYTES, seconds=seconds
            )
            used_s = cpu_s(contender.pid) - used_s
        if warm_up_s is None:
            figures = {
                "requests_per_s": seen["requests"] / seen["seconds"],
                "gb_per_s": seen["bytes"] / seen["seconds"] / 1e9,
                "cpu_us": used_s / seen["requests"] * 1e6,
                "cpu_ms_per_gb": used_s * 1e3 / (seen["bytes"] / 1e9),
            }
            self._keep(FETCHED, contender, figures)

    def _keep(self, load: str, contender: Contender, figures: dict[str, float]) -> None:
        rounded = {name: round(value, 2) for name, value in figures.items()}
        self.figures.setdefault(load, {}).setdefault(contender.name, []).append(rounded)
        print(f"{load:12} {contender.name:14} {rounded}", file=sys.stderr)


def medians(figures: Figures) -> dict[str, dict[str, dict[str, float]]]:
    """The median of each figure over the rounds."""
    return {
        load: {
            name: {key: statistics.median(seen[key] for seen in rounds) for key in rounds[0]}
            for name, rounds in contenders.items()
        }
        for load, contenders in figures.items()
    }


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """The table of a run."""
    lines = [
        f"| Load | Headwater | Apache Kafka {NEWEST} | | CPU a request | Kafka's | |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for load in LOADS:
        ours, theirs = found[load.name]["headwater"], found[load.name]["kafka"]
        if load.in_flight == 1:
            rates = [f"p50 {it['p50_us']:.0f}, p99 {it['p99_us']:.0f} us" for it in (ours, theirs)]
            times = theirs["p50_us"] / ours["p50_us"]
        else:
            rates = [_rate(it, load.messages) for it in (ours, theirs)]
            times = ours["requests_per_s"] / theirs["requests_per_s"]
        lines.append(_line(load.title, rates, times, ours["cpu_us"], theirs["cpu_us"]))
        if load.name == WITH_ACL and "headwater_acl" in found[load.name]:
            guarded = found[load.name]["headwater_acl"]
            times = guarded["requests_per_s"] / theirs["requests_per_s"]
            rates = [_rate(guarded, load.messages), "-"]
            title = f"{load.title}, with an ACL"
            lines.append(_line(title, rates, times, guarded["cpu_us"], theirs["cpu_us"]))
    ours, theirs = found[FETCHED]["headwater"], found[FETCHED]["kafka"]
    rates = [f"{it['gb_per_s']:.1f} GB/s" for it in (ours, theirs)]
    times = ours["gb_per_s"] / theirs["gb_per_s"]
    lines.append(_line("fetch from cache, 1 MiB a request", rates, times, ours["cpu_us"], theirs["cpu_us"]))
    return "\n".join(lines)


def section(figures: dict[str, Any]) -> str:
    """What the page of figures says of a run."""
    versions = figures["versions"]
    intro = f"""Beside Apache Kafka {versions["kafka"]} in the same run, from `make bench-broker`: one connection over
        the loopback, 200-byte messages without compression, one batch a request, medians of {rounds_of(figures)}
        in which the brokers take turns, with a new topic each; both on the same {figures["cores"]} cores (load average
        before: {figures["load_average_before"][0]:.1f}). Ours runs with ZooKeeper and its own settings on Python
        {versions["python"]}, Kafka as a KRaft node with its defaults and 1 GiB of heap on Java
        {java_version(versions["java"])}, warmed up; CPU is the broker process's own."""
    spread = {
        (name, load): _spread(figures["all_rounds"][load][name])
        for name in ("headwater", "kafka")
        for load in ("fifty_acks0", "fifty_acks1")
    }
    outro = f"""With 50 messages a request both also wait for the page cache to reach the disk: from round to round ours
        took {spread["headwater", "fifty_acks0"]} million messages a second without acknowledgements and
        {spread["headwater", "fifty_acks1"]} with, Kafka {spread["kafka", "fifty_acks0"]} and
        {spread["kafka", "fifty_acks1"]}."""
    return "\n\n".join((paragraph(intro), table(figures["medians"]), paragraph(outro)))


def _spread(rounds: list[dict[str, float]]) -> str:
    rates = [seen["messages_per_s"] / 1e6 for seen in rounds]
    return f"{min(rates):.2f} to {max(rates):.2f}"


def _rate(figures: dict[str, float], messages: int) -> str:
    thousands = f"{figures['requests_per_s'] / 1e3:.1f} k requests/s"
    return thousands if messages == 1 else f"{thousands} ({figures['messages_per_s'] / 1e6:.2f} M messages/s)"


def _line(title: str, rates: list[str], times: float, our_cpu: float, their_cpu: float) -> str:
    cells = (f"{our_cpu:.1f} us", f"{their_cpu:.0f} us", f"{their_cpu / our_cpu:.1f} times less")
    return f"| {' | '.join((title, *rates, f'{times:.1f} times', *cells))} |"


def _allow_everything(bootstrap: str) -> None:
    """One rule, which has the authorizer asked about each request from then on."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kinds = [(ResourceType.TOPIC, "*"), (ResourceType.BROKER, "kafka-cluster")]
    rules = [
        AclBinding(
            *(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*"),
            *(AclOperation.ALL, AclPermissionType.ALLOW),
        )
        for kind, name in kinds
    ]
    for done in admin.create_acls(rules).values():
        done.result(30)


def _versions(load: Load) -> dict[str, str]:
    java = [str(find_java(os.environ).executable), "-version"]
    said = subprocess.run(java, capture_output=True, text=True).stderr
    return {
        "headwater": version("headwater"),
        "python": sys.version.partition(" ")[0],
        "kafka": NEWEST,
        "java": said.partition("\n")[0],
        "compiler": load.compiler,
        "system": " ".join(os.uname()[::2]),
    }


def run(rounds: int, seconds: float, warm_up_s: float, max_bytes: float) -> dict[str, Any]:
    """Starts the brokers and takes the rounds.

    Raises:
        NoCompilerError: There is nothing to build the generator with.
        NoKafkaError: Apache Kafka is not to be had.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-broker-")))
        load = Load(folder)
        kafka_jars(NEWEST)
        load_before = os.getloadavg()
        hosts = stack.enter_context(zookeeper(folder))
        cleanup = [part for name, value in DELETED_AT_ONCE.items() for part in ("--set", f"{name}={value}")]
        contenders = []
        for name in ("headwater", "headwater_acl"):
            shared_state = ("--zookeeper", f"{hosts}/{name}")
            process, bootstrap, _ = stack.enter_context(running(folder / name, *shared_state, *cleanup))
            contenders.append(Contender(name, process.pid, bootstrap))
        _allow_everything(contenders[1].bootstrap)
        (folder / "kafka").mkdir()
        pid, bootstrap = stack.enter_context(
            running_kafka(folder / "kafka", DELETED_AT_ONCE, heap=HEAP, version=NEWEST)
        )
        contenders.append(Contender("kafka", pid, bootstrap))
        bench = Bench(load, seconds, max_bytes)
        bench.round(contenders[2:], -1, warm_up_s)
        bench.round(contenders[:2], -1, min(warm_up_s, 1))
        started = time.monotonic()
        for number in range(rounds):
            bench.round(contenders if number % 2 == 0 else contenders[::-1], number)
        return {
            "versions": _versions(load),
            "cores": os.cpu_count(),
            "load_average_before": load_before,
            "kafka_heap": HEAP,
            "message_bytes": 200,
            "rounds": rounds,
            "seconds_each": seconds,
            "max_bytes_each": max_bytes,
            "took_s": round(time.monotonic() - started),
            "medians": medians(bench.figures),
            "all_rounds": bench.figures,
        }


def main() -> None:
    """Runs everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument(
        "--warm-up", type=float, default=6.0, help="seconds of each load that are not counted"
    )
    parser.add_argument("--max-bytes", type=float, default=5e8, help="that a measurement may write")
    parser.add_argument("--write", action="store_true", help="the figures into docs/")
    given = parser.parse_args()
    try:
        figures = run(given.rounds, given.seconds, given.warm_up, given.max_bytes)
    except (NoCompilerError, NoKafkaError) as error:
        sys.exit(str(error))
    print(json.dumps(figures, indent=2))
    print(table(figures["medians"]), file=sys.stderr)
    if given.write:
        write_section(BROKER_PAGE, SECTION, section(figures))


if __name__ == "__main__":
    main()
