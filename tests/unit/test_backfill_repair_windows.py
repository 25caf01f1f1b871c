"""The repair of windows of fixed times, planned by facts alone.

rows of the input, by hour        10:00    11:00    12:00    13:00
offsets of clicks                 0 .. 3   3 .. 5            5 .. 9
"""

from datetime import timedelta
from typing import Any

import headwater as hw
from backfill_facts import (
    HOUR,
    MINUTE,
    columns,
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
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.windows.fixed.planning import (
    FixedFacts,
    RowGroup,
    plan_fixed,
    without_starts,
)
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.operators.windows.fixed import FixedWindow
from headwater_streams.operators.windows.hopping import HoppingWindow
from headwater_streams.operators.windows.tumbling import TumblingWindow
from headwater_streams.plan.plan import JobPlan
from walked_files import walks_far

ingest = hw.table("silver.ingest", event_time="at", watermark="30 minutes")
HOURLY = TumblingWindow("at", timedelta(hours=1), ("who",))
HALF_HOURLY = HoppingWindow("at", timedelta(hours=1), timedelta(minutes=30), ("who",))
BOUNDS = columns("who", "window_start", "window_end")
FINAL = hw.delta("silver.clicks")
UPDATED = hw.delta("silver.clicks", keys=["who", "window_start"], mode="update")


def windowed(target: Any = FINAL, operator: FixedWindow = HOURLY) -> JobPlan:
    return part({"clicks": ingest}, kind="window", operator=operator, result=BOUNDS, target=target)


def closed_until(time_us: int) -> Any:
    """The target's commits; its windows that end by then are written."""
    read = source(offsets(clicks=(0, 9)), table="silver.ingest", until=2)
    return history(entry(0, read, kind="window", extra={"watermark_ms": time_us // 1_000}))


def read_until(time_us: int | None) -> Any:
    """The input's commits, with the greatest event time."""
    rows = entry(0, source(offsets(clicks=(0, 9))), job="ingest", max_event_time_us=time_us)
    return history(rows, name="silver.ingest", job=None)


def group(hour: int, start: int, end: int, in_range: int = 0, *, last: int | None = None) -> RowGroup:
    bounds = (hour * HOUR, hour * HOUR if last is None else last)
    return RowGroup(bounds, end - start, in_range, offsets(clicks=(start, end)))


def groups(*in_range: int) -> list[RowGroup]:
    """The rows above, of which the range names some of these hours."""
    found = [(10, 0, 3), (11, 3, 5), (13, 5, 9)]
    return [group(hour, start, end, int(hour in in_range)) for hour, start, end in found]


def planned(selection: Selection, of: JobPlan | None = None, *, size: int = 100, **more: Any) -> Any:
    known, found = more.pop("history", closed_until(20 * HOUR)), of or windowed()
    fitting: dict[str, Any] = {"read": read_until(14 * HOUR), "groups": groups()}
    facts = FixedFacts(
        draft=draft(found, known, selection),
        part=found,
        selection=selection,
        history=known,
        **{**fitting, **more},
    )
    return plan_fixed(facts, size)


def hours(*bounds: int) -> tuple[tuple[int, int], ...]:
    return tuple((start * HOUR, end * HOUR) for start, end in zip(bounds[::2], bounds[1::2], strict=True))


SOME = selected(of=offsets(clicks=(2, 4)))


def test_windows_that_hold_rows_of_the_range_are_folded_again() -> None:
    plan = plan_of(planned(SOME, groups=groups(10, 13)))
    assert plan.windows == hours(10, 11, 13, 14)
    assert (plan.rows, plan.ranges, plan.notes) == (7, offsets(clicks=(0, 9)), ())
    assert plan.pinned is not None
    assert (plan.pinned.table, plan.pinned.version, plan.pinned.until) == ("silver.ingest", 1, (1, 0))
    assert [(chunk.rows, chunk.span) for chunk in plan.chunks] == [(7, (10 * HOUR, 14 * HOUR))]


def test_steps_are_whole_windows_and_tile_the_range() -> None:
    plan = plan_of(planned(SOME, groups=groups(10, 11, 13), size=5))
    assert [(chunk.rows, chunk.span) for chunk in plan.chunks] == [
        (5, (10 * HOUR, 13 * HOUR)),
        (4, (13 * HOUR, 14 * HOUR)),
    ]
    assert [chunk.rows for chunk in plan_of(planned(SOME, groups=groups(10, 11, 13), size=1)).chunks] == [
        3,
        2,
        4,
    ]


def test_windows_of_the_target_that_the_range_names_come_along() -> None:
    plan = plan_of(planned(SOME, groups=groups(11), named={12 * HOUR}))
    assert (plan.windows, plan.rows) == (hours(11, 13), 2)
    only = plan_of(planned(SOME, named={12 * HOUR}))
    assert (only.windows, only.rows, only.ranges) == (hours(12, 13), 0, {})


def test_offsets_that_were_not_read_are_refused() -> None:
    assert said(planned(selected(of=offsets(clicks=(8, 11)))), BackfillError).endswith("has read [0, 9)")


def test_range_that_touches_no_window_is_refused() -> None:
    assert said(planned(SOME)) == "no row of silver.ingest is in the range, so there is nothing to mend"
    assert said(planned(selected(rows="late")), NothingToRepairError) == (
        "no late row of silver.clicks waits to be folded in, so there is nothing to do"
    )
    assert said(planned(selected(rows="quarantined"), groups=groups(10)), NothingToRepairError) == (
        "no row that the job 'clean' has read is in silver.clicks__quarantine, so there is nothing to do"
    )
    rejected = planned(selected(rows="quarantined"), groups=groups(10), rejected=1)
    assert plan_of(rejected).windows == hours(10, 11)


def test_range_of_times_is_aligned_outwards_and_folded_again_whether_it_has_rows_or_not() -> None:
    aligned = plan_of(planned(selected(event_time=(11 * HOUR, 13 * HOUR)), groups=groups(10, 11, 13)))
    assert (aligned.windows, aligned.rows, aligned.notes) == (hours(11, 13), 2, ())
    times = selected(event_time=(11 * HOUR + MINUTE, 12 * HOUR + MINUTE))
    plan = plan_of(planned(times, groups=groups(10, 11, 13)))
    assert (plan.windows, plan.rows) == (hours(11, 13), 2)
    assert plan.notes == (
        "the range was aligned outwards to whole windows: [1970-01-01T11:00:00Z, 1970-01-01T13:00:00Z)",
    )
    empty = plan_of(planned(selected(event_time=(2 * HOUR, 3 * HOUR))))
    assert (empty.windows, empty.rows, len(empty.chunks)) == (hours(2, 3), 0, 1)


def test_windows_that_overlap_are_those_that_begin_in_the_times_told() -> None:
    hopping = windowed(operator=HALF_HOURLY)
    rows = [group(9, 0, 3, 1, last=9 * HOUR + 30 * MINUTE), group(11, 3, 5, 1, last=11 * HOUR + 30 * MINUTE)]
    plan = plan_of(planned(selected(event_time=(10 * HOUR, 11 * HOUR)), hopping, groups=rows))
    assert plan.windows == ((9 * HOUR + 30 * MINUTE, 11 * HOUR),)
    assert (plan.rows, plan.ranges) == (3, offsets(clicks=(0, 3)))
    [told] = plan.notes
    assert told == (
        "the range was aligned outwards to whole windows: those that begin in [1970-01-01T09:30:00Z, "
        "1970-01-01T11:00:00Z)"
    )


def test_without_a_range_all_windows_of_the_input_and_of_the_target_are_meant() -> None:
    plan = plan_of(planned(Selection(), groups=groups(10, 11, 13)))
    assert (plan.windows, plan.rows) == (hours(10, 14), 9)
    wider = plan_of(planned(Selection(), groups=groups(10, 11, 13), bounds=(8 * HOUR, 9 * HOUR)))
    assert wider.windows == hours(8, 14), "the target may have windows that it should not"
    assert plan_of(planned(Selection(), groups=[], bounds=(8 * HOUR, 9 * HOUR))).windows == hours(8, 10)
    assert said(planned(Selection(), groups=[])) == (
        "silver.clicks and its input are empty, so there is nothing to mend"
    )


def test_windows_written_once_are_repaired_once_they_are_closed() -> None:
    plan = plan_of(planned(SOME, groups=groups(10, 13), history=closed_until(12 * HOUR)))
    assert (plan.windows, plan.rows) == (hours(10, 11), 3)
    [told] = plan.notes
    assert told == (
        "windows of 1 start time are left out: they are not all closed, and the live job writes each once it is; what "
        "its code of then gave stays in its state"
    )
    assert said(planned(SOME, groups=groups(13), history=closed_until(12 * HOUR))) == (
        "the windows of the range are not all closed yet, so they are not in silver.clicks; the job 'clean' writes "
        "them itself once they are, of all rows that it reads"
    )


def test_window_is_closed_where_the_watermark_is_at_its_end() -> None:
    assert plan_of(planned(SOME, groups=groups(13), history=closed_until(14 * HOUR))).rows == 4
    assert "not all closed yet" in said(
        planned(SOME, groups=groups(13), history=closed_until(14 * HOUR - MINUTE))
    )


def test_windows_written_as_rows_come_are_repaired_open_with_a_note() -> None:
    of = windowed(UPDATED)
    plan = plan_of(planned(SOME, of, groups=groups(10, 11, 13), read=read_until(12 * HOUR)))
    assert (plan.windows, plan.open) == (hours(10, 12, 13, 14), (11 * HOUR, 14 * HOUR))
    [told] = plan.notes
    assert told == (
        "windows of 2 start times are still open in the live job: when more rows of them come it writes them again "
        "from its own state, without this repair, and headwater audit has a note of it; once they are closed, repair "
        "them again: headwater backfill plan clean --event-time 1970-01-01T11:00:00Z 1970-01-01T14:00:00Z"
    )
    for read in (read_until(15 * HOUR), read_until(None)):
        plan = plan_of(planned(SOME, of, groups=groups(10), read=read))
        assert (plan.notes, plan.open) == ((), None)


def test_target_without_the_starts_of_its_windows_is_refused() -> None:
    known = closed_until(20 * HOUR)
    keyed = hw.delta("silver.clicks", keys=["who"], mode="update")
    of = part({"clicks": ingest}, kind="window", operator=HOURLY, target=keyed)
    assert said(without_starts(draft(of, known), of)) == (
        "silver.clicks has no column 'window_start', by which windows are replaced; keep it in the function's result"
    )
    assert without_starts(draft(windowed(), known), windowed()) is None


def test_decision_can_be_followed() -> None:
    assert walks_far(lambda: planned(Selection(), groups=groups(10, 11, 13))) is None
