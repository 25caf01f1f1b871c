"""`audit.counts`: what an audit keeps is what the next one goes on from."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from headwater_client import bucket_of
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.base.errors import UnavailableError
from headwater_streams.ledger.counts import Claims, Findings, TopicLog, check_producers, store, verdicts
from headwater_streams.ledger.counts.store import (
    COUNTS_TABLE,
    SCHEMA,
    Counted,
    Standing,
    counted_before,
    keep,
    rows_of,
    topics_counted,
    unsettled,
)
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.delta_log import log_files
from headwater_streams.storage.home import Home

GOLDEN = Path(__file__).parent / "golden" / "counts" / "commit.json"
OLDER = GOLDEN.with_name("commit.1.json")
START_MS = 1_357_034_400_000
RUNS = {
    0: [BucketRun(2, 5, START_MS), BucketRun(7, 8, START_MS + 60_000)],
    3: [BucketRun(0, 4, START_MS + 60_000)],
}
STANDING = Standing(
    told=("id", {0: 7}),
    sources=[('{"headwater_counts":1}', 0, START_MS, True)],
    acknowledged={"i": 3},
    begun_ms=START_MS,
    first_judged=START_MS,
    first_claimed={3: 1},
    group_ms=60_000,
    totals={"complete": 2},
    tables={"silver.clicks": {"versions": {"table": 3}}},
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def kept(
    home: Home, topic: str = "clicks", runs: dict[int, list[BucketRun]] = RUNS, at_ms: int = START_MS
) -> int:
    ends = {partition: (runs[partition][0].start, runs[partition][-1].end + 1) for partition in runs}
    log, found = TopicLog(topic, 60_000, runs, ends), Findings(topic)
    check_producers(found, log, Claims(), at_ms)
    buckets = verdicts(found, bucket_ms=60_000, now_ms=START_MS + 10**9, grace_ms=0)
    lost = {3: [BucketRun(5, 6, START_MS)], 4: []}
    return keep(
        home,
        log,
        buckets,
        at_ms,
        before=counted_before(home, topic),
        standing=STANDING,
        stored=rows_of(home, topic),
        said={(START_MS, "broker", ""): "[]"},
        topic_id="abc",
        lost=lost,
        heard_ms=START_MS - 1,
        topics=["clicks"],
    )


def commits(home: Home) -> list[str]:
    """What the commits say."""
    path = home.table(COUNTS_TABLE)
    infos = [json.loads(line) for _, file in log_files(path) for line in file.read_text().splitlines()]
    return [
        info["commitInfo"]["headwater.counted"]
        for info in infos
        if "headwater.counted" in info.get("commitInfo", {})
    ]


def test_what_an_audit_keeps_is_what_the_next_one_goes_on_from(home: Home) -> None:
    assert counted_before(home, "clicks") == Counted()
    assert topics_counted(home) == set()
    assert kept(home) == 2
    assert kept(home, "it's", {0: [BucketRun(0, 1, START_MS)]}) == 1
    before = counted_before(home, "clicks")
    assert (before.bucket_ms, before.runs.runs(), before.topic_id) == (60_000, RUNS, "abc")
    assert before.standing == STANDING
    assert before.heard_ms == START_MS - 1
    assert (before.bounds, before.lost) == ({0: (2, 9), 3: (0, 5)}, {3: [BucketRun(5, 6, START_MS)]})
    assert [(mark.at_ms, mark.ends) for mark in before.marks] == [(START_MS, {0: 9, 3: 5})]
    assert counted_before(home, "it's").runs.runs() == {0: [BucketRun(0, 1, START_MS)]}
    assert counted_before(home, "taps") == Counted()
    assert topics_counted(home) == {"clicks"}


def test_what_a_commit_says_is_what_it_was(home: Home) -> None:
    kept(home)
    assert commits(home) == [GOLDEN.read_text().strip()]


def test_audit_that_finds_the_same_writes_no_rows_and_a_mark(home: Home) -> None:
    kept(home)
    files = set(DeltaTable(str(home.table(COUNTS_TABLE))).file_uris())
    assert kept(home, at_ms=START_MS + 1) == 0
    assert set(DeltaTable(str(home.table(COUNTS_TABLE))).file_uris()) == files
    assert [mark.at_ms for mark in counted_before(home, "clicks").marks] == [START_MS, START_MS + 1]


def test_audit_writes_anew_from_the_oldest_change_on_and_no_other_topic(home: Home) -> None:
    kept(home, "it's")
    kept(home)
    more = {0: [*RUNS[0], BucketRun(9, 12, START_MS + 120_000)], 3: RUNS[3]}
    assert kept(home, runs=more) == 1
    assert counted_before(home, "clicks").runs.runs() == more
    assert counted_before(home, "it's").runs.runs() == RUNS


def test_audit_of_some_buckets_writes_these_and_no_other(home: Home) -> None:
    many = {0: [BucketRun(n, n + 1, START_MS + n * 60_000) for n in range(9)]}
    kept(home, "it's", many)
    assert unsettled(home, "it's") == set()
    chosen = {START_MS + n * 60_000 for n in (2, 6)}
    log, found = TopicLog("it's", 60_000, {0: [many[0][2], many[0][6]]}, {0: (0, 9)}), Findings("it's")
    check_producers(found, log, Claims(), START_MS)
    found.unknown[START_MS + 2 * 60_000] = 3
    found.counts[1] = replace(found.counts[1], open=1)
    buckets = verdicts(found, bucket_ms=60_000, now_ms=START_MS + 10**9, grace_ms=0)
    stored, before = rows_of(home, "it's", chosen), counted_before(home, "it's")
    assert {row["bucket"].minute for row in stored} == {2, 6}
    some = {"before": before, "standing": STANDING, "stored": stored, "judged_all": False}
    assert keep(home, log, buckets, START_MS, **some) == 2
    status = {row["bucket"].minute: row["status"] for row in rows_of(home, "it's")}
    assert status == {n: {2: "unknown", 6: "open"}.get(n, "complete") for n in range(9)}
    assert unsettled(home, "it's") == {START_MS + 6 * 60_000}
    with pytest.raises(
        UnavailableError, match="another audit of it's wrote"
    ):  # the one before it is not known
        keep(home, log, buckets, START_MS, **some)


def test_what_an_older_headwater_kept_is_read_and_all_of_it_judged_anew(home: Home) -> None:
    """It had neither what was said nor how many are unknown."""
    properties = CommitProperties(custom_metadata={"headwater.counted": OLDER.read_text().strip()})
    older = pa.schema([each for each in SCHEMA if each.name not in ("unknown", "said")])
    rows = [
        {
            **dict.fromkeys(older.names, 0),
            "topic": "clicks",
            "tier": "broker",
            "place": "",
            "status": "complete",
            "bucket": datetime.fromtimestamp(START_MS / 1000, UTC),
            "offsets": [{"partition": 0, "start": 2, "end": 5}],
        }
    ]
    path = str(home.table(COUNTS_TABLE))
    write_deltalake(path, pa.Table.from_pylist(rows, schema=older), commit_properties=properties)
    before = counted_before(home, "clicks")
    assert (before.standing, before.number, before.bounds) == (None, 0, {0: (2, 9), 3: (0, 5)})
    assert before.runs.runs() == {0: [BucketRun(2, 5, START_MS)]}
    assert kept(home) == 2
    assert [row["unknown"] for row in rows_of(home, "clicks")] == [0, 0]
    assert counted_before(home, "clicks").runs.runs() == RUNS


def test_what_a_newer_headwater_kept_is_refused(home: Home) -> None:
    properties = CommitProperties(custom_metadata={"headwater.counted": '{"format":3}'})
    write_deltalake(str(home.table(COUNTS_TABLE)), SCHEMA.empty_table(), commit_properties=properties)
    with pytest.raises(DamagedFileError, match="in the format 3; this Headwater knows 2"):
        counted_before(home, "clicks")


def test_two_audits_at_once_leave_each_row_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(home, "taps")
    both = Barrier(2, timeout=30)

    def at_once(*args: Any, **kwargs: Any) -> None:
        both.wait()
        write_deltalake(*args, **kwargs)

    monkeypatch.setattr("headwater_streams.ledger.counts.store.write_deltalake", at_once)
    with ThreadPoolExecutor(2) as pool:
        errors = [each.exception() for each in [pool.submit(kept, home) for _ in range(2)]]
    assert all(error is None or isinstance(error, UnavailableError) for error in errors)
    assert None in errors
    rows = DeltaTable(str(home.table(COUNTS_TABLE))).to_pyarrow_table(filters=[("topic", "=", "clicks")])
    assert rows.num_rows == 2
    assert counted_before(home, "clicks").runs.runs() == RUNS


def test_rows_that_stand_there_twice_are_counted_once(home: Home) -> None:
    kept(home)
    path = str(home.table(COUNTS_TABLE))
    write_deltalake(path, DeltaTable(path).to_pyarrow_table(), mode="append")
    assert counted_before(home, "clicks").runs.runs() == RUNS


def test_audit_looks_for_the_newest_marks_and_not_through_all_of_its_history(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(25):
        kept(home, at_ms=START_MS + n)
    looked: list[Path] = []
    said = store._said
    monkeypatch.setattr(store, "_said", lambda file, topic: looked.append(file) or said(file, topic))
    marks = counted_before(home, "clicks").marks
    assert [mark.at_ms - START_MS for mark in marks] == [*range(5, 25)]
    assert len(looked) == 20


def test_what_was_not_seen_and_a_topic_that_was_made_again_are_kept(home: Home) -> None:
    log, found = (
        TopicLog("clicks", 60_000, RUNS, {0: (2, 9)}, unseen={0: [(5, 7)]}, again=(7, 9)),
        Findings("clicks"),
    )
    buckets = verdicts(found, bucket_ms=60_000, now_ms=0, grace_ms=0)
    keep(home, log, buckets, START_MS, before=Counted(), standing=STANDING, stored=[])
    before = counted_before(home, "clicks")
    assert (before.unseen, before.again) == ({0: [(5, 7)]}, (7, 9))


@pytest.mark.parametrize("timestamp_ms", [-(2**63), 2**63 - 1])
def test_buckets_of_times_that_no_calendar_has_are_kept(home: Home, timestamp_ms: int) -> None:
    runs = {0: [BucketRun(0, 1, bucket_of(timestamp_ms)), BucketRun(1, 2, START_MS)]}
    assert kept(home, runs=runs) == 2
    assert counted_before(home, "clicks").runs.runs() == runs
    runs[0].append(BucketRun(2, 3, bucket_of(timestamp_ms)))
    kept(home, runs=runs)
    assert counted_before(home, "clicks").runs.runs() == runs
