"""A job on a cluster: a standalone master and two workers, processes of their own, our packages sent as a zip."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from headwater.running.pytest_plugin import SMALL_BATCHES
from headwater.stack.java import find_java
from headwater_broker.testing import RunningBroker
from headwater_streams.ledger.audit import audit_home
from headwater_streams.storage.home import Home

WAIT_S = 300
JOBS = """
import headwater as hw
from neighbour import shout
from pyspark.sql import functions as F
from pyspark.sql import types as T

clicks = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="10 minutes")
good = hw.table("silver.clicks", event_time="at", watermark="10 minutes")


@F.udf(T.StringType())
def loud(who):
    import headwater_streams

    return shout(who) + (" by the zip" if ".zip" in headwater_streams.__file__ else " by another copy")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def clean(clicks):
    return clicks.withColumn("who", loud("who"))


@hw.job(target=hw.delta("gold.per_hour", keys=["who", "window_start"], mode="update"))
def per_hour(good):
    return hw.tumbling(good, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("total"))
"""


LONELY = """
import headwater as hw

lonely = hw.topic("lonely", schema="who STRING")


@hw.job(target=hw.delta("silver.{name}"))
def {name}(lonely):
    return lonely
"""


@pytest.fixture
def lone_master(tmp_path: Path) -> Iterator[str]:
    """A master without workers."""
    deploy = "org.apache.spark.deploy.master.Master"
    process = _java(tmp_path, "lone_master", deploy, "--port", "0", "--webui-port", "0")
    try:
        yield _wait_for(tmp_path / "lone_master.log", r"Starting Spark master at (spark://\S+)\s")
    finally:
        process.terminate()
        process.wait(WAIT_S)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    deploy = "org.apache.spark.deploy"
    started = [_java(tmp_path, "master", f"{deploy}.master.Master", "--port", "0", "--webui-port", "0")]
    try:
        url = _wait_for(tmp_path / "master.log", r"Starting Spark master at (spark://\S+)\s")
        for number in (1, 2):
            work = [
                "--cores",
                "1",
                "--memory",
                "600m",
                "--webui-port",
                "0",
                "--work-dir",
                str(tmp_path / f"work{number}"),
            ]
            started.append(_java(tmp_path, f"worker{number}", f"{deploy}.worker.Worker", *work, url))
        for number in (1, 2):
            _wait_for(tmp_path / f"worker{number}.log", r"Successfully registered with master (\S+)")
        yield url
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(WAIT_S)


def _java(folder: Path, name: str, main: str, *arguments: str) -> "subprocess.Popen[bytes]":
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    command = [
        str(find_java(os.environ).executable),
        "-Xmx128m",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        f"{home}/jars/*",
    ]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, main, "--host", "127.0.0.1", *arguments],
            # Without the version a worker looks for the folders of a build of Spark (AbstractCommandBuilder).
            env={
                **_environ(),
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_IP": "127.0.0.1",
                "SPARK_SCALA_VERSION": "2.13",
            },
            stdout=log,
            stderr=log,
        )


def _environ() -> dict[str, str]:
    """Without our source tree: what a worker imports of ours comes from the zip."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "HEADWATER_HOME")}


def _wait_for(log: Path, told: str) -> str:
    """What stands at the pattern's place in a log, once it is there."""
    until = time.monotonic() + WAIT_S
    while (found := re.search(told, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < until, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    return found[1]


def test_jobs_run_on_two_workers_gives_the_tables_of_one_process(
    tmp_path: Path, master: str, broker: RunningBroker
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("clicks", 4, 1, config={"retention.ms": "-1"})])["clicks"].result(10)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for n in range(200):
        value = {"who": "ab"[n % 2], "n": n, "at": "2026-01-01T10:00:00Z"}
        producer.produce("clicks", json.dumps(value).encode(), partition=n % 4, timestamp=1_767_261_600_000)
    assert producer.flush(10) == 0
    (tmp_path / "neighbour.py").write_text("def shout(text):\n    return text.upper()\n")
    (tmp_path / "clicks_jobs.py").write_text(JOBS)
    java_options = "spark.driver.defaultJavaOptions"
    settings = {"spark.executor.memory": "600m", java_options: SMALL_BATCHES[java_options]}
    conf = "\n".join(["[spark.conf]", *(f'"{name}" = "{value}"' for name, value in settings.items())])
    (tmp_path / "cluster.toml").write_text(conf)
    home = tmp_path / "home"
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-m",
                "headwater.cli",
                "jobs",
                "run",
                str(tmp_path / "clicks_jobs.py"),
                "--once",
            ),
            *("--master", master, "--bootstrap", broker.bootstrap, "--home", str(home)),
        ],
        env={**os.environ, "HEADWATER_CONFIG": str(tmp_path / "cluster.toml")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    windows = DeltaTable(str(Home(home).table("gold.per_hour"))).to_pyarrow_table(columns=["who", "total"])
    assert sorted(map(tuple, (row.values() for row in windows.to_pylist()))) == [
        ("A by the zip", sum(range(0, 200, 2))),
        ("B by the zip", sum(range(1, 200, 2))),
    ]
    assert not any(audit.findings for audit in audit_home(Home(home)))
    ran = [sorted(path.name for path in (tmp_path / f"work{n}").glob("app-*/*")) for n in (1, 2)]
    assert all(ran), f"not both workers had an executor: {ran}"


@pytest.mark.parametrize("once", [[], ["--once"]], ids=["on", "once"])
def test_jobs_without_a_worker_end_at_one_signal(
    tmp_path: Path, lone_master: str, broker: RunningBroker, once: list[str]
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("lonely", b'{"who": "a"}')
    assert producer.flush(10) == 0
    for name in ("one", "two", "three"):
        (tmp_path / f"{name}.py").write_text(LONELY.format(name=name))
    command = [sys.executable, "-m", "headwater.cli", "jobs", "run", "one.py", "two.py", "three.py", *once]
    command += ["--master", lone_master, "--bootstrap", broker.bootstrap, "--home", "home"]
    with (tmp_path / "said").open("wb") as said:
        running = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)
    try:
        _wait_for(tmp_path / "said", "has given no (worker) yet")
        begun = tmp_path / "home" / "checkpoints" / ("one" if once else "three") / "1" / "offsets" / "0"
        until = time.monotonic() + WAIT_S
        while not begun.exists():
            assert time.monotonic() < until, (tmp_path / "said").read_text()
            time.sleep(0.1)
        running.terminate()
        assert running.wait(40) == 0, (
            tmp_path / "said"
        ).read_text()  # it took 60 s for each job, or for ever
    finally:
        running.kill()
        running.wait()
    assert "Exception" not in (tmp_path / "said").read_text()
