"""The repair of a row job, planned by facts alone: what a range names, what can be read again, in which steps."""

from dataclasses import replace
from typing import Any

import headwater as hw
from backfill_facts import (
    batches_of,
    draft,
    entry,
    history,
    offsets,
    part,
    plan_of,
    said,
    selected,
    source,
)
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.refusal import Refusal
from headwater_streams.backfill.repair.rejected import RejectedOf
from headwater_streams.backfill.repair.rows.planning import LostLookup, RowFacts, plan_rows, range_of
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.base.errors import DataLossError
from headwater_streams.plan.plan import JobPlan
from headwater_streams.runtime.lookups import LookupVersion
from walked_files import walks_far

clicks = hw.topic("clicks", schema="who STRING, at TIMESTAMP", event_time="at")
untimed = hw.topic("clicks", schema="who STRING")
bids = hw.table("silver.bids")
TWO_BATCHES = (entry(0, source(offsets(clicks=(0, 4)))), entry(1, source(offsets(clicks=(4, 10)))))
OF_TABLE = (entry(0, source(offsets(bids=(0, 4)), of="bids", table="silver.bids", until=3)),)
PINNED = PinnedInput(table="silver.bids", version=3, until=(1, 0), was_rewritten=False)


def facts(selection: Selection, of: JobPlan | None = None, **more: Any) -> RowFacts:
    """The facts of a job that has read ten records in two batches, all of which its topic holds."""
    found, known = of or part({"clicks": clicks}), more.pop("history", history(*TWO_BATCHES))
    fitting: dict[str, Any] = {"held": offsets(clicks=(0, 20)), "named": selection.offsets or {}}
    return RowFacts(
        draft=draft(found, known, selection),
        part=found,
        selection=selection,
        history=known,
        **{**fitting, **more},
    )


def planned(selection: Selection, of: JobPlan | None = None, **more: Any) -> Any:
    return plan_rows(facts(selection, of, **more), 1_000)


ALL = {"named": offsets(clicks=(0, 10))}
SOME = selected(of=offsets(clicks=(2, 6)))
OF_TIMES = selected(timestamps=(0, 5))


def test_range_of_offsets_is_cut_into_steps_of_the_batches_that_read_them() -> None:
    plan = plan_of(planned(SOME))
    assert (plan.ranges, plan.rows, plan.notes, plan.pinned) == (offsets(clicks=(2, 6)), 4, (), None)
    assert [each.ranges for chunk in plan.chunks for each in chunk.batches] == [
        offsets(clicks=(2, 4)),
        offsets(clicks=(4, 6)),
    ]
    assert batches_of(plan_of(plan_rows(facts(SOME), 2))) == [[0], [1]]


def test_without_a_range_all_that_was_read_is_meant_and_nothing_behind_it() -> None:
    assert plan_of(planned(Selection(), **ALL)).ranges == offsets(clicks=(0, 10))


def test_offsets_that_were_not_read_are_refused_with_those_that_were() -> None:
    assert said(planned(selected(of=offsets(clicks=(8, 11)))), BackfillError) == (
        "clicks 0: offsets [8, 11) are asked for, and the job 'clean' has read [0, 10)"
    )
    assert said(planned(selected(of=offsets(taps=(0, 1))))) == (
        "taps 0: offsets [0, 1) are asked for, and the job 'clean' has read none (its topics are clicks)"
    )


def test_what_was_committed_after_a_version_is_what_these_batches_read() -> None:
    assert plan_of(planned(selected(since=1))).ranges == offsets(clicks=(4, 10))


def test_range_without_records_is_refused() -> None:
    assert said(planned(OF_TIMES, named={})) == (
        "no record of clicks is in the range, so there is nothing to mend"
    )


def test_event_times_of_an_input_without_any_are_refused() -> None:
    times = selected(event_time=(0, 5))
    of_topic, of_table = part({"clicks": untimed}), part({"bids": bids})
    assert said(planned(times, of_topic)) == (
        "the topic clicks has no event_time=, so give offsets or timestamps"
    )
    assert said(planned(times, of_table, history=history(*OF_TABLE), pinned=PINNED, held={})) == (
        "the table silver.bids has no event_time=, so give offsets or timestamps"
    )


def test_range_of_event_times_says_that_what_lies_between_is_read_again() -> None:
    plan = plan_of(planned(selected(event_time=(0, 5)), named=offsets(clicks=(3, 5))))
    assert plan.ranges == offsets(clicks=(3, 5))
    assert plan.notes == (
        "what lies between the first and the last of a partition whose at is in the range is read again, too",
    )
    assert plan_of(planned(OF_TIMES, named=offsets(clicks=(3, 5)))).notes == ()


GONE = {"held": offsets(clicks=(2, 20)), "named": offsets(clicks=(2, 5))}
"""The topic does not hold the first two records any more."""


def test_times_whose_rows_were_made_of_records_that_are_gone_are_refused() -> None:
    found = planned(OF_TIMES, made_of_gone={"silver.clicks": True}, **GONE)
    assert said(found, DataLossError) == (
        "the offsets clicks 0 [0, 2) are gone from the topic, and silver.clicks has rows of the range that were made "
        "of them; what the topic still holds can be repaired by its offsets"
    )
    assert plan_of(planned(OF_TIMES, made_of_gone={"silver.clicks": False}, **GONE)).notes == ()


def test_times_that_a_table_does_not_have_are_noted_once() -> None:
    plan = plan_of(planned(OF_TIMES, made_of_gone={"silver.clicks": None, "silver.bots": None}, **GONE))
    [told] = plan.notes
    assert told == (
        "the offsets clicks 0 [0, 2) are gone from the topic; what was made of them stays as it is, also where it is "
        "of the range"
    )


def test_offsets_that_the_topic_does_not_hold_are_refused_with_where_it_begins() -> None:
    assert said(planned(SOME, held=offsets(clicks=(3, 20))), DataLossError) == (
        "clicks 0: offsets [2, 3) of the range are gone from the topic, which begins at 3; from 3 on it can be repaired"
    )
    assert said(planned(SOME, held=offsets(clicks=(6, 20)))).endswith("which begins at 6")
    assert said(planned(SOME, held={"clicks": {}})).endswith("which begins at 6"), "the partition is gone"


def test_copies_told_by_their_origin_need_all_that_their_batches_read() -> None:
    by_origin = part({"clicks": clicks}, dedup=hw.by_offset(origin=True))
    assert said(planned(SOME, by_origin, held=offsets(clicks=(1, 20)))).startswith("clicks 0: offsets [0, 1)")
    by_offset = part({"clicks": clicks}, dedup=hw.by_offset())
    assert plan_of(planned(SOME, by_offset, held=offsets(clicks=(1, 20)))).rows == 4


def rejected(span: tuple[int, int] | None, held: int, count: int) -> RejectedOf:
    return RejectedOf(topic="clicks", partition=0, span=span, held=held, rejected=count)


def test_records_in_quarantine_are_read_again_from_the_first_to_the_last() -> None:
    quarantined = selected(rows="quarantined")
    plan = plan_of(planned(quarantined, rejected=[rejected((3, 8), 2, 5)]))
    assert plan.ranges == offsets(clicks=(3, 8))
    assert plan.notes == (
        "2 records are in quarantine; what lies between the first and the last of a partition is read again, too",
        "3 more are gone from the topic, and stay in quarantine with their bytes",
    )
    assert said(planned(quarantined), NothingToRepairError) == (
        "no record of clicks is in silver.clicks__quarantine, so there is nothing to do"
    )
    assert said(planned(quarantined, rejected=[rejected(None, 0, 1)]), BackfillError) == (
        "no record of clicks in silver.clicks__quarantine can be read again (1 is there that the topic does not hold "
        "any more), so there is nothing to mend"
    )


def test_table_is_read_at_one_version_whatever_topics_hold() -> None:
    of_table, some = part({"bids": bids}), selected(of=offsets(bids=(1, 3)))
    plan = plan_of(planned(some, of_table, history=history(*OF_TABLE), pinned=PINNED, held={}))
    assert (plan.pinned, plan.ranges) == (PINNED, offsets(bids=(1, 3)))
    times = facts(OF_TIMES, of_table, history=history(*OF_TABLE), pinned=PINNED, held={})
    assert times.gone == {}


def test_records_of_a_topic_that_was_made_again_stay_as_they_are() -> None:
    old = entry(0, source(offsets(clicks=(0, 4))))
    begun = entry(-1, kind="generation", generation=2, extra={"action": "renew", "anew": ["clicks"]})
    new = entry(0, source(offsets(clicks=(0, 3))), generation=2)
    plan = plan_of(planned(Selection(), history=history(old, begun, new), **ALL))
    assert (plan.ranges, plan.since) == (offsets(clicks=(0, 3)), {"clicks": 2})
    assert plan.notes == (
        "the topic clicks was deleted and made again; what was made of the old one stays as it is",
    )


LOOKS_UP = part({"clicks": clicks}, lookups={"names": hw.lookup("dim.names")})
NOW = {"names": LookupVersion(version=7, table_id="x")}


def looked_up(version: int) -> dict[str, Any]:
    return {"lookups": {"names": {"table": "dim.names", "version": version, "id": "x"}}}


def test_look_ups_are_read_as_the_batches_read_them_or_as_they_are() -> None:
    known = history(*(replace(each, extra=looked_up(n)) for n, each in enumerate(TWO_BATCHES)))
    plan = plan_of(planned(SOME, LOOKS_UP, history=known, lookups=NOW))
    assert (plan.lookups, plan.notes, batches_of(plan)) == ({}, (), [[0], [1]])
    plan = plan_of(planned(SOME, LOOKS_UP, history=known, lookups=NOW, newest_lookups=True))
    assert (plan.lookups, batches_of(plan)) == (NOW, [[0, 1]])
    assert plan.notes == ("the look-up dim.names is read at version 7, its newest",)
    assert plan_of(planned(SOME, LOOKS_UP, lookups=NOW)).lookups == NOW, "no batch says which version it read"


def test_version_of_a_look_up_that_is_gone_is_refused_with_the_batch_that_read_it() -> None:
    lost = LostLookup(why="the look-up version 3 of dim.names cannot be read: it is gone", batch=4)
    assert said(planned(SOME, LOOKS_UP, lookups=NOW, lost=lost), BackfillError) == (
        "the look-up version 3 of dim.names cannot be read: it is gone; batch 4 read that version, so plan with the "
        "newest one (--lookups newest)"
    )


def test_range_is_known_before_the_look_ups_are() -> None:
    found = range_of(facts(SOME, LOOKS_UP))
    assert not isinstance(found, Refusal)
    assert found.pinned_lookups(LOOKS_UP, newest=False) == ["names"]


def test_decision_can_be_followed() -> None:
    assert walks_far(lambda: planned(Selection(), **ALL)) is None
