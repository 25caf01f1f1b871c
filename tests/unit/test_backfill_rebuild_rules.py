"""A rebuild, planned by facts alone: which part of a job, of what, and whether all can be read again."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import headwater as hw
from backfill_facts import columns, entry, history, offsets, part, said, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.history import TableHistory
from headwater_streams.backfill.jobs import PartsBefore
from headwater_streams.backfill.rebuild.rules import RebuildFacts, part_that_makes, rebuild_of
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.whole_planning import WholeFacts
from headwater_streams.base.errors import DataLossError
from headwater_streams.delta.scd_target import IS_CURRENT, VALID_FROM, VALID_TO
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.compatibility import Difference
from walked_files import walks_far

clicks = hw.topic("clicks", schema="who STRING")
HOURLY = TumblingWindow("at", timedelta(hours=1), ("who",))
BOUNDS = columns("who", "window_start", "window_end")


def table(name: str) -> Any:
    return hw.table(name, event_time="at", watermark="1 minute")


ROWS = part({"clicks": clicks})
INGEST = part({"clicks": clicks}, name="clean__ingest", target=hw.delta("silver.ingest"))
STEP = part(
    {"clicks": table("silver.ingest")},
    name="clean__step_1",
    kind="window",
    operator=HOURLY,
    result=BOUNDS,
    target=hw.delta("silver.step"),
    is_step=True,
)
LAST = part({"clicks": table("silver.step")}, kind="window", operator=HOURLY, result=BOUNDS)
CHAIN = [INGEST, STEP, LAST]
RAN = history(entry(0, source(offsets(clicks=(3, 7)))), entry(1, source(offsets(clicks=(7, 9))), read=5))


def rebuilt(of: JobPlan = ROWS, known: TableHistory | None = RAN, **more: Any) -> Any:
    whole = (
        None
        if known is None
        else WholeFacts(part=of, history=known, generation=4, feeds=("next",), reference="r")
    )
    fitting: dict[str, Any] = {"job": "clean", "parts": [of], "part": of, "held": offsets(clicks=(3, 20))}
    return rebuild_of(RebuildFacts(**{**fitting, "whole": whole, **more}))


def test_plan_has_the_job_its_tables_and_how_many_rows_it_had_read() -> None:
    plan = rebuilt(topic_ids={"clicks": "A"}, behind=("one",))
    assert isinstance(plan, RebuildPlan)
    assert (plan.job, plan.target, plan.rows, plan.topic_ids) == (
        "clean",
        "silver.clicks",
        9,
        {"clicks": "A"},
    )
    assert (plan.base_generation, plan.generation, plan.base_version) == (4, 5, 2)
    assert (plan.feeds, plan.behind, plan.notes, plan.reference) == (("next",), ("one",), (), "r")
    assert (plan.keys, plan.columns) == (("_topic", "_partition", "_offset"), ("who",))
    assert plan.sides == ("silver.clicks__quarantine",)


def test_plan_of_windows_is_known_by_their_bounds_and_has_a_late_table() -> None:
    plan = rebuilt(LAST)
    assert plan.keys == ("who", "window_start", "window_end")
    assert plan.sides == ("silver.clicks__quarantine", "silver.clicks__late")
    keyed = part({"c": table("t.t")}, kind="window", operator=HOURLY, target=hw.delta("a.b", keys=["who"]))
    assert rebuilt(keyed).keys == ("who",)
    unnamed = part({"c": table("t.t")}, kind="window", operator=replace(HOURLY, by=()))
    assert rebuilt(unnamed).keys == ("_sources",)


def test_plan_of_a_dimension_with_history_is_known_by_its_keys_and_when_they_held() -> None:
    people = hw.scd2("dim.people", keys=["who"], sequence_by="at")
    dimension = part({"clicks": clicks}, kind="scd", target=people, result=columns("who", "at"))
    plan = rebuilt(dimension)
    assert plan.keys == ("who", VALID_FROM)
    assert set(plan.columns) == {"who", VALID_FROM, VALID_TO, IS_CURRENT}, "its time is when it began to hold"
    assert plan.further == (people.changes_table,)
    latest = part(
        {"clicks": clicks}, kind="scd", target=hw.scd1("dim.people", keys=["who"], sequence_by="at")
    )
    assert rebuilt(latest).keys == ("who",)


def test_part_is_that_which_makes_the_table_and_the_last_by_default() -> None:
    assert part_that_makes(CHAIN, "clean", None) is LAST
    assert part_that_makes(CHAIN, "clean", "silver.step") is STEP
    assert said(part_that_makes(CHAIN, "clean", "silver.stop")).startswith(
        "silver.stop is no table that a rebuild of 'clean' makes; it has "
    )


def test_what_follows_a_part_is_told_in_its_order() -> None:
    [told] = rebuilt(INGEST, parts=CHAIN).notes
    assert told == (
        "once this has run, plan what the job makes of it, with --behind for each rebuild before that, and swap all in "
        "in this order: headwater backfill plan clean --rebuild --table silver.step, then headwater backfill plan "
        "clean --rebuild"
    )
    [told] = rebuilt(STEP, parts=CHAIN).notes
    assert told.endswith("in this order: headwater backfill plan clean --rebuild")
    assert rebuilt(LAST, parts=CHAIN).notes == ()


def test_part_between_that_was_left_as_it_was_is_refused() -> None:
    assert said(rebuilt(LAST, parts=CHAIN, aside={"silver.ingest"}), BackfillError) == (
        "silver.step was made of rows that another rebuild has made anew; make it anew first: headwater backfill plan "
        "clean --rebuild --table silver.step --behind ID"
    )
    assert isinstance(rebuilt(LAST, parts=CHAIN, aside={"silver.ingest", "silver.step"}), RebuildPlan)


def test_rebuild_that_was_planned_with_other_code_is_refused() -> None:
    codes = {"clean__step_1": STEP.job.fingerprint}
    assert isinstance(rebuilt(LAST, parts=CHAIN, codes=codes), RebuildPlan)
    assert said(rebuilt(LAST, parts=CHAIN, codes={"clean__step_1": "other"})) == (
        "the rebuild of silver.step was planned with other code than that of now; plan it again"
    )


def test_parts_that_are_kept_are_refused_or_noted_as_in_a_repair() -> None:
    differs = Difference("state", "one", "another", "rebuild", "so it is")
    kept = PartsBefore(plans=[STEP], differences={"silver.step": [differs]})
    assert "make these anew first" in said(rebuilt(LAST, parts=CHAIN, kept=kept))
    [told] = rebuilt(LAST, parts=CHAIN, kept=PartsBefore(plans=[STEP], of_other_code={"silver.step"})).notes
    assert told.startswith("silver.step has rows of when the job's code")


def test_table_that_nothing_was_written_to_is_refused() -> None:
    assert said(rebuilt(LAST, unwritten={"silver.step"})) == (
        "the job 'clean' reads silver.step now, which nothing has been written to yet; build all of its tables from "
        "empty: headwater jobs rebuild clean"
    )


def test_job_that_has_not_run_is_refused() -> None:
    assert said(rebuilt(known=None)).startswith("there is no table silver.clicks, so")
    assert said(rebuilt(known=history())) == (
        "the job 'clean' has not committed anything to silver.clicks yet; run the job first"
    )


def test_records_that_are_gone_are_refused_with_what_is_left() -> None:
    assert said(rebuilt(held=offsets(clicks=(5, 20))), DataLossError) == (
        "the job 'clean' read clicks 0 from offset 3 on, and [3, 5) is gone; what is still there can be repaired: "
        "headwater backfill plan with --offsets"
    )
    assert "and the partition is gone; what" in said(rebuilt(held={"clicks": {}}), DataLossError)


def test_topic_that_was_made_again_is_refused() -> None:
    begun = entry(-1, kind="generation", generation=2, extra={"action": "renew", "anew": ["clicks"]})
    known = history(entry(0, source(offsets(clicks=(0, 4)))), begun)
    assert said(rebuilt(known=known), DataLossError).startswith(
        "the topic clicks was deleted and made again since the job 'clean' read it first, and what it had then is gone"
    )


def test_decision_can_be_followed() -> None:
    assert walks_far(rebuilt) is None


def test_rebuild_of_rows_that_have_expired_in_the_input_is_refused() -> None:
    day = 86_400_000_000
    refused = rebuilt(LAST, expired_us={"silver.step": 3 * day})
    assert refused.error is DataLossError
    assert "rows of silver.step before 1970-01-04T00:00:00Z have expired" in refused.sentence
    assert "--event-time 1970-01-04T00:00:00Z END" in refused.sentence
    timeless = part({"clicks": hw.table("silver.step")}, result=BOUNDS)
    assert rebuilt(timeless, expired_us={"silver.step": 3 * day}).sentence.endswith(
        "backfill plan clean --offsets"
    )
    assert isinstance(rebuilt(LAST, expired_us={"silver.step": 3 * day}, kept_us=3 * day), RebuildPlan)
    assert not isinstance(rebuilt(LAST, expired_us={"silver.step": 3 * day}, kept_us=2 * day), RebuildPlan)


def test_rebuild_says_which_partitions_it_changes() -> None:
    plan = rebuilt(partitions={"silver.clicks": ((), ("day", "who"))})
    assert plan.notes == (
        "silver.clicks is not partitioned now, and partitioned by day, who once this is swapped in",
    )
