"""The repair of a join, planned by facts alone: which rows of its sides a range names, and which are done with."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import headwater as hw
from backfill_facts import draft, entry, history, offsets, part, plan_of, said, selected, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.repair.joins.planning import (
    JoinFacts,
    Sides,
    in_range,
    plan_join,
    sides_named,
)
from headwater_streams.backfill.repair.joins.times import of_other_times, reach_us, settled_before_us
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.spec import PinnedInput
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.base.ledger_entry import NO_WATERMARK_MS
from headwater_streams.operators.joins.as_of import AsOf
from headwater_streams.operators.joins.interval import IntervalJoin
from headwater_streams.plan.plan import JobPlan
from walked_files import walks_far

orders = hw.table("silver.orders", event_time="at", watermark="30 minutes")
payments = hw.table("silver.payments", event_time="at", watermark="30 minutes")
untimed = hw.table("silver.payments")
HOUR_US = 3_600_000_000
PAIRS = IntervalJoin(("who",), "at", "paid_at", timedelta(hours=1))
ALL_RIGHTS = replace(PAIRS, how="right")
RAN = history(entry(0, source(offsets(orders=(0, 9), payments=(0, 5))), kind="join"))
READ = Sides(lefts=offsets(orders=(0, 9)), rights=offsets(payments=(0, 5)))
PINNED, PARTNER = (
    PinnedInput(table=f"silver.{name}", version=3, until=(1, 0), was_rewritten=False)
    for name in ("orders", "payments")
)


def joined(operator: Any = PAIRS, right: Any = payments, **more: Any) -> JobPlan:
    inputs = {"orders": orders, "payments": right}
    return part(inputs, kind="join", operator=operator, sides=("orders", "payments"), **more)


def planned(
    selection: Selection, of: JobPlan | None = None, *, size: int = 100, read: Sides = READ, **more: Any
) -> Any:
    found = of or joined()
    facts = JoinFacts(
        draft=draft(found, RAN, selection, pinned=PINNED, partner=PARTNER),
        part=found,
        selection=selection,
        read=read,
        **more,
    )
    return plan_join(facts, size)


SOME = selected(of=offsets(orders=(2, 6)))
NAMED = Sides(lefts=offsets(orders=(2, 6)))


def test_left_rows_of_the_range_that_are_done_with_are_joined_again() -> None:
    plan = plan_of(planned(SOME, named=NAMED, settled=offsets(orders=(2, 6))))
    assert (plan.ranges, plan.rows, plan.notes) == (offsets(orders=(2, 6)), 4, ())
    assert (plan.pinned, plan.partner, plan.partner_name) == (PINNED, PARTNER, "")
    assert [(chunk.rows, chunk.lefts, chunk.rights) for chunk in plan.chunks] == [
        (4, offsets(orders=(2, 6)), {})
    ]


def test_left_rows_that_may_get_partners_are_left_to_the_live_job() -> None:
    assert plan_of(planned(SOME, named=NAMED, settled=offsets(orders=(2, 5)))).notes == (
        "1 row of silver.orders at the range's end is left out: the job 'clean' is not done with them",
    )
    assert plan_of(planned(SOME, named=NAMED, settled=offsets(orders=(2, 4)))).notes == (
        "2 rows of silver.orders at the range's end are left out: the job 'clean' is not done with them",
    )
    assert said(planned(SOME, named=NAMED), BackfillError) == (
        "the rows of silver.orders in the range may still get partners, so the job 'clean' is not done with them; plan "
        "again once its watermark has passed them"
    )


def test_right_row_in_quarantine_for_a_pair_needs_all_left_rows_that_may_be_its_partners() -> None:
    settled = offsets(orders=(2, 6))
    rights = frozenset({("payments", 0, 4), ("payments", 0, 3)})
    assert said(planned(SOME, named=NAMED, settled=settled, partly_covered=rights), BackfillError) == (
        "payments 0 offset 3 is in silver.clicks__quarantine for a pair, and of the left rows that may be its partners "
        "some are not in the range, so it cannot be judged; repair a longer range, or all"
    )


def test_range_without_rows_that_were_read_is_refused() -> None:
    times = selected(timestamps=(0, 5))
    assert said(planned(times, named=Sides())) == (
        "no row of silver.orders is in the range, so there is nothing to mend"
    )
    beyond = Sides(lefts=offsets(orders=(9, 12)))
    assert said(planned(times, named=beyond)).startswith("no row of silver.orders is in the range")


def test_offsets_of_a_range_are_told_apart_by_side_and_must_have_been_read() -> None:
    both = selected(of=offsets(orders=(2, 6), payments=(0, 2), taps=(0, 1)))
    sides, neither = sides_named(both, READ)
    assert sides == Sides(lefts=offsets(orders=(2, 6)), rights=offsets(payments=(0, 2)))
    assert neither == offsets(taps=(0, 1))
    assert said(planned(both, named=sides)) == (
        "taps 0: offsets [0, 1) are asked for, and the job 'clean' has read none (its topics are orders)"
    )
    beyond = selected(of=offsets(orders=(8, 11)))
    assert said(planned(beyond, named=NAMED)).endswith("the job 'clean' has read [0, 9)")
    right = selected(of=offsets(payments=(0, 2)))
    assert plan_of(planned(right, named=NAMED, settled=offsets(orders=(2, 6)))).rows == 4


def test_late_and_rejected_rows_that_are_none_are_refused() -> None:
    assert said(planned(selected(rows="late"), named=Sides()), NothingToRepairError) == (
        "no row of the job 'clean' came late for a partner, so there is nothing to do"
    )
    rejected = selected(rows="quarantined")
    assert said(planned(rejected, named=Sides()), NothingToRepairError) == (
        "no row that the job 'clean' has read is in silver.clicks__quarantine, so there is nothing to do"
    )
    right_alone = Sides(rights=offsets(payments=(0, 1)))
    assert said(planned(rejected, named=right_alone)).startswith("no row of silver.orders is in the range")


def test_event_times_of_a_side_without_any_are_refused() -> None:
    times = selected(event_time=(0, 5))
    found = joined(ALL_RIGHTS, untimed)
    assert said(planned(times, found, named=NAMED)) == (
        "the table silver.payments has no event_time=, so give offsets or timestamps"
    )
    inner = joined(PAIRS, untimed)
    assert plan_of(planned(times, inner, named=NAMED, settled=offsets(orders=(2, 6)))).rows == 4


def test_right_rows_alone_come_along_where_the_join_keeps_them() -> None:
    named, keeping = Sides(lefts=offsets(orders=(2, 6)), rights=offsets(payments=(1, 7))), joined(ALL_RIGHTS)
    assert in_range(keeping, named, READ).rights == offsets(payments=(1, 5))
    assert in_range(joined(), named, READ).rights == {}
    plan = plan_of(
        planned(SOME, keeping, named=named, settled=offsets(orders=(2, 6)), rights=offsets(payments=(1, 5)))
    )
    assert plan.partner_name == "payments"
    assert (plan.ranges, plan.rows) == (offsets(orders=(2, 6), payments=(1, 5)), 8)
    alone = planned(SOME, keeping, named=named, rights=offsets(payments=(1, 5)))
    assert plan_of(alone).chunks[0].rights == offsets(payments=(1, 5)), "left rows are all open yet"


def test_sides_of_one_topic_are_refused_where_right_rows_alone_are_kept() -> None:
    same = Sides(lefts=offsets(orders=(0, 9)), rights=offsets(orders=(0, 9)))
    assert said(planned(SOME, joined(ALL_RIGHTS), read=same, named=NAMED)).startswith(
        "both sides of the join come from orders, so which rows of 'clean' are of right rows alone cannot be told"
    )
    assert plan_of(planned(SOME, read=same, named=NAMED, settled=offsets(orders=(2, 6)))).rows == 4


def test_steps_are_stretches_of_all_partitions_at_once() -> None:
    lefts = {"orders": {0: (0, 8), 1: (10, 14)}}
    read, named = Sides(lefts=lefts), Sides(lefts=lefts)
    plan = plan_of(planned(selected(timestamps=(0, 1)), read=read, named=named, settled=lefts, size=6))
    assert [(chunk.rows, chunk.lefts) for chunk in plan.chunks] == [
        (6, {"orders": {0: (0, 4), 1: (10, 12)}}),
        (6, {"orders": {0: (4, 8), 1: (12, 14)}}),
    ]
    few = plan_of(planned(SOME, named=NAMED, settled=offsets(orders=(2, 3)), size=100))
    assert [chunk.number for chunk in few.chunks] == [0]


def test_join_by_another_time_is_refused() -> None:
    assert of_other_times(joined()) is None
    assert said(of_other_times(joined(foreign_time="'noon'"))).startswith(
        "the job 'clean' joins by 'noon', which is no event time of an input, and the watermark says of these alone"
    )


def test_rows_are_settled_where_the_watermark_leaves_no_partner_to_come() -> None:
    batches = [
        entry(n, kind="join", extra={"watermark_ms": mark}) for n, mark in enumerate([9_000_000, 7_200_000])
    ]
    assert settled_before_us(joined(), batches) == 9_000_000_000 - 1_000 - HOUR_US
    nearest = AsOf((("who", "who"),), "at", "at", "nearest", timedelta(hours=1), "left")
    answered = [entry(0, kind="as_of", extra={"watermark_us": 3 * HOUR_US})]
    assert settled_before_us(joined(nearest), answered) == 2 * HOUR_US + 1
    assert settled_before_us(joined(replace(nearest, direction="backward")), answered) == 3 * HOUR_US + 1
    assert settled_before_us(joined(nearest), [entry(0, kind="as_of")]) == NO_WATERMARK_MS * 1_000


def test_left_rows_are_as_near_to_right_ones_as_the_join_looks() -> None:
    assert reach_us(PAIRS) == (HOUR_US, 0)
    nearest = AsOf((("who", "who"),), "at", "at", "nearest", timedelta(hours=1), "left")
    assert reach_us(nearest) == (HOUR_US, HOUR_US)
    assert reach_us(replace(nearest, direction="backward")) == (0, HOUR_US)
    assert reach_us(replace(nearest, direction="forward")) == (HOUR_US, 0)
    any_distance, _ = reach_us(replace(nearest, tolerance=None))
    assert any_distance > 9_000 * 366 * 24 * HOUR_US


def test_decision_can_be_followed() -> None:
    assert walks_far(lambda: planned(SOME, named=NAMED, settled=offsets(orders=(2, 6)))) is None
