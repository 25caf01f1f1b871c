"""A cluster of Apache Flink: a job manager, a task manager, and a gateway that takes SQL.

Flink 2 writes to no Delta table (Delta's connector is for Flink 1), so its sink is Parquet files, committed with its
checkpoints, once a second; q18's rows, which are updated, go to a topic by `upsert-kafka`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headwater.stack.java import find_java
from nexmark.flink_fetch import DidNotEndError, NoFlinkError, flink_home
from nexmark.flink_gateway import Session, ask
from nexmark.flink_sql import is_updated, passing, query_sql, tables_sql
from nexmark.topics import PARTITIONS, SIDE_ROWS, make_topics
from support.measured import Run
from support.processes import cpu_s, free_port

_START_S, _STATEMENT_S, _QUERY_S = 120, 60, 400
# As much heap as Spark's driver has, where its state is. Of a process of 2 GiB Flink leaves 0.7 for heap, and managed
# memory is for other state and for batches: q7 and q20 did not end with two million events then.
_MEMORY = {
    "jobmanager.memory.process.size": "1g",
    "taskmanager.memory.task.heap.size": "2g",
    "taskmanager.memory.managed.size": "128m",
}
_PARTS = ("jobmanager", "taskmanager", "sql-gateway")


@dataclass(frozen=True)
class Flink:
    """A running cluster.

    Attributes:
        folder: Where its logs, checkpoints and results are.
        address: Of its REST interface.
        gateway: Of its SQL gateway.
        processes: Their ids.
    """

    folder: Path
    address: str
    gateway: str
    processes: tuple[int, ...]

    @property
    def worker(self) -> int:
        """The process that runs the queries."""
        return self.processes[_PARTS.index("taskmanager")]

    def run(self, query: str, address: str) -> tuple[Run, pa.Table | ds.Dataset]:
        """Runs a query over what the topics hold: what it took, from its statement to its end, and its rows.

        Raises:
            DidNotEndError: It does not end.
            NoFlinkError: Flink refuses it.
        """
        work = Path(tempfile.mkdtemp(dir=self.folder))
        side, topic = work / "side.csv", f"nexmark-{work.name}"
        side.write_text("".join(f"{n},{n},1970-01-01 00:00:00\n" for n in range(SIDE_ROWS)))
        if is_updated(query):
            make_topics(address, [topic])
        session = Session(self.gateway)
        for statement in tables_sql(query, address, side, work / "result", topic):
            session.run(statement, _STATEMENT_S)
        before_s, started_s = self._cpu_s(), time.time()
        try:
            session.run(query_sql(query), _QUERY_S)
        except DidNotEndError:
            self._cancel()
            raise DidNotEndError(f"not ended after {_QUERY_S} s") from None
        used_s = self._cpu_s() - before_s
        session.close()
        job = self._newest_job()
        # When it says that it has ended: the gateway asks for that after 10 ms, 20 ms and so on, and then every 2 s.
        seconds = job["end-time"] / 1000 - started_s
        if job["state"] != "FINISHED" or job["name"] != query:
            raise NoFlinkError(f"{query}: {job['name']} is {job['state']}")
        kept = ask(f"http://{self.address}/jobs/{job['jid']}/checkpoints")["summary"]["state_size"]["max"]
        run = Run(seconds, used_s, state_bytes=kept, phases_ms={"job": job["duration"]})
        return run, newest(address, topic) if is_updated(query) else ds.dataset(
            work / "result", format="parquet"
        )

    @contextlib.contextmanager
    def passing(
        self, address: str, topic: str, folder: Path
    ) -> Iterator[Callable[[], list[tuple[float, float]]]]:
        """Passes bids of a topic through; gives when each row could be read, and its record's timestamp."""
        session = Session(self.gateway)
        for statement in passing(address, topic, folder / "result"):
            session.run(statement, _STATEMENT_S)
        try:
            yield lambda: _of_files(folder / "result")
        finally:
            self._cancel()
            session.close()

    def _cpu_s(self) -> float:
        return sum(cpu_s(pid) for pid in self.processes)

    def _cancel(self) -> None:
        ask(f"http://{self.address}/jobs/{self._newest_job()['jid']}", method="PATCH")

    def _newest_job(self) -> dict[str, Any]:
        jobs = ask(f"http://{self.address}/jobs/overview")["jobs"]
        found: dict[str, Any] = max(jobs, key=lambda job: job["start-time"])
        return found


@contextlib.contextmanager
def running_flink(folder: Path, *, cores: int, java_options: str = "") -> Iterator[Flink]:
    """A cluster of one job manager and one task manager.

    Args:
        folder: An empty folder for its configuration, logs, checkpoints and results.
        cores: Its slots, and the parallelism of its jobs.
        java_options: Of the process that runs them.

    Raises:
        NoFlinkError: It is not to be had or does not start.
    """
    home, port, gateway_port = flink_home(), free_port(), free_port()
    conf = folder / "conf"
    shutil.copytree(home / "conf", conf)
    settings = {
        "jobmanager.rpc.address": "127.0.0.1",
        "jobmanager.rpc.port": free_port(),
        "rest.address": "127.0.0.1",
        "rest.port": port,
        "rest.bind-address": "127.0.0.1",
        "jobmanager.bind-host": "127.0.0.1",
        "taskmanager.host": "127.0.0.1",
        "taskmanager.bind-host": "127.0.0.1",
        "taskmanager.numberOfTaskSlots": cores,
        "parallelism.default": cores,
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "io.tmp.dirs": folder / "tmp",
        "sql-gateway.endpoint.rest.address": "127.0.0.1",
        "sql-gateway.endpoint.rest.bind-address": "127.0.0.1",
        "sql-gateway.endpoint.rest.port": gateway_port,
        **_MEMORY,
    }
    if java_options:
        settings["env.java.opts.taskmanager"] = java_options
    config = conf / "config.yaml"
    told = [f"{name}: {value}" for name, value in settings.items()]
    config.write_text("\n".join([*_java_options(config.read_text().splitlines()), *told]))
    executable = Path(find_java(os.environ).executable)
    hadoop = sorted(_spark_jars().glob("hadoop-client-*.jar")) + sorted(
        _spark_jars().glob("jcl-over-slf4j-*.jar")
    )
    environment = os.environ | {
        "FLINK_CONF_DIR": str(conf),
        "FLINK_LOG_DIR": str(folder),
        "JAVA_HOME": str(executable.parents[1]),
        "HADOOP_CLASSPATH": ":".join(map(str, hadoop)),
    }
    processes = []
    try:
        for part in _PARTS:
            with (folder / f"{part}.out").open("wb") as log:
                command = ["bash", str(home / f"bin/{part}.sh"), "start-foreground"]
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        pids = tuple(process.pid for process in processes)
        flink = Flink(folder, f"127.0.0.1:{port}", f"127.0.0.1:{gateway_port}", pids)
        _await(flink, processes)
        yield flink
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(60)


def _java_options(lines: list[str]) -> list[str]:
    """Of the shipped configuration the options that Java needs."""
    found, inside = [], False
    for line in lines:
        inside = line.startswith("env:") or (inside and line.startswith(" "))
        if inside:
            found.append(line)
    return found


def _await(flink: Flink, processes: list[subprocess.Popen[bytes]]) -> None:
    deadline_s = time.monotonic() + _START_S
    while True:
        with contextlib.suppress(OSError, ValueError):
            if ask(f"http://{flink.address}/overview").get("slots-total") and ask(
                f"http://{flink.gateway}/v1/info"
            ):
                return
        if any(process.poll() is not None for process in processes) or time.monotonic() > deadline_s:
            told = "".join(path.read_text()[-800:] for path in flink.folder.glob("*.out"))
            raise NoFlinkError(f"Flink does not start: {told}")
        time.sleep(0.3)


def _spark_jars() -> Path:
    """Flink's Parquet wants Hadoop's classes, which PySpark has."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "jars"


def _of_files(folder: Path) -> list[tuple[float, float]]:
    """A file gets its name at a checkpoint, which its inode's change time tells."""
    found = []
    for file in folder.glob("part-*"):
        seen_ms = file.stat().st_ctime_ns / 1e6
        times = pq.read_table(file, columns=["timestamp"])["timestamp"].cast("timestamp[ms]").cast("int64")
        found += [(seen_ms, float(at_ms)) for at_ms in times.to_pylist()]
    return found


def newest(address: str, topic: str) -> pa.Table:
    """The newest value of each key of a topic that `upsert-kafka` wrote."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "nexmark", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    values: dict[bytes, dict[str, Any]] = {}
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, 5):
            error = message.error()
            if error is None:
                values[message.key()] = json.loads(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended += 1
            else:
                raise KafkaException(error)
    consumer.close()
    rows = pa.Table.from_pylist(list(values.values()))
    times = rows["dateTime"].cast(pa.timestamp("ms"))
    return rows.set_column(rows.schema.get_field_index("dateTime"), "dateTime", times)
