"""Checks in backfills: the verdict is by the same checks, and what they came to stands in `quality.results`, once."""

from typing import Any

import pytest

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.quality.results import history
from headwater_streams.testing import JobDriver

visits = hw.topic(
    "visits", schema="page STRING, user STRING, at TIMESTAMP", event_time="at", watermark="1 hour"
)


def job_of(*, keeps: bool = True) -> Job:
    @hw.job(name="clean", target=hw.delta("silver.visits"), dedup=hw.by_offset())
    @hw.check("has_page", "page IS NOT NULL", at_most="10 %" if keeps else None)
    @hw.check("no_robots", "user <> 'robot'", action="warn")
    @hw.check("one_in_batch", hw.expect.unique("user"), action="fail")
    @hw.check("one_visit", hw.expect.unique("page", "user", within="table"), action="warn")
    @hw.check("fresh", hw.expect.fresh("at", "1 hour"), action="fail" if not keeps else "warn")
    @hw.check("usual", hw.expect.volume(last=2), action="warn")
    def clean(visits: Any) -> Any:
        return visits if keeps else visits.filter("user <> 'robot'")

    return bind(clean)


def visit(page: str | None, user: str, minute: int) -> dict[str, object]:
    return {"page": page, "user": user, "at": f"2013-01-01T10:{minute:02d}:00Z"}


def filled(spark: Any, tmp_path: Any) -> JobDriver:
    driver = JobDriver(spark, tmp_path, [job_of()])
    for batch in range(3):
        driver.send("visits", visit(f"p{batch}", "ann", batch), visit("same", f"u{batch}", batch))
        driver.run()
    return driver


def results(driver: JobDriver, kind: str) -> dict[str, tuple[Any, ...]]:
    rows = [row for row in history(driver.home).to_pylist() if row["kind"] == kind]
    return {row["check"]: (row["outcome"], row["judged"], row["failed"]) for row in rows}


@pytest.mark.story
def test_verdict_of_a_repair_is_by_the_jobs_checks_and_its_results_are_kept_once(
    spark: Any, tmp_path: Any
) -> None:
    driver = JobDriver(spark, tmp_path, [job_of()])
    driver.send("visits", visit("a", "ann", 1), visit("b", "robot", 2))
    driver.run()
    driver.send("visits", visit("a", "bob", 3), visit("c", "eve", 4))
    driver.run()
    driver.send("visits", visit("a", "ann", 5))
    driver.run()
    assert results(driver, "batch")["one_visit"] == ("broken", 1, 1)  # the newest of three
    batches = history(driver.home).num_rows
    context, job = driver.context, job_of(keeps=False)
    planned = backfill.plan(context, job, offsets={"visits": {0: (0, 4)}})
    backfill.run(context, planned.id, job)
    verdict = backfill.verify(context, planned.id, job)
    assert verdict.passed, verdict.findings
    # "ann" on "a" stands in the table beside the range; one user in two batches is no fault of a batch.
    assert {each.check: (each.outcome, each.judged, each.failed) for each in verdict.checks} == {
        "has_page": ("held", 4, 0),
        "no_robots": ("held", 3, 0),
        "one_visit": ("broken", 3, 1),
    }
    assert history(driver.home).num_rows == batches
    for _ in range(2):
        swapped = backfill.swap(context, planned.id)
    assert results(driver, "backfill")["one_visit"] == ("broken", 3, 1)
    (row,) = history(driver.home, check="one_visit", kind="backfill").to_pylist()
    assert (row["version"], row["job"]) == (swapped["version"], "clean")
    driver.send("visits", visit("z", "zoe", 6))
    driver.run()
    assert history(driver.home).num_rows == batches + 3 + 6
    assert driver.audit() == []


def test_repair_says_how_many_rows_its_checks_left_out_in_all_of_its_chunks(
    spark: Any, tmp_path: Any
) -> None:
    def job_with(code: str) -> Job:
        @hw.job(name="clean", target=hw.delta("silver.visits"), dedup=hw.by_offset())
        @hw.check("no_robots", "user <> 'robot'", action="drop")
        @hw.check("has_page", "page IS NOT NULL", on="input", action="warn")
        def clean(visits: Any) -> Any:
            return visits.selectExpr("page", "user", "at", f"'{code}' AS code")

        return bind(clean)

    driver = JobDriver(spark, tmp_path, [job_with("old")])
    for batch in range(3):
        driver.send("visits", visit("a", "robot", batch), visit(None, "ann", batch), visit("b", "bob", batch))
        driver.run()
    context, job = driver.context, job_with("new")
    planned = backfill.plan(context, job, offsets={"visits": {0: (0, 9)}}, rows_per_chunk=1)
    assert len(planned.chunks) == 3
    backfill.run(context, planned.id, job)
    assert backfill.verify(context, planned.id, job).passed
    backfill.swap(context, planned.id)
    assert results(driver, "backfill") == {"no_robots": ("within", 9, 3), "has_page": ("broken", 9, 3)}


def test_verdict_of_a_repair_fails_by_a_check_that_stops_a_job(spark: Any, tmp_path: Any) -> None:
    @hw.job(name="clean", target=hw.delta("silver.visits"), dedup=hw.by_offset())
    @hw.check("one_visit", hw.expect.unique("page", within="table"))
    def clean(visits: Any) -> Any:
        return visits

    driver, job = filled(spark, tmp_path), bind(clean)
    planned = backfill.plan(driver.context, job, offsets={"visits": {0: (0, 2)}})
    backfill.run(driver.context, planned.id, job)
    verdict = backfill.verify(driver.context, planned.id, job)
    (finding,) = [each for each in verdict.findings if each.name == "checks"]
    assert not verdict.passed
    assert "1 of 2 rows with a key twice, or in the table already" in finding.detail


def test_rebuild_is_not_judged_by_the_clock_and_its_results_are_those_of_all_batches(
    spark: Any, tmp_path: Any
) -> None:
    driver, job = filled(spark, tmp_path), job_of(keeps=False)  # its freshness would stop it
    batches = history(driver.home).num_rows
    planned = backfill.plan_rebuild(driver.context, job)
    backfill.run(driver.context, planned.id, job)
    assert history(driver.home).num_rows == batches
    verdict = backfill.verify(driver.context, planned.id, job)
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id)
    found = results(driver, "backfill")
    assert found["has_page"] == ("held", 6, 0)
    assert found["no_robots"] == ("held", 6, 0)
    assert not {"fresh", "usual"} & found.keys()
    assert history(driver.home).num_rows == batches + len(found)
