"""The plan of the replay: what the issue of the demo promises about events, order, copies and lateness."""

import json
from collections import defaultdict
from datetime import timedelta
from functools import cache
from itertools import pairwise

import pytest

from amount import amount
from headwater.demo.events import (
    ARRIVALS,
    CHUNK_MS,
    DEPARTURES,
    DISORDER_MS,
    LATE_MAX_MS,
    LATE_MIN_MS,
    SLICE_MS,
    STANDSTILL_MS,
    TOPICS,
    WEATHER,
    Event,
    ReplayPlan,
    ReplaySpec,
    plan_replay,
)
from headwater.demo.flights import Flight, read_month
from headwater.demo.weather import Report, read_weather

_HOUR_MS = 3_600_000
_SOME = slice(0, amount(small=6_000, full=100_000))
"""Flights of plans that are only compared with each other; all of the month in the lane that runs all."""


@cache
def month_of(number: int, days: int = 31) -> list[Flight]:
    return read_month(number, days)


@pytest.fixture(scope="module")
def january() -> list[Flight]:
    return month_of(1)


@pytest.fixture(scope="module")
def reports(january: list[Flight]) -> list[Report]:
    return read_weather(1, january)


@pytest.fixture(scope="module")
def plan(january: list[Flight], reports: list[Report]) -> ReplayPlan:
    return plan_replay(ReplaySpec(month=1, seed=1, duplicates=0.05, late=0.002), january, reports)


def _value(event: Event) -> dict[str, object]:
    value = json.loads(event.value)
    assert isinstance(value, dict)
    return value


def _events(plan: ReplayPlan, topic: str) -> dict[str, Event]:
    return {e.event.key: e.event for e in plan.emissions if e.event.topic == topic}


def test_read_month_january_has_every_flight_once(january: list[Flight]) -> None:
    assert len(january) == 27_004
    assert len({flight.flight_id for flight in january}) == 27_004
    assert sum(flight.departed_at is None for flight in january) == 521
    assert sum(flight.landed_at is None for flight in january) == 606
    assert sum(flight.tailnum is None for flight in january) == 155


def test_plan_first_departure_is_the_row_of_the_data_set(plan: ReplayPlan) -> None:
    event = _events(plan, DEPARTURES)["UA-1545-EWR-20130101-515"]
    assert _value(event) == {
        "flight_id": "UA-1545-EWR-20130101-515",
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
        "departed_at": "2013-01-01T10:17:00Z",
        "delay_minutes": 2,
    }
    assert _value(_events(plan, ARRIVALS)[event.key]) == {
        "flight_id": event.key,
        "landed_at": "2013-01-01T14:04:00Z",
        "air_time": 227,
    }


def test_plan_flight_that_never_left_has_null_departure_and_no_arrival(plan: ReplayPlan) -> None:
    departures, arrivals = _events(plan, DEPARTURES), _events(plan, ARRIVALS)
    never_left = [event for event in departures.values() if _value(event)["departed_at"] is None]
    assert len(never_left) == 521
    assert all(_value(event)["delay_minutes"] is None and not event.timed for event in never_left)
    assert not {event.key for event in never_left} & set(arrivals)
    assert len(departures) == 27_004
    assert len(arrivals) == 27_004 - 606


def test_plan_weather_is_hourly_never_late_and_comes_in_another_order(plan: ReplayPlan) -> None:
    event = _events(plan, WEATHER)["EWR-2013010106"]
    assert _value(event) == {
        "origin": "EWR",
        "observed_at": "2013-01-01T06:00:00Z",
        "temp": 39.02,
        "humid": 59.37,
        "wind_speed": 10.357019999999999,
        "precip": 0.0,
        "visib": 10.0,
    }
    assert plan.events(WEATHER) == 2_241
    assert plan.late(WEATHER) == 0
    times = [e.event.happened_ms for e in plan.emissions if e.event.topic == WEATHER]
    assert any(a > b for a, b in pairwise(times))


@pytest.fixture(scope="module")
def part(january: list[Flight], reports: list[Report]) -> ReplayPlan:
    return plan_replay(ReplaySpec(month=1, seed=1, duplicates=0.05, late=0.002), january[_SOME], reports)


def test_plan_flights_are_sent_as_without_the_weather(january: list[Flight], part: ReplayPlan) -> None:
    without = plan_replay(part.spec, january[_SOME])
    assert [e for e in part.emissions if e.event.topic != WEATHER] == list(without.emissions)
    assert part.chunks == without.chunks


@pytest.mark.parametrize("month", [1, 12, 2][: amount(small=2, full=3)])
def test_read_weather_goes_on_until_every_departure_has_its_answer(month: int) -> None:
    flights = month_of(month)
    reports = read_weather(month, flights)
    last_departure = max(flight.departed_at for flight in flights if flight.departed_at is not None)
    first_departure = min(flight.departed_at for flight in flights if flight.departed_at is not None)
    assert max(report.observed_at for report in reports) >= last_departure + timedelta(hours=3)
    assert min(report.observed_at for report in reports) <= first_departure - timedelta(hours=3)
    assert len({(report.origin, report.observed_at) for report in reports}) == len(reports)
    unmeasured = [report for report in reports if report.values[0] is None]
    assert bool(unmeasured) == (month == 12), "the data set ends on 30 December"


def test_plan_same_arguments_give_the_same_plan(
    january: list[Flight], reports: list[Report], part: ReplayPlan
) -> None:
    assert plan_replay(part.spec, january[_SOME], reports).digest() == part.digest()
    assert plan_replay(ReplaySpec(1, 2, 0.05, 0.002), january[_SOME], reports).digest() != part.digest()


def test_plan_more_copies_leave_the_first_sendings_where_they_were(
    january: list[Flight], reports: list[Report], part: ReplayPlan
) -> None:
    more = plan_replay(ReplaySpec(1, 1, 0.2, 0.002), january[_SOME], reports)
    assert [e for e in more.emissions if not e.copy] == [e for e in part.emissions if not e.copy]


def test_plan_shares_are_those_asked_for(plan: ReplayPlan) -> None:
    for topic in TOPICS:
        events = plan.events(topic)
        copies = sum(e.copy and e.event.topic == topic for e in plan.emissions)
        assert copies == round(0.05 * events)
        assert plan.late(topic) == pytest.approx(0 if topic == WEATHER else 0.002 * events, abs=2)


def test_plan_no_shares_sends_each_event_once_and_in_time(january: list[Flight]) -> None:
    plan = plan_replay(ReplaySpec(1, 1, 0.0, 0.0), january)
    assert len(plan.emissions) == 27_004 + 26_398
    assert not any(e.copy or e.late for e in plan.emissions)


def test_plan_lateness_is_within_the_bounds(plan: ReplayPlan) -> None:
    for emission in plan.emissions:
        behind_ms = emission.clock_ms - emission.event.happened_ms
        if emission.late:
            assert LATE_MIN_MS <= behind_ms < LATE_MAX_MS
        elif not emission.copy:
            assert 0 <= behind_ms < DISORDER_MS


def test_plan_clock_never_runs_back_and_event_times_are_out_of_order(plan: ReplayPlan) -> None:
    assert all(a.clock_ms <= b.clock_ms for a, b in pairwise(plan.emissions))
    assert any(a.event.happened_ms > b.event.happened_ms for a, b in pairwise(plan.emissions))


def test_plan_half_of_the_copies_come_at_least_a_chunk_later(plan: ReplayPlan) -> None:
    first = {e.event: e.clock_ms for e in plan.emissions if not e.copy}
    waits = [e.clock_ms - first[e.event] for e in plan.emissions if e.copy]
    assert all(0 <= wait < 2 * CHUNK_MS for wait in waits)
    assert sum(wait >= CHUNK_MS for wait in waits) == pytest.approx(len(waits) / 2, abs=2)


def test_plan_origin_offsets_are_consecutive_in_each_origin_partition(plan: ReplayPlan) -> None:
    offsets: defaultdict[tuple[str, int], set[int]] = defaultdict(set)
    for emission in plan.emissions:
        offsets[emission.event.topic, emission.event.origin_partition].add(emission.event.origin_offset)
    assert len(offsets) == 9
    for seen in offsets.values():
        assert seen == set(range(len(seen)))


def test_plan_copy_has_the_origin_headers_of_its_first_sending(plan: ReplayPlan) -> None:
    copy = next(e for e in plan.emissions if e.copy)
    headers = dict(copy.event.headers)
    assert headers["headwater-origin-cluster"] == b"new-york"
    assert headers["headwater-origin-topic"] == copy.event.topic.encode()
    assert int(headers["headwater-origin-partition"]) == copy.event.origin_partition
    assert int(headers["headwater-origin-offset"]) == copy.event.origin_offset


def test_plan_slices_cut_the_whole_plan_and_none_is_longer_than_its_clock(plan: ReplayPlan) -> None:
    assert plan.slices[0].start == 0
    assert plan.slices[-1].end == len(plan.emissions)
    for before, after in pairwise(plan.slices):
        assert before.end == after.start
        assert after.chunk - before.chunk in (0, 1)
    for part in plan.slices:
        assert plan.emissions[part.end - 1].clock_ms - plan.emissions[part.start].clock_ms < SLICE_MS


@pytest.mark.parametrize(
    ("month", "seed", "late"),
    [(12, 7, 0.0001), (1, 1, 0.002), (2, 7, 0.0001), (7, 99, 0.002), (12, 5, 0.01)][
        : amount(small=1, full=5)
    ],
)
def test_plan_every_seed_has_a_departure_whose_window_closed_a_chunk_before(
    month: int, seed: int, late: float
) -> None:
    plan = plan_replay(ReplaySpec(month, seed, 0.05, late), month_of(month))
    assert plan.chunks >= 11
    assert _closed_across_chunks(plan) >= 1


@pytest.mark.parametrize(("days", "chunks"), [(2, 2), (4, 3), (9, 4), (31, 12)])
def test_plan_first_days_are_a_plan_of_their_own(days: int, chunks: int) -> None:
    flights = month_of(1, days)
    plan = plan_replay(ReplaySpec(1, 1, 0.05, 0.002, days), flights)
    assert {flight.flight_id[-13:].split("-")[-2][-2:] for flight in flights} == {
        f"{day:02}" for day in range(1, days + 1)
    }
    assert plan.events(DEPARTURES) == len(flights)
    assert plan.chunks == chunks
    assert _closed_across_chunks(plan) >= 1


@pytest.mark.parametrize("days", [2, 4, 31][: amount(small=2, full=3)])
def test_plan_full_holds_events_back_until_a_chunk_ends(days: int) -> None:
    plan = plan_replay(ReplaySpec(1, 1, 0.05, 0.002, days, full=True), month_of(1, days))
    plain = plan_replay(ReplaySpec(1, 1, 0.05, 0.002, days), month_of(1, days))
    assert plain.held_chunk is None
    assert not any(e.held for e in plain.emissions)
    held = [e for e in plan.emissions if e.held]
    assert {e.event.topic for e in held} == {DEPARTURES, ARRIVALS}
    assert len({e.clock_ms for e in held}) == 1
    assert plan.held_chunk is not None
    assert plan.held_chunk + 1 < plan.chunks, "the checks are well again in the chunk behind"
    last = [part for part in plan.slices if part.chunk == plan.held_chunk][-1]
    assert all(e in plan.emissions[last.start : last.end] for e in held)
    assert all(0 <= e.clock_ms - e.event.happened_ms <= STANDSTILL_MS + DISORDER_MS for e in held)
    for topic in (DEPARTURES, ARRIVALS):
        behind = [e.clock_ms - e.event.happened_ms for e in held if e.event.topic == topic and e.event.timed]
        assert sum(each > _HOUR_MS for each in behind) > 40, "twice what the check allows"
        assert (plan.events(topic), plan.late(topic)) == (plain.events(topic), plain.late(topic))


def test_plan_copies_of_everything_and_all_late_is_still_a_plan() -> None:
    plan = plan_replay(ReplaySpec(2, 3, 1.0, 1.0), month_of(2)[_SOME])
    assert len(plan.emissions) == 2 * (plan.events(DEPARTURES) + plan.events(ARRIVALS))


def _closed_across_chunks(plan: ReplayPlan) -> int:
    """Departures whose hour had closed, 30 minutes of delay included, by what the chunks before had shown."""
    closed, seen_before_ms = 0, 0
    seen_ms, chunk = 0, 0
    for part in plan.slices:
        if part.chunk != chunk:
            chunk, seen_before_ms = part.chunk, seen_ms
        for emission in plan.emissions[part.start : part.end]:
            event = emission.event
            if event.topic != DEPARTURES or not event.timed or emission.copy:
                continue
            window_end_ms = (event.happened_ms // _HOUR_MS + 1) * _HOUR_MS
            closed += window_end_ms <= seen_before_ms - _HOUR_MS // 2
            seen_ms = max(seen_ms, event.happened_ms)
    return closed
