"""The replay as a plan: which event is sent when, how often and how late. Pure; the seed decides all of it.

The replayed clock runs over the month. An event is sent up to 15 minutes after it happened, so events
arrive out of order; a share is sent 2 to 6 hours late, but no weather report is; a share is sent again with the
same origin, half of those copies three to six days later. The clock is cut twice:

- into **slices** of 15 minutes, each delivered before the next is sent. Partitions are therefore never
  further apart than a slice: an event on time is at most 30 minutes behind any other that was seen, which
  is the delay of the windows, so the only late rows are those that the seed made late.
- into **chunks**, the first of one day, the others of three: eleven in February, at most twelve. Between two
  chunks the producer waits for the jobs, so a later chunk is in later batches.

In the full demo the shipper of one airport stands still for the last five hours of the chunk halfway, and sends what
waited as the chunk ends. So these events are up to five hours late.

Every event has an origin, as if it came from an upstream cluster: one upstream partition for each airport,
with consecutive offsets in the order in which things happened there.
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby

from headwater.demo.flights import Flight
from headwater.demo.weather import MEASURED, Report

DEPARTURES, ARRIVALS, WEATHER = "departures", "arrivals", "weather"
TOPICS = (DEPARTURES, ARRIVALS, WEATHER)
ORIGIN_CLUSTER = "new-york"

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
DISORDER_MS = 15 * _MINUTE_MS
SLICE_MS = 15 * _MINUTE_MS
FIRST_CHUNK_MS = 24 * _HOUR_MS
CHUNK_MS = 72 * _HOUR_MS
LATE_MIN_MS, LATE_MAX_MS = 2 * _HOUR_MS, 6 * _HOUR_MS
STANDSTILL_MS = 5 * _HOUR_MS
HELD_PARTITION = 0
"""The upstream partition whose shipper stands still in the full demo: Newark's."""
_HELD_TOPICS = (DEPARTURES, ARRIVALS)

WHOLE_MONTH = 31

Headers = tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """What decides a replay: the first days of a month of 2013, the seed, the shares sent twice and sent late.

    `full` is whether a shipper stands still halfway.
    """

    month: int
    seed: int
    duplicates: float
    late: float
    days: int = WHOLE_MONTH
    full: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the upstream: its record's key and value, and where it came from.

    `happened_ms` is its event time or, for a departure that never was, the time it was scheduled for.
    """

    topic: str
    key: str
    value: bytes
    happened_ms: int
    timed: bool
    origin_partition: int
    origin_offset: int

    @property
    def headers(self) -> Headers:
        """The origin headers, in ASCII decimal."""
        return (
            ("headwater-origin-cluster", ORIGIN_CLUSTER.encode()),
            ("headwater-origin-topic", self.topic.encode()),
            ("headwater-origin-partition", b"%d" % self.origin_partition),
            ("headwater-origin-offset", b"%d" % self.origin_offset),
        )


@dataclass(frozen=True, slots=True)
class Emission:
    """One sending of an event at `clock_ms` of the replayed clock (the record's CreateTime).

    `late` is one of the share that the seed makes late; `held` waited until a shipper went on.
    """

    event: Event
    clock_ms: int
    copy: bool = False
    late: bool = False
    held: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """Emissions `[start, end)` of the plan, delivered as one; `chunk` counts from 0."""

    start: int
    end: int
    chunk: int


@dataclass(frozen=True)
class ReplayPlan:
    """All emissions in the order of the replayed clock, and the slices that cut them."""

    spec: ReplaySpec
    emissions: tuple[Emission, ...]
    slices: tuple[Slice, ...]

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return self.slices[-1].chunk + 1

    @property
    def held_chunk(self) -> int | None:
        """The chunk with whose end the shipper goes on that stood still; None if none does."""
        return (self.chunks - 1) // 2 if self.spec.full else None

    def held(self, topic: str) -> int:
        """How many events of `topic` waited for the shipper."""
        return sum(e.event.topic == topic and e.held for e in self.emissions)

    def events(self, topic: str) -> int:
        """How many different events `topic` gets."""
        return sum(e.event.topic == topic and not e.copy for e in self.emissions)

    def late(self, topic: str) -> int:
        """How many events of `topic` are sent 2 to 6 hours late."""
        return sum(e.event.topic == topic and e.late for e in self.emissions)

    def digest(self) -> str:
        """A fingerprint of everything that will be sent, and when."""
        digest = hashlib.sha256()
        for emission in self.emissions:
            event = emission.event
            origin = (event.topic, event.origin_partition, event.origin_offset, emission.clock_ms)
            digest.update(repr(origin).encode() + event.value)
        return digest.hexdigest()[:16]


def plan_replay(spec: ReplaySpec, flights: Sequence[Flight], reports: Sequence[Report] = ()) -> ReplayPlan:
    """Plan the replay of `flights` and of the weather.

    Args:
        spec: Its `month` and `seed` choose; `duplicates` and `late` are shares of the events, 0 to 1.
        flights: The flights of these days.
        reports: The weather of these days.

    Returns:
        The plan; the same arguments always give the same plan, on any machine.
    """
    events = _numbered(
        [*map(_departure, flights), *filter(None, map(_arrival, flights)), *map(_weather, reports)]
    )
    barriers = _barriers(spec.month, max(event.happened_ms for event in events if event.topic != WEATHER))
    first: list[Emission] = []
    for topic in TOPICS:
        of_topic = [event for event in events if event.topic == topic]
        late = 0.0 if topic == WEATHER else spec.late
        first += _first_sendings(of_topic, barriers, late, _rng(spec, "first", topic))
    if spec.full:
        first = [_held_until(barriers[len(barriers) // 2], emission) for emission in first]
    copies = [
        copy
        for topic in TOPICS
        for copy in _copies(
            [e for e in first if e.event.topic == topic], spec.duplicates, _rng(spec, "copies", topic)
        )
    ]
    emissions = tuple(sorted(first + copies, key=_order))
    return ReplayPlan(spec, emissions, tuple(_slices(emissions, barriers)))


def _rng(spec: ReplaySpec, *purpose: str) -> random.Random:
    # A stream of its own for each purpose: a larger share of copies does not move the late events.
    return random.Random(":".join((str(spec.seed), str(spec.month), *purpose)))


def _order(emission: Emission) -> tuple[int, str, int, int, bool]:
    event = emission.event
    return (emission.clock_ms, event.topic, event.origin_partition, event.origin_offset, emission.copy)


_Unnumbered = tuple[str, str, bytes, int, bool, str]  # topic, key, value, happened_ms, timed, airport


def _departure(flight: Flight) -> _Unnumbered:
    departed_at = flight.departed_at
    value = {
        "flight_id": flight.flight_id,
        "carrier": flight.carrier,
        "flight": flight.flight,
        "tailnum": flight.tailnum,
        "origin": flight.origin,
        "dest": flight.dest,
        "departed_at": _iso(departed_at),
        "delay_minutes": flight.delay_minutes,
    }
    happened_ms = _epoch_ms(departed_at or flight.scheduled_at)
    return DEPARTURES, flight.flight_id, _json(value), happened_ms, departed_at is not None, flight.origin


def _arrival(flight: Flight) -> _Unnumbered | None:
    landed_at = flight.landed_at
    if landed_at is None:
        return None
    value = {"flight_id": flight.flight_id, "landed_at": _iso(landed_at), "air_time": flight.air_minutes}
    return ARRIVALS, flight.flight_id, _json(value), _epoch_ms(landed_at), True, flight.origin


def _weather(report: Report) -> _Unnumbered:
    place = {"origin": report.origin, "observed_at": _iso(report.observed_at)}
    value: dict[str, object] = {**place, **dict(zip(MEASURED, report.values, strict=True))}
    key = f"{report.origin}-{report.observed_at:%Y%m%d%H}"
    return WEATHER, key, _json(value), _epoch_ms(report.observed_at), True, report.origin


def _json(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _iso(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"


def _epoch_ms(time: datetime) -> int:
    return int(time.timestamp()) * 1000


def _numbered(raw: Iterable[_Unnumbered]) -> list[Event]:
    rows = sorted(raw, key=lambda row: (row[0], row[3], row[1]))
    partition_of = {airport: n for n, airport in enumerate(sorted({row[5] for row in rows}))}
    next_offset: defaultdict[tuple[str, int], int] = defaultdict(int)
    events = []
    for topic, key, value, happened_ms, timed, airport in rows:
        partition = partition_of[airport]
        events.append(Event(topic, key, value, happened_ms, timed, partition, next_offset[topic, partition]))
        next_offset[topic, partition] += 1
    return events


def _barriers(month: int, last_ms: int) -> list[int]:
    start_ms = _epoch_ms(datetime(2013, month, 1, tzinfo=UTC))
    return list(range(start_ms + FIRST_CHUNK_MS, last_ms, CHUNK_MS))


def _first_sendings(
    events: Sequence[Event], barriers: Sequence[int], late_share: float, rng: random.Random
) -> Iterator[Emission]:
    late_at = _late_sendings([event for event in events if event.timed], barriers, late_share, rng)
    for event in events:
        on_time_ms = event.happened_ms + rng.randrange(DISORDER_MS)
        late_ms = late_at.get(event)
        yield Emission(event, on_time_ms if late_ms is None else late_ms, late=late_ms is not None)


def _late_sendings(
    events: Sequence[Event], barriers: Sequence[int], share: float, rng: random.Random
) -> dict[Event, int]:
    """The events sent late, and when.

    A window is closed by what earlier batches saw, and a batch can hold three days: an event late by hours is
    mostly in one batch with its neighbours, and in time. So one in four late events (at least one) happens
    3 to 5 hours before a chunk ends and is sent after: its window closed before its batch began, for every
    seed.
    """
    count = _share(share, len(events))
    across: dict[Event, int] = {}
    for event in events:
        barrier = next(
            (b for b in barriers if b - 5 * _HOUR_MS <= event.happened_ms < b - 3 * _HOUR_MS), None
        )
        if barrier is not None:
            across[event] = barrier
    sendings = {}
    for event in rng.sample(list(across), min(len(across), -(-count // 4))):
        earliest_ms = max(across[event], event.happened_ms + LATE_MIN_MS)
        sendings[event] = rng.randrange(earliest_ms, event.happened_ms + LATE_MAX_MS)
    others = [event for event in events if event not in sendings]
    for event in rng.sample(others, count - len(sendings)):
        sendings[event] = event.happened_ms + rng.randrange(LATE_MIN_MS, LATE_MAX_MS)
    return sendings


def _held_until(end_ms: int, emission: Emission) -> Emission:
    """The sending, or a later one if its shipper stands still then. What is late for hours is not held as well."""
    is_shipped = emission.event.topic in _HELD_TOPICS and emission.event.origin_partition == HELD_PARTITION
    if not is_shipped or emission.late or not end_ms - STANDSTILL_MS <= emission.clock_ms < end_ms:
        return emission
    return replace(emission, clock_ms=end_ms - 1000, held=True)


def _copies(first: Sequence[Emission], share: float, rng: random.Random) -> Iterator[Emission]:
    """Sent again: every other one within minutes, the rest at least a chunk, so at least a batch, later."""
    for number, emission in enumerate(rng.sample(first, _share(share, len(first)))):
        wait_ms = rng.randrange(DISORDER_MS) if number % 2 else rng.randrange(CHUNK_MS, 2 * CHUNK_MS)
        yield Emission(emission.event, emission.clock_ms + wait_ms, copy=True)


def _share(share: float, count: int) -> int:
    return max(1, round(share * count)) if share > 0 and count else 0


def _slices(emissions: Sequence[Emission], barriers: Sequence[int]) -> Iterator[Slice]:
    def place(numbered: tuple[int, Emission]) -> tuple[int, int]:
        clock_ms = numbered[1].clock_ms
        return sum(barrier <= clock_ms for barrier in barriers), clock_ms // SLICE_MS

    for (chunk, _), group in groupby(enumerate(emissions), place):
        indices = [index for index, _ in group]
        yield Slice(indices[0], indices[-1] + 1, chunk)
