"""`headwater jobs` over days: a job is changed, its broker goes away, and somebody wants to know how it stands."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable

from headwater_broker.testing import RunningBroker, broker

JOBS = """
import headwater as hw
from pyspark.sql import functions as F

clicks = hw.topic("clicks", schema="who STRING, n INT, at TIMESTAMP", event_time="at", watermark="10 minutes")
good = hw.table("silver.clicks", event_time="at", watermark="10 minutes")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset())
def clean(clicks):
    return clicks


@hw.job(target=hw.delta("gold.per_hour", keys=["who", "window_start"], mode="update"))
def per_hour(good):
    return hw.tumbling(good, "at", "1 hour", by=["who"]).agg(F.sum("n").alias("total"))
"""
Headwater = Callable[..., subprocess.CompletedProcess[str]]
WAIT_S = 300

pytestmark = [pytest.mark.story, pytest.mark.timeout(1500)]


class Place:
    """A folder with a job module and a home, a broker, and what runs commands in the folder."""

    def __init__(self, folder: Path, running: RunningBroker, headwater: Headwater) -> None:
        self.folder, self.bootstrap, self._headwater = folder, running.bootstrap, headwater
        (folder / "clicks.py").write_text(JOBS)
        (folder / "changed.py").write_text(JOBS.replace('F.sum("n")', 'F.max("n")'))
        (folder / "conf").mkdir()
        (folder / "conf" / "headwater.toml").write_text("[jobs]\nprogress_every_s = 0.5\n")
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("clicks", 1, 1, config={"retention.ms": "-1"})])["clicks"].result(10)

    def send(self, *numbers: int) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for n in numbers:
            value = {"who": "a", "n": n, "at": f"2026-01-01T10:{n:02d}:00Z"}
            producer.produce("clicks", json.dumps(value).encode(), timestamp=1_767_261_600_000)
        assert producer.flush(10) == 0

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        environ = {k: v for k, v in os.environ.items() if k not in ("HEADWATER_HOME", "HEADWATER_CONFIG")}
        return subprocess.Popen(
            [sys.executable, "-m", "headwater.cli", *arguments],
            cwd=self.folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        done = self._headwater(*arguments)
        return done.returncode, done.stdout, done.stderr

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """What a table has so far."""
        path = str(self.folder / ".headwater" / "tables" / table.replace(".", "/"))
        if not DeltaTable.is_deltatable(path):
            return []
        found = DeltaTable(path).to_pyarrow_table(columns=list(columns)).to_pylist()
        return [tuple(row[column] for column in columns) for row in found]

    def committed(self, group: str) -> list[int]:
        """The group's offsets."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        return [p.offset for p in asked[group].result(10).topic_partitions]

    def sql(self, statement: str) -> list[dict[str, Any]]:
        status, out, err = self.run("sql", "--json", statement)
        assert status == 0, err
        rows: list[dict[str, Any]] = json.loads(out)
        return rows


def _until(done: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    until = time.monotonic() + WAIT_S
    while not done():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.2)


def test_jobs_changed_job_is_refused_by_check_and_run_in_the_same_words_and_rebuilt(
    tmp_path: Path, headwater: Headwater
) -> None:
    with broker(tmp_path / "data") as running:
        place = Place(tmp_path, running, headwater)
        place.send(1, 2)
        where = ("--bootstrap", running.bootstrap)
        status, _, err = place.run("jobs", "run", "clicks.py", "--once", *where)
        assert status == 0, err
        status, out, checked = place.run("jobs", "check", "changed.py", "--json")
        assert status == 2
        (found,) = [each for each in json.loads(out) if each["job"] == "per_hour"]
        assert found["remedy"] == "rebuild"
        assert "state" in [each["what"] for each in found["differences"]]
        place.send(3)
        status, out, refused = place.run("jobs", "run", "changed.py:per_hour", "--once", *where)
        assert status == 2
        assert [
            line for line in refused.splitlines() if line.startswith("headwater: ")
        ] == checked.splitlines()
        assert "Exception" not in refused
        status, out, err = place.run("jobs", "rebuild", "changed.py:per_hour", "--json")
        assert status == 0, err
        assert [(each["job"], each["generation"]) for each in json.loads(out)] == [("per_hour", 2)]
        status, _, err = place.run("jobs", "run", "changed.py", "--once", *where)
        assert status == 0, err
    assert place.sql("SELECT total FROM gold.per_hour") == [{"total": 3}]
    assert place.run("audit")[0] == 0


def test_jobs_running_are_told_of_live_and_stop_gracefully_though_the_broker_is_gone(
    tmp_path: Path, headwater: Headwater
) -> None:
    with ExitStack() as started:
        with broker(tmp_path / "data") as running:
            place = Place(tmp_path, running, headwater)
            place.send(1, 2)
            where = ("--bootstrap", running.bootstrap)
            job = place.start("jobs", "run", "clicks.py", "--interval", "0.2", *where)
            started.callback(job.kill)
            both = {("clean", "batch"), ("per_hour", "started")}
            _until(lambda: both <= {*place.rows("headwater.progress", "job", "event")}, job)
            place.send(3)
            watching = place.start("jobs", "status", "clicks.py", "--watch", "--json")
            started.callback(watching.kill)
            _until(lambda: _both_run(watching), job)
            watching.send_signal(signal.SIGINT)
            watching.communicate(timeout=WAIT_S)
            assert watching.returncode == 0
            status, out, err = place.run("jobs", "explain", "per_hour", "clean", "--json", *where)
            assert status == 0, err
            told, before = json.loads(out)
            assert before["job"] == "clean"
            assert told["state"] == "running"
            assert [each["source"] for each in told["inputs"]] == ["table silver.clicks"]
            text = "\n".join(told["sentences"])
            assert "table silver.clicks lets it go to 2026-01-01 09:53:00" in text
            assert "the operator stateStoreSave" in text
            _until(lambda: place.committed("clean") == [3], job)
            _until(lambda: place.rows("gold.per_hour", "total") == [(6,)], job)
        os.killpg(job.pid, signal.SIGTERM)  # to the JVM as well, as a service's manager and `timeout` do
        _, err = job.communicate(timeout=WAIT_S)
    assert job.returncode == 0, err
    assert "clean: " in err
    assert "Traceback" not in err
    assert place.sql("SELECT total FROM gold.per_hour") == [{"total": 6}]
    events = place.sql(
        "SELECT job, event FROM headwater.progress WHERE event <> 'batch' ORDER BY job, happened_at"
    )
    assert events == [
        {"job": job, "event": event} for job in ("clean", "per_hour") for event in ("started", "stopped")
    ]


def _both_run(watching: "subprocess.Popen[str]") -> bool:
    assert watching.stdout is not None
    told = {each["job"]: each for each in json.loads(watching.stdout.readline())}
    assert all(each["state"] == "running" for each in told.values()), told
    return {"clean", "per_hour"} <= told.keys() and all((each["batch"] or 0) >= 1 for each in told.values())
