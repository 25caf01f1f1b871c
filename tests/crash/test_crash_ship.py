"""kill -9 of the shipper at random instants, while files grow and rotate under it and the broker comes and goes.

`HEADWATER_KILLS=200` runs the long form; `HEADWATER_SEED` repeats a run's instants, as far as a clock can.

What must hold at the end: every line that was written is in the topic; records with the same origin coordinates are
the same line; without the repeated ones every line is there once, and each file's lines are in its order. What
`by_offset(origin=True)` decides on the coordinates is the same, and it ends with one interval for each file.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from amount import amount, drawn_seed
from headwater_broker.testing import broker
from headwater_streams.operators.dedup.verdicts import Seen, judge

KILLS = amount("HEADWATER_KILLS", small=3, full=10)
SEED = drawn_seed()
WAIT_S = 60
KEPT = 1000
PAUSE_S = 3.0
_KEY = ("cluster", "topic", "partition")


class Writer(threading.Thread):
    """Appends to five logs, each rotated in its own way: renamed, copied and truncated, copied into another folder and
    truncated, replaced by a file that has all of it, begun anew under a date.

    What is copied is truncated up to PAUSE_S later, so that kills and starts fall in between.
    """

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.written: dict[str, int] = {}
        self.failure: BaseException | None = None
        self._folder, self._rng = folder, rng
        self._lines = 0
        self._dated = 0
        self._truncate_at: dict[str, float] = {}
        names = ("renamed", "truncated", "archived", "replaced")
        self._paths = {name: folder / f"{name}.log" for name in names}
        (folder / "old").mkdir()
        self._next_date()

    def run(self) -> None:
        try:
            while not self.stopping.is_set():
                for name, path in list(self._paths.items()):
                    if name in self._truncate_at:
                        self._truncate(name, path)
                        continue
                    self._append(name, path)
                    if self._rng.random() < 0.01:
                        self._rotate(name, path)
                time.sleep(0.002)
            for name in list(self._truncate_at):
                self._truncate_at[name] = 0.0
                self._truncate(name, self._paths[name])
        except BaseException as error:
            self.failure = error

    def finish(self) -> None:
        self.stopping.set()
        self.join(WAIT_S)
        if self.failure is not None:
            raise self.failure

    def _append(self, name: str, path: Path) -> None:
        with path.open("ab", buffering=0) as log:
            for _ in range(self._rng.randrange(1, 10)):
                line = f"{name} {self._lines:09d} {'x' * self._rng.randrange(80, 200)}"
                self.written[line] = self._lines
                self._lines += 1
                whole = f"{line}\n".encode()
                half = self._rng.randrange(70, len(whole))
                log.write(whole[:half])
                log.write(whole[half:])

    def _rotate(self, name: str, path: Path) -> None:
        if name == "dated":
            self._next_date()
            return
        if name == "replaced":
            new = path.with_name(".replaced.log.new")
            shutil.copyfile(path, new)
            new.rename(path)
            return
        parts = self._folder / "old" if name == "archived" else self._folder
        assert not (parts / f"{path.name}.{KEPT}").exists(), "a file that may not be shipped is overwritten"
        for number in range(KEPT, 0, -1):
            older = parts / f"{path.name}.{number}"
            if older.exists():
                older.rename(parts / f"{path.name}.{number + 1}")
        copy = parts / f"{path.name}.1"
        if name == "renamed":
            path.rename(copy)
        else:
            shutil.copyfile(path, copy)
            self._truncate_at[name] = time.monotonic() + self._rng.choice([0, self._rng.uniform(0, PAUSE_S)])

    def _truncate(self, name: str, path: Path) -> None:
        if time.monotonic() >= self._truncate_at[name]:
            os.truncate(path, 0)
            del self._truncate_at[name]

    def _next_date(self) -> None:
        self._dated += 1
        self._paths["dated"] = self._folder / f"dated-{self._dated:04d}.log"
        link = self._folder / "current.log.new"
        link.symlink_to(self._paths["dated"].name)
        link.rename(self._folder / "current.log")


def _command(folder: Path, bootstrap: str, *more: str) -> list[str]:
    names = (
        "renamed.log*",
        "truncated.log*",
        "archived.log",
        "old/*",
        "replaced.log",
        "dated-*.log",
        "current.log",
    )
    patterns = [str(folder / each) for each in names]
    command = [sys.executable, "-m", "headwater.cli", "ship", *patterns, "--topic", "lines"]
    return [*command, "--bootstrap", bootstrap, "--home", str(folder / "home"), *more]


def _stored_bytes(data: Path) -> int:
    return sum(path.stat().st_size for path in data.glob("lines-*/*.log"))


def _consume(bootstrap: str) -> list[Any]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True})
    try:
        partitions = list(consumer.list_topics("lines", timeout=WAIT_S).topics["lines"].partitions)
        consumer.assign([TopicPartition("lines", each, OFFSET_BEGINNING) for each in partitions])
        found: list[Any] = []
        ended = 0
        while ended < len(partitions):
            message = consumer.poll(WAIT_S)
            assert message is not None, "the broker sends nothing"
            if message.error() is None:
                found.append(message)
            else:
                ended += 1
        return found
    finally:
        consumer.close()


def _judged(found: list[Any], lines: int, last: dict[str, int]) -> None:
    """Gives the records' coordinates to the library's deduplication, in batches as they may come."""
    found = sorted(found, key=lambda each: (each.offset(), each.partition()))
    seen: Seen = {}
    duplicates = 0
    for start in range(0, len(found), 5000):
        part = found[start : start + 5000]
        names = [{key: value.decode() for key, value in each.headers()} for each in part]
        keys = ["\t".join(each[f"headwater-origin-{name}"] for name in _KEY) for each in names]
        table = pa.table(
            {
                "key": keys,
                "at": pa.array([int(each["headwater-origin-offset"]) for each in names], pa.int64()),
                "_topic": [each.topic() for each in part],
                "_partition": pa.array([each.partition() for each in part], pa.int32()),
                "_offset": pa.array([each.offset() for each in part], pa.int64()),
            }
        )
        verdicts = judge(table, seen, 10_000_000)
        assert verdicts.rows.num_rows == verdicts.duplicates, "a coordinate was not believed"
        seen, duplicates = verdicts.seen, duplicates + verdicts.duplicates
    assert duplicates == len(found) - lines
    assert {key.split("\t")[1]: each.pairs() for key, each in seen.items()} == {
        file_id: [(0, number + 1)] for file_id, number in last.items()
    }


@pytest.mark.story
def test_shipper_killed_at_any_instant_loses_no_line_and_resends_only_under_the_same_coordinates(
    tmp_path: Path,
) -> None:
    print("HEADWATER_SEED", SEED)
    rng = random.Random(SEED)
    folder = tmp_path / "logs"
    folder.mkdir()
    writer = Writer(folder, random.Random(rng.random()))
    with (
        broker(tmp_path / "data", properties={"num.partitions": "3"}) as running,
        (tmp_path / "err").open("w+") as said,
    ):
        writer.start()
        for _ in range(KILLS):
            before = _stored_bytes(running.data_dir)
            shipper = subprocess.Popen(_command(folder, running.bootstrap), stdout=said, stderr=said)
            deadline = time.monotonic() + WAIT_S
            while _stored_bytes(running.data_dir) == before:  # a busy machine takes seconds to start it
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 1.5))
            assert shipper.poll() is None, (tmp_path / "err").read_text()
            shipper.send_signal(signal.SIGKILL)
            shipper.wait()
            if rng.random() < 0.2:  # the machine's home folder is lost
                shutil.rmtree(folder / "home", ignore_errors=True)
        writer.finish()
        done = subprocess.run(
            _command(folder, running.bootstrap, "--once"),
            stdout=said,
            stderr=said,
            timeout=WAIT_S,
            check=False,
        )
        assert done.returncode == 0, (tmp_path / "err").read_text()
        found = _consume(running.bootstrap)

    lines: dict[tuple[str, int], str] = {}
    last: dict[str, int] = defaultdict(lambda: -1)
    for message in found:
        headers = dict(message.headers())
        file_id, number = headers["headwater-origin-topic"].decode(), int(headers["headwater-origin-offset"])
        line = message.value().decode()
        assert lines.setdefault((file_id, number), line) == line, "two lines have the same coordinates"
        if number > last[file_id]:
            assert number == last[file_id] + 1, f"line {number} of {file_id} came before those in front of it"
            last[file_id] = number
    assert len(found) > len(lines), "nothing was sent twice: the kills hit nothing"
    arrived = list(lines.values())
    assert sorted(arrived, key=writer.written.__getitem__) == list(writer.written)
    by_file = defaultdict(list)
    for (file_id, _), line in sorted(lines.items()):
        by_file[file_id].append(writer.written[line])
    assert all(numbers == sorted(numbers) for numbers in by_file.values())
    print(
        f"{len(arrived)} lines of {len(by_file)} files, {len(found) - len(lines)} sent again by {KILLS} kills"
    )
