"""What running jobs tell, and what is made of it: their table, the live view's lines, the explanation."""

import dataclasses
import errno
import fcntl
import io
import json
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

import headwater as hw
from headwater.cli._console import PlainConsole
from headwater.cli._watch import jobs_table
from headwater.errors import UsageError
from headwater.running.explaining import explain_job
from headwater.running.progress import progress_of, without_left_over
from headwater.running.status import with_states
from headwater_streams.base.errors import UnavailableError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.plan.job import bind
from headwater_streams.runtime.progress import ProgressLog
from headwater_streams.runtime.runner import endings_of
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.spark.run_facts import InputFacts, RunFacts
from headwater_streams.storage.home import Home

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOIN = RunFacts(
    spark="4.1.3", kind="join", targets={"gold.pairs": "id"}, keys=(), mode="append",
    inputs={
        "good": InputFacts(kind="table", ids={"silver.clicks": "a"}, watermark="5 minutes", columns={}),
        "orders": InputFacts(kind="table", ids={"silver.orders": "b"}, watermark="1 hour", columns={}),
        "raw": InputFacts(kind="topic", ids={"clicks": "c"}, watermark=None, columns={}),
    },
    operator="IntervalJoin()", state=(), columns={}, shuffle_partitions="2", state_store="x",
    dedup="None", fingerprint="f",
)  # fmt: skip


def told(batch: int, *, read: int, there: int, took_ms: int = 1000, add_ms: int = 900) -> dict[str, Any]:
    """Spark's account of a batch, as far as it is read."""
    return {
        "batchId": batch,
        "timestamp": (BEGIN + timedelta(seconds=batch)).isoformat().replace("+00:00", "Z"),
        "numInputRows": 10,
        "durationMs": {"triggerExecution": took_ms, "addBatch": add_ms, "queryPlanning": took_ms - add_ms},
        "eventTime": {"watermark": "2026-01-01T09:00:00.000Z"},
        "stateOperators": [
            {"operatorName": "symmetricHashJoin", "numRowsTotal": 77, "memoryUsedBytes": 9000,
             "numRowsUpdated": 10, "allUpdatesTimeMs": 40, "allRemovalsTimeMs": 5, "commitTimeMs": 200,
             "numRowsDroppedByWatermark": 0},
        ],
        "sources": [
            {"description": "KafkaV2[Subscribe[clicks]]", "numInputRows": 10,
             "endOffset": {"clicks": {"0": read, "1": 5}}, "latestOffset": {"clicks": {"0": there, "1": 5}}},
            {"description": "DeltaSource[file:/h/tables/silver/clicks]", "numInputRows": 0,
             "endOffset": {"reservoirVersion": 1, "index": -1}, "latestOffset": None},
            {"description": "DeltaSource[file:/h/tables/silver/orders]", "numInputRows": 0,
             "endOffset": {"reservoirVersion": 1, "index": -1}, "latestOffset": None},
        ],
    }  # fmt: skip


raw = hw.topic("clicks", schema="n INT", cluster="pay")


@hw.job(target=hw.delta("gold.pairs"))
def of_payments(raw):
    return raw


INPUTS = {"raw": "[clicks]", "good": "/tables/silver/clicks", "orders": "/tables/silver/orders"}


class Place:
    """A home in which a join ran for some batches."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        self.now = datetime.now(UTC)
        self.log = ProgressLog(self.home, 0, lambda: self.now)

    def event(self, event: Any, message: str | None = None) -> None:
        self.log.event("pairs", "gold.pairs", 1, event, message)
        self.log.flush(now=True)

    def batch(self, account: dict[str, Any]) -> None:
        self.log.batch("pairs", "gold.pairs", 1, account, INPUTS)
        self.log.flush(now=True)

    def facts(self, found: RunFacts = JOIN) -> None:
        checkpoint = self.home.checkpoint("pairs", 1)
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / "0").touch()
        (checkpoint / "headwater.json").write_text(json.dumps(dataclasses.asdict(found)))

    def commit(self, table: str, newest: datetime) -> None:
        self.append(
            LedgerEntry(
                job="x",
                generation=1,
                batch=0,
                table=table,
                kind="row",
                max_event_time_us=int(newest.timestamp() * 1e6),
            )
        )

    def joined(self, **watermarks_ms: int | None) -> None:
        """A batch of the join, behind which the inputs have these watermarks."""
        extra = {"watermarks_ms": watermarks_ms}
        self.append(
            LedgerEntry(job="pairs", generation=1, batch=0, table="gold.pairs", kind="join", extra=extra)
        )

    def append(self, entry: LedgerEntry) -> None:
        write_deltalake(
            str(self.home.table(entry.table)),
            pa.table({"n": [1]}),
            mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
        )

    def hold(self) -> Any:
        lock = (self.home.root / "checkpoints" / "pairs" / "owner").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.now = BEGIN - timedelta(seconds=1)
    found.event("started")
    found.now = datetime.now(UTC)
    return found


def test_progress_batch_is_a_row_that_sql_can_query(place: Place) -> None:
    place.batch(told(0, read=10, there=25))
    rows = DeltaTable(str(place.home.table("headwater.progress"))).to_pyarrow_table().to_pylist()
    (row,) = [row for row in rows if row["event"] == "batch"]
    assert (row["job"], row["table"], row["generation"], row["batch"]) == ("pairs", "gold.pairs", 1, 0)
    assert (row["rows"], row["duration_ms"], row["behind"]) == (10, 1000, 15)
    assert row["watermark"] == datetime(2026, 1, 1, 9, tzinfo=UTC)
    assert [each["input"] for each in row["sources"]] == ["raw", "good", "orders"]
    assert row["operators"][0]["name"] == "symmetricHashJoin"
    assert dict(row["durations_ms"]) == {"addBatch": 900, "queryPlanning": 100}


def test_progress_that_cannot_be_written_is_kept_and_written_later(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk ends no job."""

    def full(*_arguments: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("headwater_streams.runtime.progress.write_deltalake", full)
        place.event("waiting", "no room")
        place.now += timedelta(seconds=1)
        place.event("waiting", "no room yet")
    place.now += timedelta(seconds=1)
    place.event("started")
    (pairs,) = progress_of(place.home.root)
    assert [event["message"] for event in pairs.events] == [None, "no room", "no room yet", None]


@pytest.mark.parametrize(
    ("start", "rows"), [({"clicks": {"0": 3, "1": 2}}, 10), ('{"clicks": {"0": 6, "1": 5}}', 4), (None, 10)]
)
def test_progress_records_that_a_batch_read_twice_are_counted_once(
    place: Place, start: Any, rows: int
) -> None:
    account = told(0, read=10, there=10)
    account["sources"][0]["startOffset"] = start
    place.batch(account)
    (batch,) = progress_of(place.home.root)[0].batches
    assert (batch["rows"], batch["sources"][0]["rows"]) == (rows, rows)


@pytest.mark.parametrize(
    ("text", "watermark"),
    [
        ("10000-01-01T00:00:00.000Z", None),  # of the year -9999, as Spark writes it
        ("1970-01-01T00:00:00.000Z", None),
        ("1950-01-01T00:00:00.000Z", datetime(1950, 1, 1, tzinfo=UTC)),
    ],
)
def test_progress_watermark_before_any_event_is_none(
    place: Place, text: str, watermark: datetime | None
) -> None:
    place.batch({**told(0, read=1, there=1), "eventTime": {"watermark": text}})
    assert progress_of(place.home.root)[0].batches[0]["watermark"] == watermark


def test_progress_states_follow_events_and_the_lock(place: Place) -> None:
    place.batch(told(0, read=10, there=10))
    place.facts()
    (found,) = progress_of(place.home.root)
    assert found.state == "killed"
    with place.hold():
        (found,) = progress_of(place.home.root)
        assert found.state == "running"
        assert found.row()["rows_per_busy_s"] == 10
    place.event("waiting", "the broker does not answer")
    (found,) = progress_of(place.home.root, ["pairs"])
    assert (found.state, found.message) == ("waiting", "the broker does not answer")
    assert progress_of(place.home.root, ["others"]) == []
    place.log.event("pairs__ingest_raw", "gold.pairs__ingest_raw", 1, "failed", "no such column")
    place.log.flush(now=True)
    assert [each.job for each in progress_of(place.home.root, ["pairs"])] == ["pairs", "pairs__ingest_raw"]


@pytest.mark.parametrize("event", ["failed", "refused", "blocked", "waiting"])
def test_progress_job_that_runs_is_not_what_a_second_process_came_to(place: Place, event: str) -> None:
    place.batch(told(0, read=10, there=10))
    place.facts()
    place.event(event, "it already runs in this home, as process 7; stop that one first")
    with place.hold():
        (found,) = progress_of(place.home.root)
    assert (found.state, found.message, found.is_ended_badly) == ("running", None, False)
    (found,) = progress_of(place.home.root)
    assert found.state == event


def _sentences(place: Place, partitions: Any, now: datetime = BEGIN) -> str:
    with place.hold():
        return "\n".join(explain_job(place.home.root, "pairs", partitions, now=now).sentences)


@pytest.fixture
def joined(place: Place) -> Place:
    place.facts()
    place.commit("silver.clicks", BEGIN)
    place.commit("silver.orders", BEGIN - timedelta(minutes=30))
    place.batch(told(0, read=10, there=25))
    place.batch(told(1, read=20, there=90, took_ms=3000, add_ms=2000))
    return place


def test_explain_says_who_holds_the_watermark_back_which_step_and_which_operator(joined: Place) -> None:
    text = _sentences(joined, lambda _topic: {0: (0, 100), 1: (0, 5), 2: (4, 7)})
    assert "it is running, and its inputs have more to read" in text
    assert "topic clicks: 83 records wait, most in clicks 0 (80)" in text
    assert "table silver.clicks: all is read" in text
    assert "it falls behind: 15 records waited 1 batch ago, 70 now" in text
    assert (
        "of its last 2 batches (2,000 ms each), 72% was reading, computing and committing the batch" in text
    )
    assert "the operator symmetricHashJoin took 490 ms" in text
    assert "it holds 77 rows, 9,000 bytes" in text
    assert "the watermark in effect is 2026-01-01 09:00:00; it moves with the next batch" in text
    assert (
        "table silver.orders lets it go to 2026-01-01 10:30:00: its newest event is of 2026-01-01 11:30:00; "
        "it holds back table silver.clicks (2026-01-01 11:55:00)"
    ) in text


def test_explain_join_says_which_side_holds_its_watermark_by_what_it_has_read(joined: Place) -> None:
    """Also of a side that is a topic; a table may hold more than the job has read."""
    facts = dataclasses.replace(
        JOIN,
        inputs=JOIN.inputs
        | {"raw": InputFacts(kind="topic", ids={"clicks": "c"}, watermark="10 minutes", columns={})},
    )
    shutil.rmtree(joined.home.checkpoint("pairs", 1))
    joined.facts(facts)
    at_ten = round(datetime(1950, 1, 1, 10, tzinfo=UTC).timestamp() * 1000)
    joined.joined(good=at_ten + 60_000, orders=at_ten + 3_600_000, raw=at_ten)
    text = _sentences(joined, None)
    assert (
        "topic clicks lets it go to 1950-01-01 10:00:00: its newest event is of 1950-01-01 10:10:00; "
        "it holds back table silver.clicks (1950-01-01 10:01:00), table silver.orders (1950-01-01 11:00:00)"
    ) in text
    joined.joined(good=at_ten, orders=None, raw=at_ten)
    text = _sentences(joined, None)
    assert ("no watermark is in effect: table silver.orders holds it, of which no event was seen yet") in text
    assert "lets it go" not in text


def test_explain_as_of_join_says_that_its_right_side_holds_the_watermark(place: Place) -> None:
    inputs = {name: found for name, found in JOIN.inputs.items() if name != "raw"}
    place.facts(dataclasses.replace(JOIN, kind="as_of", inputs=inputs))
    place.commit("silver.clicks", BEGIN - timedelta(days=9))
    place.commit("silver.orders", BEGIN)
    place.batch(told(0, read=10, there=25))
    extra = {"left": "good", "watermark_us": round(BEGIN.timestamp() * 1e6) - 3_600_000_000}
    place.append(
        LedgerEntry(job="pairs", generation=1, batch=0, table="gold.pairs", kind="as_of", extra=extra)
    )
    lines = _sentences(place, None).splitlines()
    assert (
        lines[-1]
        == "table silver.orders lets it go to 2026-01-01 11:00:00: its newest event is of 2026-01-01 12:00:00"
    )
    place.append(
        LedgerEntry(
            job="pairs",
            generation=1,
            batch=1,
            table="gold.pairs",
            kind="as_of",
            extra=extra | {"watermark_us": None},
        )
    )
    assert "no watermark is in effect: table silver.orders holds it" in _sentences(place, None)


def test_explain_several_topics_of_an_input_names_the_partition_that_waits_most(place: Place) -> None:
    both = InputFacts(kind="topic", ids={"clicks": "c", "taps": "d"}, watermark=None, columns={})
    place.facts(dataclasses.replace(JOIN, kind="row", inputs={"raw": both}))
    read = {"clicks": {"0": 10}, "taps": {"0": 3}}
    account = told(0, read=10, there=10)
    account["sources"] = [
        {"description": "KafkaV2[Subscribe[clicks, taps]]", "endOffset": read, "latestOffset": read}
    ]
    place.log.batch("pairs", "gold.pairs", 1, account, {"raw": "[clicks, taps]"})
    place.log.flush(now=True)
    there = {"clicks": {0: (0, 12)}, "taps": {0: (0, 8), 1: (4, 5)}}
    text = _sentences(place, there.__getitem__)
    assert "topics clicks, taps: 8 records wait, most in taps 0 (5)" in text


def test_explain_topic_of_a_named_cluster_which_spark_calls_by_its_bare_name(place: Place) -> None:
    of_cluster = InputFacts(kind="topic", ids={"pay:clicks": "c"}, watermark=None, columns={})
    place.facts(dataclasses.replace(JOIN, kind="row", inputs={"raw": of_cluster}))
    account = told(0, read=10, there=10)
    account["sources"] = account["sources"][:1]
    place.log.batch("pairs", "gold.pairs", 1, account, endings_of(place.home, bind(of_payments)))
    place.log.flush(now=True)
    assert progress_of(place.home.root)[0].batches[0]["sources"][0]["input"] == "raw"
    text = _sentences(place, {"pay:clicks": {0: (0, 12), 1: (0, 5)}}.__getitem__)
    assert "topic pay:clicks: 2 records wait, most in pay:clicks 0 (2)" in text


def test_explain_counts_what_is_there_where_retention_or_a_new_topic_has_overtaken_the_job(
    place: Place,
) -> None:
    place.facts()
    place.batch(told(0, read=20, there=90))
    assert "topic clicks: 60 records wait" in _sentences(place, lambda _topic: {0: (40, 100)})
    assert "topic clicks: 7 records wait" in _sentences(place, lambda _topic: {0: (5, 12)}), "made again"


def test_explain_job_that_commits_nothing_though_there_is_more_is_stuck(joined: Place) -> None:
    there: Callable[[str], dict[int, tuple[int, int]]] = lambda _topic: {0: (0, 100)}  # noqa: E731
    assert "stuck or in a long batch: none has ended for 0:09:56" in _sentences(
        joined, there, BEGIN + timedelta(minutes=10)
    )


def test_explain_job_that_was_started_again_is_not_stuck_since_before_that(place: Place) -> None:
    place.facts()
    place.batch(told(0, read=20, there=90))
    place.now = BEGIN + timedelta(minutes=10)
    place.event("started")
    there: Callable[[str], dict[int, tuple[int, int]]] = lambda _topic: {0: (0, 100)}  # noqa: E731
    later = place.now + timedelta(seconds=10.5)
    assert "it is running, and its inputs have more to read" in _sentences(place, there, later)
    told_later = _sentences(place, there, later + timedelta(minutes=1))
    assert "stuck or in a long batch: none has ended for 0:01:10, and" in told_later


def test_explain_broker_that_does_not_answer_or_is_not_known(joined: Place) -> None:
    assert "topic clicks: nobody could be asked how far it goes" in _sentences(joined, None)

    def away(_topic: str) -> dict[int, tuple[int, int]]:
        raise UnavailableError("the broker does not answer")

    assert "topic clicks: nobody could be asked how far it goes" in _sentences(joined, away)


def test_explain_stopped_job_says_what_goes_on_with_it(joined: Place) -> None:
    joined.event("stopped")
    stopped = explain_job(joined.home.root, "pairs", None).sentences[0]
    assert stopped == "it is stopped; headwater jobs run goes on with it"


def test_explain_failed_and_unknown_jobs(joined: Place) -> None:
    joined.event("failed", "no such column")
    assert explain_job(joined.home.root, "pairs", None).sentences[0] == "it failed: no such column"
    with pytest.raises(UsageError, match=r"no job 'other' has run in .*; those that have: pairs"):
        explain_job(joined.home.root, "other", None)


def test_explain_refused_and_held_jobs(joined: Place) -> None:
    joined.event("refused", "its state is of another operator")
    assert explain_job(joined.home.root, "pairs", None).sentences[0] == (
        "it was refused: its state is of another operator"
    )
    joined.now += timedelta(seconds=1)
    joined.event("blocked", "clean, which writes silver.clicks, failed")
    assert explain_job(joined.home.root, "pairs", None).sentences[0] == (
        "it does not run: clean, which writes silver.clicks, failed; mend that one, and headwater jobs run goes on "
        "with both"
    )


@pytest.mark.parametrize(
    ("event", "badly", "sentence"),
    [
        ("failed", True, "pairs failed: why"),
        ("refused", True, "pairs was refused: why"),
        ("blocked", True, "pairs does not run: why"),
        ("waiting", False, "pairs waits: why"),
    ],
)
def test_progress_says_who_does_not_run_and_why_also_to_machines(
    joined: Place, event: str, badly: bool, sentence: str
) -> None:
    joined.event(event, "why")
    found = progress_of(joined.home.root)
    (pairs,) = found
    assert pairs.is_ended_badly == badly
    assert pairs.sentence(has_committed=True) == sentence
    status = {"job": "pairs", "target": "gold.pairs", "read": 7}
    assert with_states([status], found) == [status | {"state": event, "message": "why"}]
    (alone,) = with_states([], found)
    assert (alone["job"], alone["state"], alone["batch"], alone["read"]) == ("pairs", event, None, 0)


def test_progress_job_that_failed_before_it_committed_anything_says_so(joined: Place) -> None:
    joined.event("failed", "why")
    (pairs,) = progress_of(joined.home.root)
    assert pairs.sentence(has_committed=False) == "pairs failed before it had committed anything: why"


def test_status_and_explain_pass_over_a_part_that_failed_before_its_job_was_started_without_it(
    joined: Place,
) -> None:
    """pairs had two steps, of which the second failed; it is made of one now, and runs."""

    def begin(*parts: str) -> None:
        for name in parts:
            joined.now += timedelta(seconds=1)
            joined.log.event(name, f"gold.{name}", 1, "started", None)
            joined.log.flush(now=True)

    def fail(part: str) -> None:
        joined.now += timedelta(seconds=1)
        joined.log.event(part, f"gold.{part}", 1, "failed", "no such column")
        joined.log.flush(now=True)

    begin("pairs__step_1", "pairs__step_2", "pairs")
    fail("pairs__step_2")
    joined.event("blocked", "its part pairs__step_2 failed")
    ended = [each.job for each in without_left_over(progress_of(joined.home.root)) if each.is_ended_badly]
    assert ended == ["pairs", "pairs__step_2"]
    begin("pairs__step_1", "pairs")
    found = without_left_over(progress_of(joined.home.root))
    assert [each.job for each in found] == ["pairs", "pairs__step_1"]
    assert "pairs__step_2" not in _sentences(joined, lambda _topic: {0: (0, 100)})
    fail("pairs__step_1")
    found = without_left_over(progress_of(joined.home.root))
    assert [each.job for each in found if each.is_ended_badly] == ["pairs__step_1"]


def test_explain_names_the_parts_of_a_job_that_are_behind_or_ended(joined: Place) -> None:
    part, left_over = "pairs__step_1", "pairs__step_2"
    for name in (part, left_over):
        joined.log.event(name, f"gold.{name}", 1, "failed" if name == part else "stopped", "no such column")
        checkpoint = joined.home.checkpoint(name, 1)
        (checkpoint / "offsets").mkdir(parents=True)
        (checkpoint / "offsets" / "0").touch()
        found = dataclasses.replace(JOIN, inputs={"raw": JOIN.inputs["raw"]})
        (checkpoint / "headwater.json").write_text(json.dumps(dataclasses.asdict(found)))
    joined.log.flush(now=True)
    text = _sentences(joined, lambda _topic: {0: (0, 100)})
    assert "its part pairs__step_1 failed: no such column" in text
    assert "its part pairs__step_1 is behind: 100 records of topic clicks wait" in text
    assert left_over not in text


def test_tidy_forgets_old_progress_and_makes_one_file(place: Place) -> None:
    for batch in range(5):
        place.batch(told(batch, read=10, there=10))
    kept_days = (datetime.now(UTC) - BEGIN).total_seconds() / 86400
    path = place.home.table("headwater.progress")
    tidy(place.home, Upkeep(log_kept_days=kept_days + 1))
    assert DeltaTable(str(path)).to_pyarrow_table().num_rows == 6
    assert len(DeltaTable(str(path)).file_uris()) == 1
    place.event("stopped")
    tidy(place.home, Upkeep(log_kept_days=0.001))
    (left,) = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert left["event"] == "stopped"


def test_watched_message_is_shown_and_neither_obeyed_nor_read_as_markup(joined: Place) -> None:
    """It may hold a record: that of an exception does."""
    joined.event("failed", "no number: \x1b[2J\x9b[bold]x[/b]")
    out = io.StringIO()
    PlainConsole(file=out, width=400, force_terminal=True, color_system=None).print(
        jobs_table(joined.home.root, None)
    )
    assert r"no number: \x1b[2J\x9b[bold]x[/b]" in out.getvalue()
    assert not {"\x1b", "\x9b"} & set(out.getvalue())
