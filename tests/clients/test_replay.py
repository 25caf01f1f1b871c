"""`headwater replay` and the records that `headwater trace` prints, against a broker and with a real client."""

import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import CommitProperties, write_deltalake

from headwater import trace
from headwater.cli import main
from headwater.errors import UsageError, UserError
from headwater.replays import replay
from headwater.running.replay import (
    Pace,
    Selection,
    of_lines,
    origin_name,
    origin_of_file,
    parse_speed,
)
from headwater.sql import traces
from headwater.sql.catalog import Catalog
from headwater.sql.duckdb_engine import DuckDBEngine
from headwater.sql.errors import SqlError
from headwater.sql.session import SqlSession
from headwater_broker.testing import RunningBroker, broker
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.storage.home import Home

T0 = datetime(2013, 1, 1, 10, tzinfo=UTC)
TABLE, REJECTED = "silver.flights", "silver.flights__quarantine"


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        yield started


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """Three rows, the last of which happened first, and a rejected record."""
    made = Home(tmp_path_factory.mktemp("home"))
    rows = [
        {
            "carrier": carrier,
            "departed": T0 + timedelta(minutes=minutes),
            "delay": minutes,
            "_topic": "flights",
            "_partition": 0,
            "_offset": offset,
            "_timestamp": T0,
            "_batch": 0,
            "_generation": 1,
        }
        for offset, (carrier, minutes) in enumerate([("UA", 10), ("DL", 20), ("AA", 0)])
    ]
    source = SourceRange(input="flights", topic="flights", ranges={"flights": {0: (0, 4)}})
    entry = LedgerEntry(
        job="flights",
        generation=1,
        batch=0,
        table=TABLE,
        kind="row",
        sources=(source,),
        accounting={"flights": {"read": 4, "written": 3, "filtered": 0, "quarantined": 1}},
    )
    told = CommitProperties(custom_metadata={"userMetadata": entry.to_json()})
    write_deltalake(str(made.table(TABLE)), pa.Table.from_pylist(rows), commit_properties=told)
    rejected = {
        "_reason": "has_carrier: carrier IS NOT NULL",
        "_check": "has_carrier",
        "_key": b"k",
        "_raw": b"\xff{}",
        "_headers": [{"key": "h", "value": b"1"}, {"key": "headwater-origin-offset", "value": b"9"}],
        "_topic": "flights",
        "_partition": 0,
        "_offset": 3,
        "_timestamp": T0,
        "_batch": 0,
        "_generation": 1,
    }
    write_deltalake(str(made.table(REJECTED)), pa.Table.from_pylist([rejected]))
    return made


def records(running: RunningBroker, topic: str) -> list[Any]:
    """All records of a topic of one partition."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": "t", "enable.partition.eof": True}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(message)
        return found
    finally:
        consumer.close()


def run(running: RunningBroker, home: Home, *words: str) -> int:
    return main([*words, "--home", str(home.root), "--bootstrap", running.bootstrap])


def test_replay_of_a_table_sends_its_own_columns_by_event_time(running: RunningBroker, home: Home) -> None:
    words = ("replay", TABLE, "--topic", "again", "--time", "departed", "--key", "carrier")
    assert run(running, home, *words) == 0
    sent = records(running, "again")
    assert [message.key() for message in sent] == [b"AA", b"UA", b"DL"]
    assert json.loads(sent[0].value()) == {"carrier": "AA", "departed": "2013-01-01T10:00:00Z", "delay": 0}
    origins = [dict(message.headers()) for message in sent]
    assert [origin["headwater-origin-offset"] for origin in origins] == [b"0", b"1", b"2"]
    assert {origin["headwater-origin-topic"] for origin in origins} == {
        origin_name(f"{TABLE}@0", Selection(TABLE, time="departed")).encode()
    }
    assert sent[0].timestamp()[1] > 1_700_000_000_000, "the time of now, which retention leaves alone"


def test_replay_of_some_rows_with_their_timestamps(running: RunningBroker, home: Home) -> None:
    words = ("replay", TABLE, "--topic", "some", "--time", "departed", "--where", "delay > 0 -- late")
    assert run(running, home, *words, "--keep-timestamps", "--skip", "1") == 0
    (sent,) = records(running, "some")
    assert json.loads(sent.value())["carrier"] == "DL"
    assert sent.timestamp()[1] == round((T0 + timedelta(minutes=20)).timestamp() * 1000)
    assert dict(sent.headers())["headwater-origin-offset"] == b"1", "as without --skip"


def test_replay_of_rejected_rows_sends_them_as_they_were_sent(running: RunningBroker, home: Home) -> None:
    assert run(running, home, "replay", REJECTED, "--topic", "mended") == 0
    (sent,) = records(running, "mended")
    assert (sent.key(), sent.value()) == (b"k", b"\xff{}")
    headers = dict(sent.headers())
    assert (headers["h"], headers["headwater-origin-offset"]) == (b"1", b"0"), "with an origin of its own"


def test_replay_of_a_parquet_file(running: RunningBroker, home: Home, tmp_path: Path) -> None:
    path = tmp_path / "it's.parquet"
    pq.write_table(pa.table({"n": [1, 2]}), path)
    assert run(running, home, "replay", str(path), "--topic", "parquet") == 0
    assert [message.value() for message in records(running, "parquet")] == [b'{"n": 1}', b'{"n": 2}']


def test_replay_of_lines_sends_each_as_it_stands(running: RunningBroker, home: Home, tmp_path: Path) -> None:
    path = tmp_path / "flights.jsonl"
    path.write_bytes(b'{"at": "2013-01-01T10:00:00Z",  "n": 1.0}\n\n{"at": 1357034400000}\r\n')
    assert run(running, home, "replay", str(path), "--topic", "lines", "--time", "at") == 0
    sent = [message.value() for message in records(running, "lines")]
    assert sent == [b'{"at": "2013-01-01T10:00:00Z",  "n": 1.0}', b'{"at": 1357034400000}']


def test_replay_of_rows_of_one_time_has_the_same_numbers_each_time(
    running: RunningBroker, home: Home, tmp_path: Path
) -> None:
    """Else a second attempt would take other rows for those that were sent."""
    at, rows = T0 + timedelta(microseconds=1234), [{"n": n, "s": {"x": [n % 7]}} for n in range(500)]
    sent = []
    for topic, ordered in (("one", rows), ("other", rows[::-1])):
        path = tmp_path / f"{topic}.parquet"
        pq.write_table(pa.Table.from_pylist([{"at": at, **row} for row in ordered]), path)
        words = ("replay", str(path), "--topic", topic, "--time", "at", "--keep-timestamps")
        assert run(running, home, *words) == 0
        sent.append([(m.value(), m.timestamp()[1]) for m in records(running, topic)])
    assert sent[0] == sent[1]
    assert {timestamp for _, timestamp in sent[0]} == {round(T0.timestamp() * 1000) + 1}
    assert json.loads(sent[0][0][0]) == {"at": "2013-01-01T10:00:00.001234Z", "n": 0, "s": {"x": [0]}}


def test_replay_of_a_time_that_no_record_can_have_is_refused_before_it_is_sent(
    running: RunningBroker, home: Home, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "old.parquet"
    pq.write_table(pa.table({"at": [T0.replace(year=1931), T0]}), path)
    words = ("replay", str(path), "--topic", "old", "--time", "at")
    assert run(running, home, *words, "--keep-timestamps") == 1
    assert "row 0 is of 1970-01-01T00:00:00Z or before" in capsys.readouterr().err
    assert run(running, home, *words) == 0
    assert len(records(running, "old")) == 2


@pytest.mark.parametrize("name", ["*.parquet", "x?.parquet", "[xy].parquet", "X.PARQUET"])
def test_replay_of_a_file_whose_name_is_a_pattern_sends_that_file(
    running: RunningBroker, home: Home, tmp_path: Path, name: str
) -> None:
    for other, n in (("x.parquet", 1), ("xy.parquet", 2), (name, 3)):
        pq.write_table(pa.table({"n": [n]}), tmp_path / other)
    topic = f"pattern-{name.encode().hex()}"
    assert run(running, home, "replay", str(tmp_path / name), "--topic", topic) == 0
    assert [message.value() for message in records(running, topic)] == [b'{"n": 3}']


def test_replay_of_a_file_that_no_job_wrote_sends_columns_with_an_underscore(
    running: RunningBroker, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "theirs.parquet"
    theirs = {"_id": ["a"], "_c0": [1], "_key": ["k"], "__replayed_at": ["x"]}
    pq.write_table(pa.table(theirs), path)
    assert run(running, home, "replay", str(path), "--topic", "theirs", "--key", "_id") == 0
    (sent,) = records(running, "theirs")
    assert (sent.key(), json.loads(sent.value())) == (
        b"a",
        {name: value for name, (value,) in theirs.items()},
    )


@pytest.mark.parametrize(
    ("source", "column", "expected"),
    [(REJECTED, "_key", b"k"), (REJECTED, "_check", b"has_carrier"), (TABLE, "_offset", b"2")],
)
def test_replay_with_a_hidden_column_as_the_key(
    running: RunningBroker, home: Home, source: str, column: str, expected: bytes
) -> None:
    topic = f"key-{column}"
    where = ("--where", "_offset >= 2")
    assert run(running, home, "replay", source, "--topic", topic, "--key", column, *where) == 0
    assert [message.key() for message in records(running, topic)] == [expected]


def test_replay_of_a_column_of_bytes_as_the_key_sends_the_bytes(
    running: RunningBroker, home: Home, tmp_path: Path
) -> None:
    path = tmp_path / "bytes.parquet"
    pq.write_table(pa.table({"id": [b"\xff\x00"]}), path)
    assert run(running, home, "replay", str(path), "--topic", "bytes", "--key", "id") == 0
    (sent,) = records(running, "bytes")
    assert (sent.key(), sent.value()) == (b"\xff\x00", b'{"id": "/wA="}')


@pytest.mark.parametrize("text", ['[\n {"n": 1}\n]\n', '{\n "n": 1\n}\n'])
def test_replay_of_a_document_that_is_not_an_object_a_line_sends_nothing(
    running: RunningBroker, home: Home, tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "document.json"
    path.write_text(text)
    assert run(running, home, "replay", str(path), "--topic", "document") == 2
    assert "line 1: no JSON ends there, and each line is sent by itself" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("at", "sentence"),
    [(0, "row 1 is of 1970-01-01T00:00:00Z or before"), (1e30, "row 1 has a time beyond all timestamps")],
)
def test_replay_of_a_time_that_a_producer_cannot_give_is_refused(
    running: RunningBroker,
    home: Home,
    tmp_path: Path,
    at: float,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """librdkafka takes 0 for the time of now."""
    path = tmp_path / "times.jsonl"
    path.write_text(f'{{"at": 1357034400000}}\n{{"at": {at}}}\n')
    words = ("replay", str(path), "--topic", "times", "--time", "at", "--keep-timestamps")
    assert run(running, home, *words) == 1
    said = capsys.readouterr().err
    assert sentence in said
    assert "1 row was acknowledged" in said


def test_replay_of_a_table_that_goes_on_is_of_one_version(running: RunningBroker, home: Home) -> None:
    for n in (1, 2):
        write_deltalake(str(home.table("silver.more")), pa.table({"n": [n]}), mode="append")
    with closing(DuckDBEngine(Catalog(home.root), versions={"silver.more": 0})) as engine:
        statement = f"SELECT (SELECT count(*) FROM silver.more) AS more, (SELECT count(*) FROM {TABLE}) AS n"
        (batch,) = engine.batches(statement, 10)
        assert batch.to_pylist() == [{"more": 1, "n": 3}]
    words = (
        "replay",
        "silver.more",
        "--topic",
        "more",
        "--at",
        "0",
        "--where",
        f"n < (SELECT count(*) FROM {TABLE})",
    )
    assert run(running, home, *words) == 0
    assert [message.value() for message in records(running, "more")] == [b'{"n": 1}']


def test_replay_in_python_is_what_the_command_does(running: RunningBroker, home: Home) -> None:
    asked: dict[str, Any] = {"topic": "python", "home": home.root, "bootstrap": running.bootstrap}
    done = replay(TABLE, **asked, time="departed", where="delay > 0", key="carrier", speed=100_000)
    assert (done.topic, done.sent, done.version) == ("python", 2, 0)
    assert [message.key() for message in records(running, "python")] == [b"UA", b"DL"]
    with pytest.raises(UsageError, match="it has"):
        replay(TABLE, **asked, time="nope")
    with pytest.raises(UsageError, match="give 1x, 10x"):
        replay(TABLE, **asked, speed=-1)


def test_replay_of_what_is_not_there_is_a_usage_error(
    running: RunningBroker, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "x.csv").write_text("a")
    lines, rows = tmp_path / "x.jsonl", tmp_path / "x.parquet"
    lines.write_text("{}")
    pq.write_table(pa.table({"n": [1]}), rows)
    for words in (
        (TABLE, "--time", "delay"),
        (TABLE, "--key", "nope"),
        ("silver.nope",),
        (str(tmp_path / "x.csv"),),
        (TABLE, "--speed", "fast"),
        (str(lines), "--speed", "1x"),
        (str(lines), "--keep-timestamps"),
        (str(lines), "--at", "0"),
        (str(rows), "--keep-timestamps"),
        (str(rows), "--speed", "1x"),
    ):
        assert run(running, home, "replay", *words, "--topic", "never") == 2


def test_trace_prints_the_records_themselves(
    running: RunningBroker, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap})
    for carrier in ("UA", "DL", "AA"):
        producer.produce("flights", value=json.dumps({"carrier": carrier}), key="k", partition=0)
    producer.flush()
    assert run(running, home, "trace", TABLE, "--where", "carrier = 'DL'") == 0
    assert 'flights:0:1  {"carrier": "DL"}' in capsys.readouterr().out
    assert run(running, home, "trace", "flights:0:2", "--json") == 0
    traced = json.loads(capsys.readouterr().out)
    assert traced["record"]["value"] == '{"carrier": "AA"}'
    assert traced["steps"][0]["row"]["carrier"] == "AA"
    assert run(running, home, "trace", "flights:0:3") == 0
    out = capsys.readouterr().out
    assert "flights:0:3  it is not there: the topic ends at offset 3" in out
    assert "rejected in silver.flights__quarantine: has_carrier: carrier IS NOT NULL" in out


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nope = 1", 'column "nope" not found'),
        ("delay >", "syntax error"),
        ("carrier = 5", "Conversion Error"),
    ],
)
def test_trace_of_rows_by_a_wrong_condition_says_what_is_wrong_with_it(
    running: RunningBroker, home: Home, capsys: pytest.CaptureFixture[str], where: str, message: str
) -> None:
    assert run(running, home, "trace", TABLE, "--where", where) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"headwater: --where {where}: ")
    assert message in error
    assert "LINE" not in error, "of a statement that nobody typed"


def test_trace_in_python_is_what_the_command_prints(home: Home) -> None:
    (row,) = trace.rows(TABLE, where="carrier = 'DL'", home=home.root)
    assert [str(each) for each in trace.records_of(row)] == ["flights:0:1"]
    assert [step.fate for step in trace.record("flights:0:3", home=home.root)] == ["quarantined"]
    for names_nothing in (
        lambda: trace.rows("silver.x", home=home.root),
        lambda: trace.record(TABLE, home=home.root),
    ):
        with pytest.raises(UsageError):
            names_nothing()


def test_trace_in_sql_is_a_result_like_any_other(home: Home) -> None:
    with SqlSession(home.root) as session:
        rows = [*session.run("TRACE silver.flights\nWHERE carrier = 'DL' -- late").objects()]
        assert [(each["topic"], each["first_offset"], each["end_offset"]) for each in rows] == [
            ("flights", 1, 2)
        ]
        (step,) = session.run("trace 'flights:0:3'").objects()
        assert (step["depth"], step["fate"], step["table"]) == (1, "quarantined", REJECTED)
        assert len(session.run("trace silver.flights")) == 3
        for wrong in ("trace silver.nope", "trace 'flights'", "trace silver.flights where nope > 1"):
            with pytest.raises(SqlError):
                session.run(wrong)
    with SqlSession(home.root, at=0) as session, pytest.raises(SqlError, match="leave --at out"):
        session.run("trace silver.flights")


def test_trace_in_sql_of_more_rows_than_it_follows_is_refused(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A count of them would be wrong."""
    monkeypatch.setattr(traces, "_MOST_ROWS", 2)
    with SqlSession(home.root) as session:
        assert len(session.run("trace silver.flights where delay > 0")) == 2
        with pytest.raises(SqlError, match=r"more than 2 rows of silver\.flights are so: choose"):
            session.run("trace silver.flights")


def test_trace_of_a_row_with_a_time_that_python_does_not_have(
    running: RunningBroker, home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    far = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    rows = {
        "at": far,
        "_topic": ["far"],
        "_partition": [0],
        "_offset": [7],
        "_batch": [0],
        "_generation": [1],
    }
    write_deltalake(str(home.table("silver.far")), pa.table(rows))
    assert run(running, home, "trace", "silver.far", "--no-records") == 0
    assert "silver.far  at=10000-01-01 00:00:00" in capsys.readouterr().out


def test_replay_by_event_time_sends_rows_at_their_distances(running: RunningBroker, home: Home) -> None:
    """The three rows are ten minutes apart: 1200 times as fast, half a second."""
    words = ("replay", TABLE, "--topic", "paced", "--time", "departed", "--speed", "1200x")
    assert run(running, home, *words) == 0
    first, second, third = (message.timestamp()[1] for message in records(running, "paced"))
    # A machine under load sends them later, and never sooner.
    assert second - first > 400
    assert third - second > 400


def test_pace_of_ten_times_as_fast_waits_a_tenth_of_the_time() -> None:
    now = [100.0]
    pace = Pace(10.0, lambda: now[0])
    assert pace.wait_s(5_000) == 0
    assert pace.wait_s(25_000) == pytest.approx(2.0)
    now[0] += 1.5
    assert pace.wait_s(25_000) == pytest.approx(0.5)
    now[0] += 5
    assert pace.wait_s(25_000) == 0
    assert pace.wait_s(None) == 0
    assert Pace(None, lambda: now[0]).wait_s(10**9) == 0


@pytest.mark.parametrize("text", ["0", "-1x", "fast", "inf", "nan"])
def test_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="give 1x, 10x"):
        parse_speed(text)


def test_origins_of_two_selections_and_of_two_files_differ(tmp_path: Path) -> None:
    names = {origin_name("t@1", Selection("t", where=where)) for where in (None, "a > 1", "a > 2")}
    assert len(names) == 3
    path = tmp_path / "a.jsonl"
    path.write_text("1\n")
    before = origin_of_file(path, Selection("a"))
    path.write_text("1\n2\n")
    assert origin_of_file(path, Selection("a")) != before


def test_line_without_its_time_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"at": 1}\n{"on": 1}\n')
    with pytest.raises(
        UserError, match=r"line 2: it is no JSON object with at .* --skip 2 goes on behind it"
    ):
        [*of_lines(path, Selection("a", time="at"))]
