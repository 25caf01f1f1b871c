"""The repair of sessions, planned by facts alone: first the times in which they begin, then the steps."""

from datetime import timedelta
from typing import Any

import headwater as hw
from backfill_facts import columns, draft, entry, history, offsets, part, plan_of, said, selected, source
from headwater_streams.backfill import BackfillError
from headwater_streams.backfill.repair.selection import Selection
from headwater_streams.backfill.repair.windows.sessions.chains import Chain
from headwater_streams.backfill.repair.windows.sessions.planning import (
    Begun,
    SessionFacts,
    Times,
    TouchedFacts,
    chunks_of,
    plan_sessions,
    times_of,
    unread_offsets,
    without_bounds,
)
from headwater_streams.backfill.store import NothingToRepairError
from headwater_streams.backfill.values import Span
from headwater_streams.ledger.log import Commit
from headwater_streams.operators.windows.session import SessionWindow
from walked_files import walks_far

ingest = hw.table("silver.ingest", event_time="at", watermark="30 minutes")
SESSIONS = SessionWindow("at", timedelta(minutes=10), ("who",))


def sessions(*names: str, target: Any = None) -> Any:
    own = columns(*(names or ("who", "window_start", "window_end")))
    return part({"clicks": ingest}, kind="window", operator=SESSIONS, result=own, target=target)


RAN = history(
    entry(
        0,
        source(offsets(clicks=(0, 9)), table="silver.ingest", until=1),
        kind="window",
        extra={"watermark_ms": 5},
    )
)
READ = history(entry(0, source(offsets(clicks=(0, 9))), job="ingest"), name="silver.ingest", job=None)
REWRITTEN = history(entry(0, source(offsets(clicks=(0, 9))), job="ingest"), name="silver.ingest", job=None)
REWRITTEN.commits = [*REWRITTEN.commits, Commit(2, 0, "WRITE", 1, 1, True, None, ("x",), 1)]
SOME = selected(of=offsets(clicks=(2, 4)))
OF_TIMES = selected(event_time=(10, 20))


def chain(begins: Span, **more: Any) -> Chain:
    return Chain(begins, more.pop("end", begins[1]), 0, **{"is_open": False, "is_written": True, **more})


def touched(selection: Selection = SOME, **more: Any) -> TouchedFacts:
    return TouchedFacts(
        draft=draft(sessions(), RAN, selection), selection=selection, **{"read": READ, **more}
    )


def times(selection: Selection = SOME, **more: Any) -> Any:
    found = times_of(touched(selection, **more))
    return (found.spans, found.apart) if isinstance(found, Times) else found


def test_sessions_that_hold_rows_of_the_range_are_folded_again_with_their_chains() -> None:
    assert times(touched=[(30, 31), (10, 12)]) == ([(10, 12), (30, 31)], [])
    chains = [chain((8, 11)), chain((40, 50))]
    assert times(touched=[(30, 31), (10, 12)], chains=chains) == ([(8, 12), (30, 31)], [])


def test_range_of_times_is_one_stretch_over_all_that_it_touches() -> None:
    assert times(OF_TIMES, touched=[(5, 6), (18, 19)]) == ([(5, 20)], [])
    assert said(times(OF_TIMES)) == "no row of silver.ingest is in the range, so there is nothing to mend"
    assert times(Selection(), touched=[(5, 6), (18, 19)]) == ([(5, 19)], [])
    assert said(times(Selection())).startswith("no row of silver.ingest")


def test_late_rows_bring_sessions_that_were_written_apart() -> None:
    late = selected(rows="late")
    apart = chain((30, 35), is_apart=True)
    still_open = chain((40, 45), is_apart=True, is_open=True)
    assert times(late, touched=[(10, 11)], chains=[apart, still_open]) == ([(10, 11), (30, 35)], [])
    assert times(late, chains=[apart]) == ([(30, 35)], [])
    assert said(times(late, chains=[still_open]), NothingToRepairError) == (
        "no late row of silver.clicks waits to be folded in, so there is nothing to do"
    )


def test_rejected_rows_that_are_none_are_refused() -> None:
    rejected = selected(rows="quarantined")
    assert said(times(rejected, touched=[(10, 11)]), NothingToRepairError).endswith(
        "so there is nothing to do"
    )
    assert times(rejected, touched=[(10, 11)], rejected=2) == ([(10, 11)], [])


def test_sessions_that_are_open_and_written_or_late_are_left_out_with_their_chains() -> None:
    half = chain((10, 15), is_open=True)
    assert times(touched=[(12, 13), (30, 31)], chains=[half]) == ([(30, 31)], [(10, 15)])
    unwritten = chain((10, 15), is_open=True, is_written=False)
    assert times(touched=[(12, 13)], chains=[unwritten]) == ([(10, 15)], [])
    late = times(touched=[(12, 13), (30, 31)], chains=[unwritten], late_and_open=[(11, 12)])
    assert late == ([(30, 31)], [(10, 15)])


def test_offsets_that_were_not_read_are_refused() -> None:
    assert said(unread_offsets(selected(of=offsets(clicks=(8, 11))), READ, "clean")).endswith(
        "has read [0, 9)"
    )
    assert unread_offsets(SOME, READ, "clean") is None
    assert unread_offsets(Selection(), READ, "clean") is None


def test_target_that_does_not_tell_sessions_apart_is_refused() -> None:
    assert without_bounds(sessions()) is None
    assert "'window_end', by which its windows are told apart" in said(
        without_bounds(sessions("who", "window_start"))
    )
    keyed = sessions("who", "window_start", target=hw.delta("silver.clicks", keys=["who"]))
    assert said(without_bounds(keyed)) == (
        "silver.clicks has no column 'window_end', by which sessions are told apart; keep it in the function's result"
    )


def planned(selection: Selection = SOME, **more: Any) -> Any:
    found: dict[str, Any] = {"spans": [(10, 20)], "apart": [], "closed": 2, "read": READ, **more}
    spans, apart, read = found.pop("spans"), found.pop("apart"), found.pop("read")
    return plan_sessions(
        SessionFacts(
            touched=touched(selection, read=read), times=Times(spans=spans, apart=apart), history=RAN, **found
        )
    )


def test_plan_has_the_times_the_steps_and_the_failing_rows() -> None:
    chunks = chunks_of([Begun(10, 12, 15, 4)], [(10, 20)], 100)
    failing = {("clicks", 0, 3): "division by zero"}
    plan = plan_of(planned(chunks=chunks, ranges=offsets(clicks=(2, 6)), failing=failing))
    assert (plan.windows, plan.rows, plan.ranges) == (((10, 20),), 4, offsets(clicks=(2, 6)))
    assert (plan.closed_until_us, plan.failing, plan.notes) == (5_000, failing, ())
    assert plan.pinned is not None
    assert plan.pinned.table == "silver.ingest"


def test_sessions_of_which_none_is_closed_are_refused() -> None:
    assert said(planned(closed=0), BackfillError) == (
        "the sessions of the range are not all closed yet, so they are not in silver.clicks; the job 'clean' writes "
        "them itself once they are, of all rows that it reads"
    )
    assert said(planned(closed=0, spans=[], apart=[(10, 20)])) == (
        "of sessions that have to be replaced with those of the range some are not closed yet, so all are left as they "
        "are; plan again once the watermark has passed them"
    )


def test_sessions_whose_code_gave_them_other_bounds_are_refused_unless_rows_were_rewritten() -> None:
    assert said(planned(are_named_otherwise=True)).startswith(
        "sessions of silver.clicks begin at times at which silver.ingest has no row, so the code of then gave them"
    )
    assert plan_of(planned(are_named_otherwise=True, read=REWRITTEN)).windows == ((10, 20),)


def test_range_of_times_that_was_widened_is_told_with_the_first_times() -> None:
    assert plan_of(planned(OF_TIMES)).notes == ()
    [told] = plan_of(planned(OF_TIMES, spans=[(9, 20)])).notes
    assert told == (
        "the range was widened to whole sessions: those that begin in [1970-01-01T00:00:00.000009Z, "
        "1970-01-01T00:00:00.000020Z)"
    )
    [told] = plan_of(planned(OF_TIMES, spans=[(n, n + 1) for n in range(0, 50, 10)])).notes
    assert told.endswith(" and 2 more such times")


def test_sessions_that_are_open_or_left_as_they_are_are_noted() -> None:
    for count, told in ((1, "1 session of the range is"), (2, "2 sessions of the range are")):
        assert plan_of(planned(still_open=count)).notes == (
            f"{told} not closed yet and left out: the live job writes each once it is, of what it has read",
        )
    [told] = plan_of(planned(apart=[(30, 40), (50, 60)])).notes
    assert told == (
        "sessions that begin in 2 stretches of the range, the first at 1970-01-01T00:00:00.000030Z, are left as they "
        "are: of one of them rows are written or late and it is not closed yet; plan again once it is"
    )


def test_steps_tile_the_times_and_read_what_reaches_into_them() -> None:
    begun = [Begun(2, 4, 11, 3), Begun(10, 12, 15, 4), Begun(16, 18, 25, 5)]
    assert [(c.rows, c.span, c.moments) for c in chunks_of(begun, [(10, 20)], 4)] == [
        (4, (10, 16), (2, 16)),
        (5, (16, 20), (16, 25)),
    ]
    [one] = chunks_of(begun, [(10, 20)], 100)
    assert (one.rows, one.span, one.moments) == (9, (10, 20), (2, 25))
    assert chunks_of(begun, [], 4) == ()


def test_decision_can_be_followed() -> None:
    assert walks_far(lambda: (times(Selection(), touched=[(5, 6)]), planned(Selection()))) is None
