r"""Who runs, who waits for whom, when a job is started again, and what the end is.

The jobs of most tests:

    clicks -> clean ----> hours -> days        orders -> paid
                   \--> named (looks dim up)   airports -> dim
"""

import random
from collections.abc import Callable, Iterable

import pytest

from amount import drawn_seed
from headwater_streams.runtime.restarts import BackOff, Fault, Restarts
from headwater_streams.runtime.schedule import End, Part, Schedule, Start, Stop

SOON = Restarts(BackOff(1.0, 8.0))


def _part(name: str, *reads: str, fills: bool = False) -> Part:
    return Part(
        name=name,
        job=name.partition("__")[0],
        reads={each: f"silver.{each}" for each in reads},
        fills=fills,
    )


PARTS = [
    _part("clean"),
    _part("hours__ingest", "clean"),
    _part("hours", "hours__ingest"),
    _part("days", "hours"),
    _part("dim"),
    _part("named", "clean", "dim"),
    _part("paid"),
]
NAMES = [part.name for part in PARTS]


def _live(parts: Iterable[Part] = PARTS, restarts: Restarts | None = SOON, seed: int = 1) -> Schedule:
    return Schedule([*parts], once=False, restarts=restarts, rng=random.Random(seed))


def _once(parts: Iterable[Part] = PARTS) -> Schedule:
    return Schedule([*parts], once=True, restarts=SOON)


def _begin(schedule: Schedule, now_s: float = 0.0) -> list[str]:
    """Starts whatever is to be started, and stops whatever is to be stopped; gives what was done."""
    done = []
    while (action := schedule.next(now_s)) is not None:
        if isinstance(action, Stop):
            schedule.stopped(action.name)
            done.append(f"stop {action.name}")
        else:
            schedule.started(action.name, now_s)
            done.append(f"fill {action.name}" if action.to_end else action.name)
    return done


def _states(schedule: Schedule) -> dict[str, str]:
    return {name: end.state for name, end in schedule.ends.items()}


def test_jobs_start_in_the_order_of_their_tables() -> None:
    schedule = _live()
    assert _begin(schedule) == NAMES
    assert not schedule.is_over
    assert schedule.ends == {}


def test_job_that_fails_stops_what_reads_its_tables_and_nothing_else() -> None:
    schedule = _live()
    _begin(schedule)
    assert schedule.failed("clean", Fault.STAYS, "a check", 5.0) is None
    assert _begin(schedule) == ["stop hours__ingest", "stop named", "stop hours", "stop days"]
    assert schedule.ends == {
        "clean": End("failed", "a check"),
        "hours__ingest": End("blocked", "clean, which writes silver.clean, failed"),
        "hours": End("blocked", "clean, which writes silver.clean, failed"),
        "named": End("blocked", "clean, which writes silver.clean, failed"),
        "days": End("blocked", "hours, which writes silver.hours, is blocked, as clean failed"),
    }
    assert schedule.take_blocked() == ["hours__ingest", "named", "hours", "days"]
    assert schedule.take_blocked() == []
    assert [name for name in NAMES if schedule.runs(name)] == ["dim", "paid"]
    assert not schedule.is_over


def test_part_that_fails_stops_the_other_parts_of_its_job_too() -> None:
    """Else the ingest part would read on for a job that is not there, and the command would never end."""
    schedule = _live()
    _begin(schedule)
    schedule.failed("hours", Fault.STAYS, "the function raises", 5.0)
    assert _begin(schedule) == ["stop hours__ingest", "stop days"]
    assert schedule.ends["hours__ingest"] == End("blocked", "its part hours failed")
    assert schedule.jobs["hours"] == ("hours", End("failed", "the function raises"))
    assert schedule.jobs["days"] == ("days", End("blocked", "hours, which writes silver.hours, failed"))
    assert schedule.runs("clean")


def test_job_that_is_refused_keeps_what_reads_its_tables_from_beginning() -> None:
    schedule = _live()
    assert schedule.next(0.0) == Start("clean", to_end=False)
    schedule.failed("clean", Fault.REFUSED, "the columns are others", 0.0)
    assert _begin(schedule) == ["dim", "paid"]
    assert schedule.ends["clean"] == End("refused", "the columns are others")
    assert schedule.ends["named"] == End("blocked", "clean, which writes silver.clean, was refused")


def test_fault_that_passes_stops_nobody_and_is_tried_again_with_growing_pauses() -> None:
    seed = drawn_seed()
    schedule, now_s = _live(seed=seed), 0.0
    _begin(schedule)
    for whole_s in (1, 2, 4, 8, 8, 8):
        pause_s = schedule.failed("clean", Fault.PASSES, "the broker is away", now_s)
        assert pause_s is not None
        assert whole_s / 2 <= pause_s <= whole_s, seed
        assert schedule.waiting == {"clean": "the broker is away"}
        assert schedule.next(now_s + pause_s - 0.01) is None
        assert [name for name in NAMES if schedule.runs(name)] == NAMES[1:]
        now_s += pause_s
        assert _begin(schedule, now_s) == ["clean"]
    schedule.committed("clean")
    pause_s = schedule.failed("clean", Fault.PASSES, "the broker is away", now_s)
    assert pause_s is not None
    assert pause_s <= 1, seed


def test_fault_after_a_long_quiet_time_counts_as_a_first_one() -> None:
    schedule = _live()
    _begin(schedule)
    for _ in range(3):
        assert schedule.failed("paid", Fault.UNKNOWN, "out of the blue", 10.0) is not None
        assert _begin(schedule, 20.0) == ["paid"]
    assert schedule.failed("paid", Fault.UNKNOWN, "out of the blue", 20.0 + 79.0) is None
    schedule = _live()
    _begin(schedule)
    for _ in range(3):
        assert schedule.failed("paid", Fault.UNKNOWN, "out of the blue", 10.0) is not None
        assert _begin(schedule, 20.0) == ["paid"]
    assert schedule.failed("paid", Fault.UNKNOWN, "out of the blue", 20.0 + 81.0) is not None


def test_faults_that_pass_are_no_tries_of_one_of_which_nobody_knows() -> None:
    """A broker that was away for long and starts may refuse a login at first."""
    schedule, now_s = _live(), 0.0
    _begin(schedule)
    faults = [Fault.PASSES] * 9 + [Fault.UNKNOWN, Fault.PASSES] * 3
    for fault in faults:
        assert schedule.failed("paid", fault, "why", now_s) is not None
        now_s += 20.0
        assert _begin(schedule, now_s) == ["paid"]
    assert schedule.failed("paid", Fault.UNKNOWN, "why", now_s) is None


@pytest.mark.parametrize(
    ("restarts", "fault", "tries"),
    [
        (SOON, Fault.PASSES, 50),
        (SOON, Fault.UNKNOWN, 3),
        (SOON, Fault.STAYS, 0),
        (SOON, Fault.REFUSED, 0),
        (Restarts(after="always"), Fault.STAYS, 50),
        (Restarts(after="always"), Fault.REFUSED, 0),
        (Restarts(after="never"), Fault.PASSES, 0),
        (None, Fault.PASSES, 0),
    ],
)
def test_job_is_tried_again_as_often_as_its_fault_and_the_settings_allow(
    restarts: Restarts | None, fault: Fault, tries: int
) -> None:
    schedule, now_s = _live(restarts=restarts), 0.0
    _begin(schedule)
    for _ in range(tries):
        pause_s = schedule.failed("paid", fault, "why", now_s)
        assert pause_s is not None
        now_s += pause_s
        assert _begin(schedule, now_s) == ["paid"]
    if tries < 50:
        assert schedule.failed("paid", fault, "why", now_s) is None


def test_job_that_has_to_begin_anew_does_so_at_once_and_that_is_no_failure() -> None:
    schedule = _live(restarts=None)
    _begin(schedule)
    for _ in range(5):
        assert schedule.failed("paid", Fault.AGAIN, "swapped in", 1.0) == 0
        assert _begin(schedule, 1.0) == ["paid"]
    assert schedule.ends == {}


def test_job_whose_source_has_never_begun_waits_for_it_though_others_run() -> None:
    """Its table may not be there yet, or lack the columns that its new code gives it."""
    schedule = _live()
    assert schedule.next(0.0) == Start("clean", to_end=False)
    assert schedule.failed("clean", Fault.PASSES, "away", 0.0) is not None
    assert _begin(schedule) == ["dim", "paid"]
    assert schedule.pending == {
        "hours__ingest": ("clean",),
        "hours": ("hours__ingest",),
        "days": ("hours",),
        "named": ("clean",),
    }
    assert _begin(schedule, 100.0) == ["clean", "hours__ingest", "hours", "days", "named"]


def test_new_look_up_waits_until_its_table_has_what_is_there_while_others_run() -> None:
    parts = [_part("paid"), _part("dim", fills=True), _part("named", "paid", "dim")]
    schedule = _live(parts)
    assert _begin(schedule) == ["paid", "fill dim"]
    assert schedule.is_filling
    assert schedule.pending == {"named": ("dim",)}
    schedule.ended("dim")
    assert _begin(schedule) == ["dim", "named"]
    assert not schedule.is_filling


def test_new_look_up_does_not_begin_with_an_empty_table_where_the_broker_is_away() -> None:
    parts = [_part("dim", fills=True), _part("named", "dim")]
    schedule = _live(parts)
    _begin(schedule)
    assert schedule.failed("dim", Fault.PASSES, "away", 0.0) is not None
    assert _begin(schedule, 0.0) == []
    assert _begin(schedule, 9.0) == ["fill dim"]
    schedule.ended("dim")
    assert _begin(schedule, 9.0) == ["dim", "named"]


def test_once_runs_one_after_the_other_and_what_depends_on_nothing_that_failed() -> None:
    schedule, order = _once(), []
    while isinstance(action := schedule.next(0.0), Start):
        assert action.to_end
        assert schedule.next(0.0) is None, "another one runs"
        order.append(action.name)
        schedule.started(action.name, 0.0)
        if action.name == "clean":
            assert schedule.failed("clean", Fault.PASSES, "the broker is away", 0.0) is None, (
                "not tried again"
            )
        else:
            schedule.ended(action.name)
    assert order == ["clean", "dim", "paid"]
    assert schedule.is_over
    assert _states(schedule) == {
        "clean": "failed",
        "hours__ingest": "blocked",
        "hours": "blocked",
        "days": "blocked",
        "dim": "done",
        "named": "blocked",
        "paid": "done",
    }


def test_stop_while_one_waits_for_its_retry_begins_nothing_and_says_what_it_waited_for() -> None:
    schedule = _live()
    _begin(schedule)
    schedule.failed("paid", Fault.PASSES, "the broker is away", 0.0)
    assert schedule.stop() == {"paid": "it waited to be started again: the broker is away"}
    assert _begin(schedule, 1000.0) == []
    assert schedule.ends == {"paid": End("stopped", "it waited to be started again: the broker is away")}
    assert not schedule.is_over
    for name in NAMES[:-1]:
        schedule.stopped(name)
    assert schedule.is_over
    assert set(_states(schedule).values()) == {"stopped"}


def test_fault_behind_a_stop_is_a_failure_only_where_it_would_be_one_otherwise() -> None:
    schedule = _live()
    _begin(schedule)
    schedule.stop()
    assert schedule.failed("paid", Fault.PASSES, "the broker is away", 0.0) == 0
    assert schedule.ends["paid"] == End("stopped", "it was to be started again: the broker is away")
    assert schedule.failed("dim", Fault.AGAIN, "swapped in", 0.0) == 0
    assert schedule.ends["dim"] == End("stopped")
    assert schedule.failed("clean", Fault.STAYS, "a check", 0.0) is None
    assert schedule.ends["clean"] == End("failed", "a check")
    assert schedule.ends["named"].state == "blocked"


def test_all_jobs_ended_is_the_end_of_the_command() -> None:
    schedule = _live([_part("clean"), _part("hours", "clean"), _part("paid")])
    _begin(schedule)
    schedule.failed("clean", Fault.STAYS, "a check", 0.0)
    assert not schedule.is_over
    schedule.failed("paid", Fault.REFUSED, "other code", 0.0)
    assert not schedule.is_over, "hours finishes its batch"
    assert _begin(schedule) == ["stop hours"]
    assert schedule.is_over


def _reachable(parts: list[Part], roots: set[str]) -> set[str]:
    """The jobs of the roots, and those that read one of them, by any way."""
    jobs = {part.job for part in parts if part.name in roots}
    while True:
        names = {part.name for part in parts if part.job in jobs}
        more = {part.job for part in parts if not names.isdisjoint(part.reads)}
        if more <= jobs:
            return jobs
        jobs |= more


def _random_parts(rng: random.Random) -> list[Part]:
    names: list[str] = []
    for number in range(rng.randint(1, 12)):
        names += [f"j{number}__ingest"] if rng.random() < 0.3 else []
        names.append(f"j{number}")
    parts: list[Part] = []
    for place, name in enumerate(names):
        before = [each for each in names[:place] if "__" not in each]
        reads = rng.sample(before, min(len(before), rng.choice([0, 0, 1, 1, 2])))
        if place and names[place - 1] == f"{name}__ingest":
            reads = [names[place - 1]]
        parts.append(_part(name, *reads, fills=rng.random() < 0.2))
    return parts


def _play(
    schedule: Schedule, rng: random.Random, fault_of: Callable[[], Fault | None]
) -> tuple[set[str], set[str]]:
    """Runs a schedule to its end with faults at random; gives the parts that failed by themselves, and that ran."""
    running: set[str] = set()
    stopping: set[str] = set()
    failed: set[str] = set()
    ran: set[str] = set()
    now_s = 0.0
    for _ in range(2_000):
        while (action := schedule.next(now_s)) is not None:
            if isinstance(action, Stop):
                assert action.name in running
                running.remove(action.name)
                stopping.add(action.name)
                continue
            assert action.name not in running | stopping | failed
            fault = fault_of() if rng.random() < 0.1 else None
            if fault is None or fault is Fault.AGAIN:
                schedule.started(action.name, now_s)
                running.add(action.name)
                ran.add(action.name)
            elif schedule.failed(action.name, fault, "at its start", now_s) is None:
                failed.add(action.name)
        if schedule.is_over or not (running or stopping or schedule.waiting):
            break
        for name in rng.sample(sorted(running), len(running)):
            if not schedule.runs(name):
                continue  # blocked since; it is stopped in the next turn
            fault, what = fault_of(), rng.random()
            if what < 0.3 and fault is not None:
                running.discard(name)
                if schedule.failed(name, fault, "in a batch", now_s) is None:
                    failed.add(name)
            elif what < 0.6:
                schedule.committed(name)
            elif what < 0.8 and schedule.is_reading_to_the_end(name):
                running.discard(name)
                schedule.ended(name)
        for name in sorted(stopping):
            if rng.random() < 0.5:
                stopping.remove(name)
                schedule.stopped(name)
        now_s += rng.random() * 20
    return failed, ran


def test_any_jobs_and_any_faults_stop_those_that_depend_on_a_failed_one_and_no_others() -> None:
    seed = drawn_seed()
    for number in range(300):
        rng = random.Random(f"{seed}/{number}")
        parts, once = _random_parts(rng), rng.random() < 0.5
        schedule = Schedule(parts, once=once, restarts=SOON, rng=rng)
        faults = rng.choices([None, *Fault], weights=[20, 3, 3, 3, 1, 1], k=4)
        failed, ran = _play(schedule, rng, lambda: rng.choice(faults))  # noqa: B023 - called before the next turn
        ended = _states(schedule)
        where = f"seed {seed}/{number}: {parts}"
        assert {name for name, state in ended.items() if state in ("failed", "refused")} == failed, where
        expected = _reachable(parts, failed)
        not_well = {part.job for part in parts if ended.get(part.name) in ("failed", "refused", "blocked")}
        assert not_well == expected, where
        if once:
            assert schedule.is_over, where
            assert {part.name for part in parts if part.job not in expected} <= ran, where
