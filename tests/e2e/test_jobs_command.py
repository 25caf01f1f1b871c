"""`headwater jobs` as a person meets it: modules that are wrong, records that are bad, and nothing lost."""

import json
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import broker

GOOD = """
import headwater as hw

clicks = hw.topic("clicks", schema="a INT, b STRING, at TIMESTAMP", event_time="at", watermark="10 minutes")


@hw.job(target=hw.delta("silver.clicks"), dedup=hw.by_offset(), quarantine="table")
def clean(clicks):
    return clicks.select("a", "b", "at")
"""
TWICE = (
    GOOD
    + """

@hw.job(target=hw.delta("silver.others"), name="clean")
def others(clicks):
    return clicks.select("a")
"""
)
SHOP = """
import headwater as hw

orders = hw.topic("orders", schema="cents BIGINT, at TIMESTAMP", event_time="at", watermark="10 minutes")
payments_in = hw.topic("payments", schema="cents BIGINT")
good = hw.table("silver.orders", event_time="at", watermark="10 minutes")
seen = hw.table("silver.views")


@hw.job(target=hw.delta("silver.orders"), name="orders")
def clean(orders):
    return orders.select("centz", "at")


@hw.job(target=hw.delta("gold.revenue"))
def revenue(good):
    return good.select("cents")


@hw.job(target=hw.delta("silver.payments"))
def payments(payments_in):
    return payments_in


@hw.job(target=hw.delta("silver.views"))
def views(views):
    return views


@hw.job(target=hw.delta("gold.views"))
def of_views(seen):
    return seen
"""
SHOP_SQL = """CREATE STREAMING TABLE silver.a AS SELECT cents FROM topic('payments', schema => 'cents BIGINT');
CREATE STREAMING TABLE silver.b WITH (mod = 'append') AS SELECT cents FROM silver.a;
"""
Run = Callable[..., subprocess.CompletedProcess[str]]
AT = "2026-01-01T00:00:00Z"
RECORD_MS = 1_767_225_600_000
FIVE_MB = 5_000_000
BAD: dict[str, bytes | None] = {
    "text": b"not JSON",
    "truncated": b'{"a": 1, "b": "tr',
    "wrong type": b'{"a": "one", "b": "x", "at": "%s"}' % AT.encode(),
    "empty": b"",
    "null": None,
    "not UTF-8": b'{"a": 1, "b": "\xff\xfe"}',
    "an array": b"[1, 2]",
    "from 2099": b'{"a": 1, "b": "x", "at": "2099-01-01T00:00:00Z"}',
    "5 MB of text": b"x" * FIVE_MB,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here = tmp_path_factory.mktemp("jobs")
    (here / "good.py").write_text(GOOD)
    (here / "shop.py").write_text(SHOP)
    (here / "shop.sql").write_text(SHOP_SQL)
    (here / "syntax.py").write_text("import headwater as hw\n\ndef clean(:\n")
    (here / "column.py").write_text(GOOD.replace('"a", "b"', '"a", "nothere"'))
    (here / "twice.py").write_text(TWICE)
    (here / "text.py").write_text(
        GOOD.replace('select("a", "b", "at")', 'selectExpr("CAST(a AS STRING) AS a", "b", "at")')
    )
    (here / "divided.py").write_text(
        GOOD.replace('select("a", "b", "at")', 'selectExpr("1 / a AS a", "b", "at")').replace(
            '@hw.job(target=hw.delta("silver.clicks")',
            '@hw.job(target=hw.delta("silver.clicks"), on_error="fail"',
        )
    )
    return here


@pytest.fixture(scope="module")
def run(headwater_in: Callable[[Path], Run], folder: Path) -> Run:
    """Runs commands in that folder."""
    return headwater_in(folder)


@pytest.mark.story
@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ("syntax.py", "syntax.py, line 3: invalid syntax"),
        ("column.py", "with name `nothere` cannot be resolved. Did you mean one of the following?"),
        ("twice.py", "two jobs are named 'clean': "),
        ("absent.py", "no job module 'absent.py'"),
        ("good.py:other", "good.py: no job 'other'; its jobs are clean"),
    ],
)
def test_jobs_check_wrong_module_is_one_sentence(run: Run, what: str, sentence: str) -> None:
    checked = run("jobs", "check", what)
    assert checked.returncode == 2
    assert checked.stdout == ""
    (line,) = checked.stderr.splitlines()
    assert line.startswith("headwater: ")
    assert sentence in line


def test_jobs_run_wrong_module_is_refused_before_anything_is_made(run: Run, folder: Path) -> None:
    started = run("jobs", "run", "twice.py", "--once", "--bootstrap", "127.0.0.1:1", "--home", "none")
    assert started.returncode == 2
    assert len(started.stderr.splitlines()) == 1
    assert not (folder / "none").exists()


@pytest.mark.story
def test_jobs_check_says_all_that_is_wrong_in_one_run(run: Run) -> None:
    checked = run("jobs", "check", "shop.py", "syntax.py", "column.py", "shop.sql")
    assert checked.returncode == 2
    assert [line.split()[0] for line in checked.stdout.splitlines()[2:]] == ["payments", "a"]
    told = checked.stderr.splitlines()
    assert all(line.startswith("headwater: ") for line in told)
    for sentence in (
        "syntax.py, line 3: invalid syntax",
        "no input for the parameter 'views'",
        "shop.sql, line 2: WITH has no 'mod'",
        "with name `nothere` cannot be resolved",
        "job 'revenue' is not planned: orders, which writes silver.orders, is wrong",
        "job 'of_views' is not planned: views, which writes silver.views, could not be loaded",
        "with name `centz` cannot be resolved",
    ):
        assert len([line for line in told if sentence in line]) == 1, (sentence, told)
    checked = run("jobs", "check", "shop.py", "syntax.py", "--json")
    assert checked.returncode == 2
    found = json.loads(checked.stdout)
    assert {each["job"]: bool(each["problems"]) for each in found} == {
        "payments": False,
        "orders": True,
        "revenue": True,
        "of_views": True,
        "views": True,
        None: True,
    }


@pytest.mark.story
def test_jobs_run_goes_on_with_those_that_depend_on_nothing_wrong(run: Run) -> None:
    with broker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("payments", b'{"cents": 5}', timestamp=RECORD_MS)
        producer.produce("clicks", _good(0), timestamp=RECORD_MS)
        assert producer.flush(30) == 0
        arguments = ("--bootstrap", running.bootstrap, "--home", "apart")
        started = run("jobs", "run", "shop.py", "syntax.py", "divided.py", "--once", "--json", *arguments)
        status = run("jobs", "status", "--json", *arguments)
        told = run("jobs", "status", *arguments)
        wrong = run("jobs", "run", "shop.py", "syntax.py", "--once", *arguments)
        fast = run("jobs", "run", "shop.py", "syntax.py", "--once", "--fail-fast", *arguments)
    assert started.returncode == 1, "one has failed"
    assert "Traceback" not in started.stderr
    ended = json.loads(started.stdout)
    assert ended["rows"]["payments"]["written"] == 1
    assert {each["job"]: each["state"] for each in ended["ended"]} == {
        None: "refused",
        "views": "refused",
        "clean": "failed",
        "orders": "refused",
        "revenue": "blocked",
        "of_views": "blocked",
    }
    last = started.stderr.splitlines()[-5:]
    assert "syntax.py, line 3: invalid syntax" in "\n".join(started.stderr.splitlines())
    assert any("DIVIDE_BY_ZERO" in line for line in last)
    assert status.returncode == told.returncode == 1
    states = {each["job"]: each["state"] for each in json.loads(status.stdout)}
    assert states == {
        "payments": "stopped",
        "clean": "failed",
        "orders": "refused",
        "views": "refused",
        "revenue": "blocked",
        "of_views": "blocked",
    }
    assert "revenue does not run: orders, which writes silver.orders, is wrong" in told.stdout
    assert wrong.returncode == 2, "none has failed, and some are wrong"
    assert fast.returncode == 2
    assert len(fast.stderr.splitlines()) == 2, "what cannot be loaded, and nothing was begun"


def test_jobs_run_topic_that_is_not_there_is_named(run: Run) -> None:
    with broker(properties={"auto.create.topics.enable": "false"}) as running:
        started = run(
            "jobs", "run", "good.py", "--once", "--bootstrap", running.bootstrap, "--home", "absent"
        )
    assert started.returncode in (1, 2)
    assert "Traceback" not in started.stderr
    assert "clicks" in started.stderr.splitlines()[-1]


@pytest.mark.story
def test_jobs_run_rows_that_cannot_be_computed_are_told_with_the_reason_and_no_trace(run: Run) -> None:
    with broker() as running:
        producer = Producer({"bootstrap.servers": running.bootstrap})
        producer.produce("clicks", _good(0), timestamp=RECORD_MS)
        assert producer.flush(30) == 0
        arguments = ("--bootstrap", running.bootstrap, "--home", "divided")
        started = run("jobs", "run", "divided.py", "--once", *arguments)
        status = run("jobs", "status", *arguments)
    assert started.returncode == 1
    assert "\tat " not in started.stderr
    told = "batch 0 of clicks 0 [0, 1): [DIVIDE_BY_ZERO] Division by zero."
    assert started.stderr.splitlines()[-1].startswith(f"headwater: job 'clean', {told}")
    assert status.stdout.startswith(f"clean failed before it had committed anything: {told}")


@pytest.fixture(scope="module")
def ran(run: Run) -> None:
    """A home in which the job ran over good records and one of each bad kind."""
    with broker() as running:
        topic = NewTopic("clicks", 1, 1, config={"max.message.bytes": str(2 * FIVE_MB)})
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([topic])["clicks"].result(10)
        producer = Producer(
            {"bootstrap.servers": running.bootstrap, "message.max.bytes": 2 * FIVE_MB, "linger.ms": 0}
        )
        large = json.dumps({"a": 5, "b": "y" * FIVE_MB, "at": AT}).encode()
        values = [_good(1), *BAD.values(), large, _good(2)]
        for value in values:
            producer.produce("clicks", value, timestamp=RECORD_MS)
        assert producer.flush(30) == 0
        done = run("jobs", "run", "good.py", "--once", "--bootstrap", running.bootstrap)
        assert done.returncode == 0, done.stderr[-2000:]
        assert "Traceback" not in done.stderr


def _good(a: int) -> bytes:
    return json.dumps({"a": a, "b": "x", "at": AT}).encode()


def _sql(run: Run, statement: str) -> list[dict[str, Any]]:
    asked = run("sql", "--json", statement)
    assert asked.returncode == 0, asked.stderr
    rows: list[dict[str, Any]] = json.loads(asked.stdout)
    return rows


@pytest.mark.story
@pytest.mark.usefixtures("ran")
def test_jobs_run_bad_values_good_rows_and_large_ones_are_in_the_table(run: Run) -> None:
    rows = _sql(run, "SELECT a, length(b) AS size FROM silver.clicks ORDER BY a")
    assert rows == [{"a": 1, "size": 1}, {"a": 2, "size": 1}, {"a": 5, "size": FIVE_MB}]


@pytest.mark.story
@pytest.mark.usefixtures("ran")
def test_jobs_run_bad_values_are_quarantined_with_their_bytes(run: Run) -> None:
    rows = _sql(
        run,
        "SELECT _offset, _reason, coalesce(length(to_hex(_raw)) // 2, -1) AS size "
        "FROM silver.clicks__quarantine ORDER BY _offset",
    )
    assert [row["_offset"] for row in rows] == list(range(1, len(BAD) + 1))
    assert [row["size"] for row in rows] == [-1 if value is None else len(value) for value in BAD.values()]
    assert all(row["_reason"] for row in rows)


@pytest.mark.story
@pytest.mark.usefixtures("ran")
def test_jobs_run_bad_values_every_offset_is_accounted_for(run: Run) -> None:
    audited = run("audit", "--json")
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert Counter(row["_partition"] for row in _sql(run, "SELECT _partition FROM silver.clicks")) == {0: 3}


@pytest.mark.usefixtures("ran")
def test_jobs_check_and_run_refuse_a_column_of_another_type_in_the_same_words(run: Run) -> None:
    told = "silver.clicks: the column 'a' is int in the table and string in the job; cast it there, or give it another"
    checked = run("jobs", "check", "text.py")
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("clicks", 1, 1)])["clicks"].result(10)
        started = run("jobs", "run", "text.py", "--once", "--bootstrap", running.bootstrap)
    assert (checked.returncode, started.returncode) == (2, 1)
    for ended in (checked, started):
        assert told in ended.stderr
        assert "Traceback" not in ended.stderr
