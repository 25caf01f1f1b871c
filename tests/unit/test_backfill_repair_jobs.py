"""Which jobs and parts of jobs can be repaired, decided by facts alone."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

import headwater as hw
from backfill_facts import columns, entry, history, job_facts, offsets, part, plan_of, said, selected, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.jobs import PartsBefore, feeding, refused_chain
from headwater_streams.backfill.repair.draft import draft_of
from headwater_streams.backfill.repair.jobs import refused_job
from headwater_streams.backfill.repair.rejected import reading_parts, rejecting_part
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import FurtherTable
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.operators.windows.count import CountWindow
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference

clicks = hw.topic("clicks", schema="who STRING")
taps = hw.topic("taps", schema="who STRING")
ingest = hw.table("silver.clicks__ingest", event_time="at", watermark="1 minute")
HOURLY = TumblingWindow("at", timedelta(hours=1), ("who",))
RAN = history(entry(0, source(offsets(clicks=(0, 4)))), entry(1, source(offsets(clicks=(4, 9)))))
ROWS = part({"clicks": clicks})


def windowed(operator: Any = HOURLY, **more: Any) -> JobPlan:
    """A windowed job behind its ingest table."""
    return part({"clicks": ingest}, kind="window", operator=operator, **more)


WINDOWS = windowed(result=columns("who", "window_start", "window_end"))
INGEST = part({"clicks": clicks}, name="clean__ingest", target=hw.delta("silver.clicks__ingest"))


def drafted(of: JobPlan = ROWS, selection: Selection | None = None, **more: Any) -> Any:
    asked = {name: more.pop(name) for name in ("newest_lookups", "reference") if name in more}
    facts = job_facts(of, more.pop("known", RAN), **more)
    return draft_of(facts, selection or Selection(), **asked)


def differs(what: str, remedy: Any = "rebuild") -> Difference:
    return Difference(what, "one", "another", remedy, "so it is")


def test_draft_has_what_the_job_decides() -> None:
    found = plan_of(drafted(reference="jobs.py:clean", feeds=("hourly",), topic_ids={"clicks": "A"}))
    assert (found.job, found.kind, found.target, found.input_name) == (
        "clean",
        "row",
        "silver.clicks",
        "clicks",
    )
    assert (found.base_version, found.generation, found.batch) == (2, 1, 1)
    assert (found.reference, found.feeds, found.topic_ids) == ("jobs.py:clean", ("hourly",), {"clicks": "A"})
    assert found.keys == ("_topic", "_partition", "_offset")
    assert found.columns == ("who", "_timestamp", "_origin")
    assert (found.asked, found.notes, found.chunks) == ({"all": True}, (), ())


def test_draft_of_windows_and_joins_is_known_by_their_own_columns() -> None:
    found = plan_of(drafted(WINDOWS))
    assert (found.kind, found.keys) == ("window", ("who", "window_start", "window_end"))
    assert found.columns == ("who", "window_start", "window_end", "_rows")
    keyed = windowed(target=hw.delta("silver.clicks", keys=["who"], mode="update"))
    assert plan_of(drafted(keyed)).keys == ("who",)
    pairs = IntervalJoin(("who",), "at", "paid_at", timedelta(hours=1))
    joined = part({"a": ingest, "b": ingest}, kind="join", operator=pairs, sides=("b", "a"))
    found = plan_of(drafted(joined))
    assert (found.kind, found.input_name, found.keys, found.columns) == ("join", "b", ("_sources",), ("who",))


def test_draft_names_the_other_tables_of_a_job() -> None:
    two = part(
        {"clicks": clicks},
        branches={"silver.clicks": columns("who"), "silver.bots": columns("bot")},
        tables={"good": hw.delta("silver.clicks"), "bots": hw.delta("silver.bots")},
    )
    found = plan_of(drafted(two, versions={"silver.bots": 7}))
    assert found.further == {
        "silver.bots": FurtherTable(columns=("bot", "_timestamp", "_origin"), base_version=7)
    }
    missing = job_facts(two, RAN, versions={"silver.bots": -1})
    missing = replace(missing, columns={"silver.clicks": missing.columns["silver.clicks"]})
    assert said(draft_of(missing, Selection())).startswith("there is no table silver.bots, so")


def test_job_whose_result_a_range_does_not_decide_is_refused() -> None:
    count = CountWindow("at", 3, ("who",))
    refused = {
        "applies change events to rows": part({"clicks": clicks}, kind="scd"),
        "removes duplicates by key": part({"clicks": clicks}, dedup=hw.by_key(["who"], within="1 hour")),
        r"only counts its late rows": part({"clicks": clicks}, kind="window", operator=HOURLY),
        "is a count window, and only windows of times": windowed(count),
        "reads clicks, taps; row-by-row jobs with one input": part({"clicks": clicks, "taps": taps}),
    }
    for why, of in refused.items():
        found = drafted(of)
        assert why in said(found, BackfillError)
        assert found == refused_job("clean", of)
    assert refused_job("clean", ROWS) is None
    assert refused_job("clean", WINDOWS) is None


def test_job_without_a_table_or_without_a_batch_is_refused() -> None:
    assert said(drafted(known=None)).startswith(
        "there is no table silver.clicks, so there is nothing to mend"
    )
    assert said(drafted(known=history())) == (
        "the job 'clean' has not committed anything to silver.clicks yet; run the job first"
    )


def test_version_behind_which_nothing_was_committed_is_refused() -> None:
    assert said(drafted(selection=selected(since=2))) == (
        "silver.clicks is at version 2, so nothing was committed after version 2"
    )
    assert plan_of(drafted(selection=selected(since=1))).asked == {"since_version": 1}


def test_late_rows_of_a_job_without_windows_are_refused() -> None:
    assert said(drafted(selection=selected(rows="late"))) == (
        "the job 'clean' has no windows, so no row of it is late; give another range"
    )
    assert plan_of(drafted(WINDOWS, selected(rows="late"))).asked == {"rows": "late"}


def test_columns_that_the_table_does_not_have_are_refused() -> None:
    own = job_facts(ROWS, RAN).columns["silver.clicks"]
    for types, has in (
        ({**own, "who": "int"}, "has it as int"),
        ({name: kind for name, kind in own.items() if name != "who"}, "does not have it"),
    ):
        assert said(drafted(columns={"silver.clicks": types})) == (
            f"the job 'clean' gives a column who string, and silver.clicks {has}; a new one is added when the job is "
            "started, one of another type needs another name"
        )


@pytest.mark.parametrize("what", ["kind", "operator", "target keys"])
def test_job_of_other_keys_than_its_last_run_is_refused(what: str) -> None:
    assert said(drafted(differences=[differs(what)])) == (
        f"the job 'clean' differs from its last run ({what}: one before, another now; so it is), so rows of two kinds "
        "would stand in silver.clicks; build all of them again: headwater backfill plan JOB --rebuild"
    )


def test_what_else_halts_a_job_is_noted() -> None:
    [told] = plan_of(drafted(differences=[differs("state"), differs("columns", "keep")])).notes
    assert told.startswith(
        "the repair does not change that job 'clean' cannot go on from its last run: state: one"
    )
    assert plan_of(drafted(differences=[differs("columns", "keep")])).notes == ()


def test_windows_that_nothing_tells_apart_are_refused() -> None:
    assert said(drafted(windowed(result=columns("who", "window_start")))) == (
        "silver.clicks has no column 'window_end', by which its windows are told apart; keep it in the function's "
        "result"
    )


def test_rows_before_that_other_code_made_are_refused_or_noted() -> None:
    before = PartsBefore(plans=[INGEST], differences={"silver.clicks__ingest": [differs("state")]})
    assert said(drafted(WINDOWS, before=before)) == (
        "the job 'clean' differs from its last run before its last operator (state: one before, another now; so it is)"
        ", and a backfill reads the rows that were made then; make these anew first, and what follows behind them: "
        "headwater backfill plan clean --rebuild --table silver.clicks__ingest, or build all of its tables from empty: "
        "headwater jobs rebuild clean"
    )
    kept = {"silver.clicks__ingest": [differs("state", "renew")]}
    noted = PartsBefore(plans=[INGEST], differences=kept, of_other_code={"silver.clicks__ingest"})
    [told] = plan_of(drafted(WINDOWS, before=noted)).notes
    assert told.startswith(
        "silver.clicks__ingest has rows of when the job's code, its topics' columns or its checks"
    )


def test_table_before_that_lacks_a_column_is_refused() -> None:
    before = PartsBefore(plans=[INGEST], columns={"silver.clicks__ingest": ["_offset"]})
    assert said(drafted(WINDOWS, before=before)) == (
        "silver.clicks__ingest was made without the column who, which the job 'clean' reads now; make it anew first, "
        "and what follows behind it: headwater backfill plan clean --rebuild --table silver.clicks__ingest, or build "
        "all of its tables from empty: headwater jobs rebuild clean --ingest"
    )
    assert PartsBefore(plans=[INGEST]).refusal("clean") is None, "there is no such table yet"


def test_newest_look_ups_of_a_part_before_are_refused() -> None:
    looks_up = replace(INGEST, lookups={"names": columns("who")})
    before = PartsBefore(plans=[looks_up])
    assert "has looked things up on the way to silver.clicks__ingest" in said(
        drafted(WINDOWS, before=before, newest_lookups=True)
    )
    assert plan_of(drafted(WINDOWS, before=before)).job == "clean"
    assert plan_of(drafted(newest_lookups=True)).job == "clean"


def test_chain_of_operators_is_refused() -> None:
    step = part({"clicks": ingest}, name="clean__step_1", is_step=True)
    assert said(refused_chain([step, WINDOWS])).startswith(
        "the job 'clean' is a chain of operators, and no part of"
    )
    assert refused_chain([INGEST, WINDOWS]) is None


def test_parts_that_feed_one_are_those_whose_tables_it_reads() -> None:
    other = part({"taps": taps}, name="clean__ingest_taps", target=hw.delta("silver.taps__ingest"))
    assert feeding([other, INGEST, WINDOWS], WINDOWS) == [INGEST]
    assert feeding([other, INGEST, WINDOWS], INGEST) == []


def test_rejected_records_are_of_the_one_part_that_has_some() -> None:
    other = part({"taps": taps}, name="clean__ingest_taps", target=hw.delta("silver.taps__ingest"))
    plans = [INGEST, other, WINDOWS]
    assert rejecting_part(plans, {"silver.taps__ingest"}) is other
    assert rejecting_part(plans, set()) is WINDOWS
    assert rejecting_part([ROWS], {"silver.clicks"}) is ROWS
    assert reading_parts(plans) == [INGEST, other]
    both = said(rejecting_part(plans, {"silver.clicks__ingest", "silver.taps__ingest"}))
    assert both == (
        "records of clicks, taps are in quarantine, and only one input's are read again at a time; make "
        "silver.clicks__ingest and silver.taps__ingest anew, and what follows behind: headwater backfill plan clean "
        "--rebuild --table silver.clicks__ingest, or all of the job's tables from empty: headwater jobs rebuild clean "
        "--ingest"
    )


def test_rejected_records_of_a_part_that_looks_things_up_for_a_window_are_refused() -> None:
    enriched = part(
        {"clicks": clicks},
        name="clean__ingest_enriched",
        target=hw.delta("silver.enriched"),
        unites_for=HOURLY,
    )
    assert "was made of them with what is looked up, of which no part is made again" in said(
        rejecting_part([enriched, WINDOWS], {"silver.enriched"})
    )


def test_dimension_is_refused_whatever_its_table_is() -> None:
    dimension = part({"clicks": clicks}, kind="scd")
    assert "headwater backfill plan JOB --rewind VERSION" in said(drafted(dimension, known=None))
