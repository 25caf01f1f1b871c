"""`headwater load` as a person runs it: killed in the middle and run again, by times, and into files."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake

from headwater_broker.testing import RunningBroker, broker
from headwater_streams.storage.home import Home

JOBS = """
import headwater as hw

clicks = hw.topic("clicks", schema="n INT, pad STRING")


@hw.job(target=hw.delta("silver.clicks"))
@hw.check("is_odd_or_even", "n % 97 <> 0")
def taken(clicks):
    return clicks.filter("n % 10 <> 3").select("n")


remainders = hw.lookup("dim.remainders")


@hw.job(target=hw.delta("silver.named"))
@hw.check("is_odd_or_even", "n % 97 <> 0")
def named(clicks, remainders):
    rows = clicks.filter("n % 10 <> 3").selectExpr("n", "n % 2 AS remainder")
    return hw.enrich(rows, remainders, on=["remainder"])
"""
RECORDS, PADDING = 6_000, 1_000
"""About six megabytes, so that chunks of one are six or seven."""
REJECTED = [n for n in range(RECORDS) if n % 97 == 0]
WRITTEN = [n for n in range(RECORDS) if n % 97 and n % 10 != 3]
Headwater = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker(properties={"num.partitions": "2"}) as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for n in range(RECORDS):
            value = json.dumps({"n": n, "pad": "x" * PADDING}).encode()
            producer.produce("clicks", value, partition=n % 2, timestamp=1_357_000_000_000 + n * 1_000)
            producer.poll(0)
        assert producer.flush(60) == 0
        yield started


@pytest.mark.story
def test_load_that_is_killed_and_run_again_has_each_record_once(
    headwater: Headwater, running: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "clicks.py").write_text(JOBS)
    words = ["load", "clicks", "--job", "clicks.py:taken", "--into", "history.clicks", "--chunk-mb", "1"]
    words += ["--bootstrap", running.bootstrap]
    with subprocess.Popen(
        [sys.executable, "-m", "headwater.cli", *words], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as load:
        assert load.stderr is not None
        seen = next(line for line in load.stderr if line.startswith("chunk 2 of "))
        load.send_signal(signal.SIGKILL)
    assert int(seen.split(":")[0].rpartition(" ")[2]) > 3, "it is killed in the middle"
    begun = json.loads(headwater("sql", "--json", "SELECT count(*) AS n FROM history.clicks").stdout)[0]["n"]
    assert 0 < begun < len(WRITTEN)

    done = headwater(*words)
    assert done.returncode == 0, done.stderr
    assert "6,000 read = " in done.stdout
    rows = json.loads(headwater("sql", "--json", "SELECT n FROM history.clicks ORDER BY n").stdout)
    assert [row["n"] for row in rows] == WRITTEN
    taken_aside = headwater("sql", "--json", "SELECT _raw FROM history.clicks__quarantine").stdout
    assert len(json.loads(taken_aside)) == len(REJECTED)
    assert headwater("audit", "history.clicks").returncode == 0
    again = headwater(*words)
    assert (again.returncode, "chunk" in again.stderr) == (0, False), "nothing is left"


def test_load_of_a_range_of_times_into_files_with_a_look_up(
    headwater: Headwater, running: RunningBroker, tmp_path: Path
) -> None:
    (tmp_path / "clicks.py").write_text(JOBS)
    names = pa.table({"remainder": pa.array([0, 1], pa.int32()), "name": ["even", "odd"]})
    write_deltalake(str(Home(tmp_path / ".headwater").table("dim.remainders")), names)
    words = ["load", "clicks", "--job", "clicks.py:named", "--bootstrap", running.bootstrap, "--json"]
    # 1,357,000,000 is 00:26:40 of that day; a record a second.
    times = ["--from", "2013-01-01T00:28:20Z", "--to", "2013-01-01T00:30:00Z"]
    done = headwater(*words, *times, "--into", "parquet:some of it")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranges"] == {"0": [50, 100], "1": [50, 100]}
    rows = pyarrow.dataset.dataset(tmp_path / "some of it").to_table(columns=["n", "name"]).sort_by("n")
    assert rows["n"].to_pylist() == [n for n in WRITTEN if 100 <= n < 200]
    assert rows["name"].to_pylist() == [("even", "odd")[n % 2] for n in rows["n"].to_pylist()]
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "theirs.txt").touch()
    refused = headwater(*words, "--into", "parquet:others")
    assert (refused.returncode, "files of others" in refused.stderr) == (2, True)
