"""The runner does what the schedule says, with queries that are made up: no Spark."""

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame
from pyspark.sql import types as T

import headwater as hw
from headwater_streams.base.errors import (
    CheckFailedError,
    FailingRowsFoundError,
    IncompatibleStateError,
    SourceReplacedError,
    SparkEndedError,
    SupersededError,
    UnavailableError,
)
from headwater_streams.plan.job import Job, bind
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime import runner as runner_module
from headwater_streams.runtime.query import JobQuery
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.storage.home import Home

orders = hw.topic("orders", schema="cents BIGINT")
payments = hw.topic("payments", schema="cents BIGINT")
good = hw.table("silver.orders")
days = hw.table("gold.revenue")
AWAY = UnavailableError("the broker does not answer")


@hw.job(target=hw.delta("silver.orders"))
def clean(orders: DataFrame) -> DataFrame:
    return orders


@hw.job(target=hw.delta("gold.revenue"))
def revenue(good: DataFrame) -> DataFrame:
    return good


@hw.job(target=hw.delta("gold.best"))
def best(days: DataFrame) -> DataFrame:
    return days


@hw.job(target=hw.delta("silver.payments"))
def paid(payments: DataFrame) -> DataFrame:
    return payments


class Query:
    """A query whose end the test decides."""

    warming_up = None
    last_batch = -1
    generation = 1

    def __init__(self, job: Job, *, once: bool) -> None:
        self.job, self.once = job, once
        self.batches, self.is_active, self.is_at_boundary = 0, True, True
        self.error: BaseException | None = None
        self.is_asked, self.is_stopped = False, False
        self.stop_error: Exception | None = None

    def failure(self) -> BaseException | None:
        return self.error

    def request_stop(self) -> None:
        self.is_asked = True

    def stop(self) -> None:
        self.is_active, self.is_stopped = False, True
        if self.stop_error is not None:
            raise self.stop_error

    def wait(self, _timeout_s: float) -> bool:
        self.is_active = self.is_active and not self.once
        return not self.is_active

    def fail(self, error: BaseException) -> None:
        self.error, self.is_active = error, False


class Runner(JobRunner):
    """Starts made-up queries; `errors` has what the next starts of a job raise."""

    def __init__(self, home: Path, *functions: Callable[..., Any], **more: Any) -> None:
        self.errors: dict[str, list[Exception]] = {}
        self.started: list[str] = []
        context: Any = SimpleNamespace(home=Home(home), spark=SimpleNamespace(version="4.2.0"))
        plans = [JobPlan(bind(each), "row", None, T.StructType(), {}) for each in functions]
        more = {"restarts": Restarts(BackOff(0.02, 0.05)), "goes_on": True, "progress_every_s": 0.0} | more
        super().__init__(context, [plan.job for plan in plans], plans=plans, **more)

    def _start(self, plan: JobPlan, *, once: bool, interval_s: float) -> JobQuery:
        name = plan.job.name
        if self.errors.get(name):
            raise self.errors[name].pop(0)
        self.started.append(name)
        self._retire(name)
        query: Any = Query(plan.job, once=once)
        self.queries[name] = query
        self._note(query, "started")
        return query

    def of(self, name: str) -> Query:
        query: Any = self.queries[name]
        return query


@pytest.fixture(autouse=True)
def _no_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner_module, "_POLL_S", 0.01)


def _events(home: Path, job: str) -> list[tuple[str, str | None]]:
    table = DeltaTable(str(Home(home).table("headwater.progress"))).to_pyarrow_table().sort_by("happened_at")
    return [(row["event"], row["message"]) for row in table.to_pylist() if row["job"] == job]


def _until(runner: Runner, done: Callable[[], bool]) -> None:
    for _ in range(500):
        if done():
            return
        runner.watch(0.01)
    raise AssertionError(runner.started)


def test_runner_stops_the_readers_of_a_failed_job_once_their_batch_is_done_and_no_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    runner = Runner(tmp_path, clean, revenue, best, paid)
    runner.start()
    assert runner.started == ["clean", "revenue", "best", "paid"]
    in_batch = runner.of("revenue")
    in_batch.is_at_boundary = False
    runner.of("clean").fail(CheckFailedError("job 'clean', batch 3: the check plausible does not hold"))
    runner.watch(0.05)
    assert list(runner.queries) == ["revenue", "paid"]
    assert in_batch.is_asked
    assert not in_batch.is_stopped
    assert _events(tmp_path, "revenue")[-1] == ("blocked", "clean, which writes silver.orders, failed")
    in_batch.is_at_boundary = True
    runner.watch(0.05)
    assert list(runner.queries) == ["paid"]
    assert in_batch.is_stopped
    assert not runner.is_over
    assert (
        "batch 3: the check plausible does not hold; the jobs that do not depend on it go on" in caplog.text
    )
    runner.stop()
    assert [(each.job, each.state, each.message) for each in runner.outcomes] == [
        ("clean", "failed", "job 'clean', batch 3: the check plausible does not hold"),
        ("revenue", "blocked", "job 'revenue' does not run: clean, which writes silver.orders, failed"),
        (
            "best",
            "blocked",
            "job 'best' does not run: revenue, which writes gold.revenue, is blocked, as clean failed",
        ),
    ]
    assert _events(tmp_path, "clean") == [
        ("started", None),
        ("failed", "batch 3: the check plausible does not hold"),
    ]
    assert _events(tmp_path, "paid") == [("started", None), ("stopped", None)]
    assert _events(tmp_path, "best")[-1][0] == "blocked", "the stop of the command is not what stopped it"


def test_runner_tries_a_job_again_whose_broker_is_away_and_the_others_run(tmp_path: Path) -> None:
    runner = Runner(tmp_path, clean, revenue, paid)
    runner.errors["clean"] = [AWAY] * 7
    runner.start()
    assert list(runner.queries) == ["paid"]
    assert _events(tmp_path, "revenue") == []
    _until(runner, lambda: len(runner.queries) == 3)
    assert runner.started == ["paid", "clean", "revenue"]
    runner.of("paid").fail(AWAY)
    _until(runner, lambda: runner.started[-1] == "paid")
    runner.stop()
    assert runner.outcomes == []
    assert _events(tmp_path, "clean")[:2] == [("waiting", str(AWAY)), ("waiting", str(AWAY))]
    assert _events(tmp_path, "revenue")[0] == ("waiting", "it begins once clean has begun")


def test_runner_that_is_to_stop_tries_no_other_job_whose_broker_is_away(tmp_path: Path) -> None:
    """Each start waits ten seconds for a broker, and a service is killed some time after it was to stop."""
    runner = Runner(tmp_path, clean, paid, revenue)
    runner.errors = {"clean": [AWAY] * 9, "paid": [AWAY] * 9}
    runner.start(stopping=lambda: len(runner.errors["clean"]) < 9)
    assert [len(left) for left in runner.errors.values()] == [8, 9]
    runner.watch(0.2)
    assert [len(left) for left in runner.errors.values()] == [8, 9]
    runner.stop()
    assert _events(tmp_path, "paid") == [("stopped", "it had not begun")]
    assert [event for event, _ in _events(tmp_path, "revenue")] == ["waiting", "stopped"]


def test_runner_stopped_while_jobs_wait_says_what_they_waited_for(tmp_path: Path) -> None:
    runner = Runner(tmp_path, clean, revenue, restarts=Restarts(BackOff(3600, 3600)))
    runner.errors["clean"] = [AWAY]
    runner.start()
    runner.stop()
    assert runner.is_over
    assert runner.outcomes == []
    assert _events(tmp_path, "clean")[-1] == ("stopped", f"it waited to be started again: {AWAY}")
    assert _events(tmp_path, "revenue")[-1] == ("stopped", "it had not begun")


@pytest.mark.parametrize(
    "error", [SupersededError("generation 2"), FailingRowsFoundError("some rows")], ids=repr
)
def test_runner_begins_a_query_anew_at_once_where_nothing_is_wrong(tmp_path: Path, error: Exception) -> None:
    runner = Runner(tmp_path, clean, paid, restarts=None)
    runner.start()
    runner.of("clean").batches = 4
    runner.of("clean").fail(error)
    runner.watch(0)
    assert runner.started == ["clean", "paid", "clean"]
    runner.of("clean").batches = 1
    assert runner.batches == {"clean": 5, "paid": 0}
    runner.errors["clean"] = [error]
    runner.of("clean").fail(error)
    runner.watch(0)
    assert [(each.job, each.state) for each in runner.outcomes] == [("clean", "failed")], (
        "it would go on so for ever"
    )


def test_runner_job_behind_a_rebuild_waits_where_it_ran_and_is_refused_where_it_is_started(
    tmp_path: Path,
) -> None:
    runner = Runner(tmp_path, clean, revenue, restarts=Restarts(BackOff(3600, 3600)))
    runner.start()
    runner.of("revenue").fail(SourceReplacedError("other rows"))
    runner.watch(0)
    assert runner.outcomes == []
    runner.stop()
    again = Runner(tmp_path, clean, revenue)
    again.errors["revenue"] = [SourceReplacedError("other rows")]
    again.start()
    assert [(each.job, each.state) for each in again.outcomes] == [("revenue", "refused")]


def test_runner_once_runs_all_that_depend_on_nothing_that_failed(tmp_path: Path) -> None:
    runner = Runner(tmp_path, clean, revenue, paid)
    runner.errors["clean"] = [IncompatibleStateError("job 'clean': the state is another operator's")]
    runner.run_once()
    assert runner.started == ["paid"]
    assert [(each.job, each.state) for each in runner.outcomes] == [
        ("clean", "refused"),
        ("revenue", "blocked"),
    ]
    assert list(runner.queries) == ["paid"], "who asks it for its progress can"
    runner.stop()
    assert _events(tmp_path, "paid") == [("started", None), ("stopped", None)]
    assert _events(tmp_path, "clean") == [("refused", "the state is another operator's")]


def test_runner_once_that_is_stopped_begins_no_other_job(tmp_path: Path) -> None:
    runner = Runner(tmp_path, clean, revenue, paid)
    asked = iter([False, True])
    runner.run_once(stopping=lambda: next(asked))
    assert runner.started == ["clean"]
    assert runner.outcomes == []


@pytest.mark.parametrize(
    "failure", [CheckFailedError("a check does not hold"), None], ids=["failed", "ended"]
)
def test_runner_goes_on_with_the_others_where_a_query_cannot_be_stopped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failure: Exception | None
) -> None:
    """Its session with the coordinator is over, and its lease cannot be given back."""
    caplog.set_level(logging.WARNING)
    runner = Runner(tmp_path, clean, revenue, paid, restarts=None)
    runner.start()
    runner.watch(0)
    for name in ("clean", "revenue"):
        runner.of(name).stop_error = CheckFailedError("no session with the coordinator")
    runner.of("clean").error, runner.of("clean").is_active = failure, False
    runner.watch(0.05)
    assert list(runner.queries) == ["paid"]
    assert {each.job: each.state for each in runner.outcomes} == {"clean": "failed", "revenue": "blocked"}
    (why,) = [each.message for each in runner.outcomes if each.job == "clean"]
    assert ("a check does not hold" if failure else "no session with the coordinator") in why
    assert "job 'revenue' was not stopped in good order: no session with the coordinator" in caplog.text
    runner.of("paid").batches = 1
    runner.watch(0)
    runner.stop()
    assert runner.batches["paid"] == 1


def test_runner_that_is_not_to_go_on_raises_the_failure_itself(tmp_path: Path) -> None:
    error = CheckFailedError("job 'clean': the check does not hold")
    for start in (lambda runner: runner.run_once(), lambda runner: runner.start()):
        runner = Runner(tmp_path, clean, revenue, paid, goes_on=False)
        runner.errors["clean"] = [error]
        with pytest.raises(CheckFailedError) as raised:
            start(runner)
        assert raised.value is error
        assert runner.started == []


class Gone:
    """A session whose JVM has ended."""

    @property
    def version(self) -> str:
        raise ConnectionRefusedError("no JVM")


@pytest.mark.parametrize("at", ["the failure of a query", "a call of the JVM"])
def test_runner_whose_spark_is_gone_ends_at_once_and_blames_no_job(tmp_path: Path, at: str) -> None:
    runner = Runner(tmp_path, clean, paid)
    runner.start()
    context: Any = runner._context
    context.spark = Gone()

    def no_answer(*_: Any) -> None:
        raise Py4JNetworkError("Answer from Java side is empty")

    query: Any = runner.of("clean")
    if at == "a call of the JVM":
        query.failure = no_answer
    else:
        query.fail(RuntimeError("Answer from Java side is empty"))
    query.stop = no_answer
    with pytest.raises(SparkEndedError, match="Spark's process has ended"):
        runner.watch(0)
    runner.stop()
    assert runner.outcomes == []
    assert [event for event, _ in _events(tmp_path, "clean")] == ["started"]


def test_runner_that_is_stopped_tells_a_failure_from_a_fault_that_passes(tmp_path: Path) -> None:
    runner = Runner(tmp_path, clean, paid)
    runner.start()
    runner.of("clean").fail(AWAY)
    runner.of("paid").fail(CheckFailedError("job 'paid': the check does not hold"))
    runner.stop()
    assert [(each.job, each.state) for each in runner.outcomes] == [("paid", "failed")]
    assert _events(tmp_path, "clean")[-1] == ("stopped", f"it was to be started again: {AWAY}")
    assert _events(tmp_path, "paid")[-1] == ("failed", "the check does not hold")
