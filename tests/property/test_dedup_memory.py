"""Origins without number: what is at hand is bounded, nothing is forgotten, and a driver may die at any step."""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from amount import amount, drawn_seed
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.log import commits, seen_of
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.memory import WHOLE_EVERY, ColdOrigins, account
from headwater_streams.operators.dedup.verdicts import Seen, judge, own_key, seen_from

AT_HAND = 6
ORIGINS = 40
BATCHES = amount(small=40, full=120)


class Job:
    """What a row stage does with what it has seen, over a log of commits that outlives it."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "table" / "_delta_log"
        self._log.mkdir(parents=True)
        self._cold = folder / "seen"
        self.batch = -1
        self.start()

    def start(self) -> None:
        last = self._entry(self.batch) if self.batch >= 0 else None
        self.seen: Seen = seen_from(seen_of(self._log.parent, "j", 1))
        self.cold = ColdOrigins(self._cold, "j", AT_HAND)
        self.cold.since = last.extra.get("cold") if last is not None else None

    def run(self, records: list[tuple[str, int]], *, dies: bool) -> list[tuple[str, int]]:
        """Gives the records that are new; one that dies does so before its commit."""
        batch = self.batch + 1
        table = _table(records)
        known = self.cold.with_those_of(table["key"].unique().to_pylist(), self.seen)
        found = judge(table, known, 10**9)
        seen = self.cold.let_go(self.seen, found.seen, 1, batch)
        if dies:
            self.start()
            return []
        told = account(self.seen, seen, batch, little=0)
        entry = LedgerEntry(
            job="j",
            generation=1,
            batch=batch,
            table="a.b",
            kind="row",
            seen=told.seen,
            extra=self.cold.ledger_extra(),
            seen_changed=told.seen_changed,
        )
        info = {"commitInfo": {"userMetadata": entry.to_json()}}
        (self._log / f"{batch:020d}.json").write_text(f"{json.dumps(info)}\n")
        self.seen, self.batch = seen, batch
        repeated = set(found.rows["_offset"].to_pylist())
        return [record for place, record in enumerate(records) if place not in repeated]

    def _entry(self, batch: int) -> LedgerEntry:
        (commit,) = commits(self._log.parent, since=batch, until=batch + 1)
        assert commit.entry is not None
        return commit.entry

    def entries(self) -> Iterator[LedgerEntry]:
        for batch in range(self.batch + 1):
            yield self._entry(batch)


def _table(records: list[tuple[str, int]]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _ in records], pa.string()),
            "at": pa.array([at for _, at in records], pa.int64()),
            "_topic": pa.array(["t"] * len(records), pa.string()),
            "_partition": pa.array([0] * len(records), pa.int32()),
            "_offset": pa.array(range(len(records)), pa.int64()),
        }
    )


def test_memory_of_many_origins_gives_each_record_once_and_stays_small(tmp_path: Path) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    job, reference = Job(tmp_path), dict[str, IntervalSet]()
    for _ in range(BATCHES):
        # A file at a time, as a shipper sends them, and now and then something of a file of long ago.
        now = f"c\tf{job.batch * ORIGINS // BATCHES}\t0"
        start = rng.randrange(50)
        records = [(now, at) for at in range(start, start + rng.randrange(1, 20))]
        # And sometimes more origins than are kept at hand.
        for _ in range(3 * AT_HAND if rng.random() < 0.1 else rng.randrange(3)):
            records.append((f"c\tf{rng.randrange(ORIGINS)}\t0", rng.randrange(70)))
        rng.shuffle(records)
        while rng.random() < 0.2:
            assert job.run(records, dies=True) == []  # and run again over the same records
        new = job.run(records, dies=False)
        if rng.random() < 0.1:
            job.start()
        for key, at in new:
            assert at not in reference.setdefault(key, IntervalSet()), f"{key} {at} came twice, seed {seed}"
            reference[key].add(at, at + 1)
        if new:
            missing = [r for r in records if r[1] not in reference.get(r[0], IntervalSet())]
            assert not missing, f"{missing} were lost, seed {seed}"
        assert len(job.seen) <= AT_HAND + 2 * WHOLE_EVERY
    largest = max(len(entry.seen or {}) + len(entry.seen_changed or {}) for entry in job.entries())
    touched = 3 * AT_HAND + 1  # at most, in one batch
    assert largest <= AT_HAND + touched < len(reference)
    assert job.cold.since == 1


def test_memory_own_partitions_are_always_at_hand(tmp_path: Path) -> None:
    cold = ColdOrigins(tmp_path / "seen", "j", 2)
    seen = {own_key("t", p): IntervalSet([(0, 5)]) for p in range(10)}
    assert cold.let_go({}, seen, 1, 0) == cold.let_go(seen, seen, 1, 1) == seen
    assert cold.ledger_extra() == {}


def test_memory_commit_carries_what_its_batch_touched(tmp_path: Path) -> None:
    before = {"a": IntervalSet([(0, 5)]), "b": IntervalSet([(0, 5)])}
    after = {**before, "a": IntervalSet([(0, 9)])}
    assert account(before, after, 7, little=1).seen_changed == {"a": [(0, 9)]}
    assert account(before, after, 7, little=1).seen is None
    whole = account(before, after, WHOLE_EVERY, little=1)
    assert (whole.seen, whole.seen_changed) == ({"a": [(0, 9)], "b": [(0, 5)]}, None)
    assert account({}, after, 7, little=1).seen is not None
    assert account(before, after, 7).seen is not None
