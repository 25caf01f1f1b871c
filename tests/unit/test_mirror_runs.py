"""What a mirror keeps: runs of offsets, and its records."""

import random
from pathlib import Path

import pytest

from headwater_streams.sources.mirrored import (
    MirrorMap,
    MirrorRecord,
    MirrorRecordError,
    Runs,
    RunsRecord,
    TopicRecord,
    from_json,
    to_json,
)

GOLDEN = Path(__file__).parent / "golden" / "mirror_records.txt"
RECORDS = (
    MirrorRecord(source="kQ-1", name="west", producer_id=4001, producer_epoch=0),
    TopicRecord(
        name="west.clicks",
        source="kQ-1",
        topic="clicks",
        topic_id="hQ7",
        origin="clicks",
        via=("aZ-0", "kQ-1"),
        configs={"retention.ms": "86400000"},
    ),
    RunsRecord(topic="west.clicks", partition=3, runs=((0, 100), (17, 120)), end=40, lost=3),
    TopicRecord(
        name="orders",
        source="kQ-1",
        topic="orders",
        topic_id="",
        origin="orders",
        via=("kQ-1",),
        released={0: 7, 1: 0},
    ),
)


def test_mirror_records_are_read_as_the_first_version_wrote_them() -> None:
    lines = [line.split(b" ", 1) for line in GOLDEN.read_bytes().splitlines()]

    assert [(each.key.replace(b"\t", b"|"), to_json(each)) for each in RECORDS] == [
        tuple(line) for line in lines
    ]
    assert tuple(from_json(key.replace(b"|", b"\t"), value) for key, value in lines) == RECORDS


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"version":2}',
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[],"end":null,"lost":0}',
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[[5,1],[5,2]],"end":9,"lost":0}',
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[[5,1]],"end":5,"lost":0}',
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[[0,1]]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_mirror_records_that_are_none_are_refused(value: bytes) -> None:
    with pytest.raises(MirrorRecordError):
        from_json(RECORDS[2].key, value)


def test_mirror_map_passes_over_what_is_no_record_and_counts_it() -> None:
    found = MirrorMap.of([(b"x", b"y"), (None, b"z"), (RECORDS[1].key, to_json(RECORDS[1])), (b"gone", None)])

    assert (found.passed_over, list(found.topics)) == (2, ["west.clicks"])


def kept(*plans: tuple[tuple[tuple[int, int], ...], int | None]) -> MirrorMap:
    records = [RunsRecord(topic="t", partition=0, runs=runs, end=end) for runs, end in plans]
    return MirrorMap.of((each.key, to_json(each)) for each in records)


@pytest.mark.parametrize(
    ("plans", "runs"),
    [
        # A plan of a process that was killed, of which less was written than it has, and the plan of the next one.
        ([(((0, 0), (5, 10), (9, 20)), 12), (((7, 12),), 9)], [(0, 0), (5, 10), (9, 20)]),
        ([(((0, 0), (5, 10), (9, 20)), 12), (((7, 40),), 9)], [(0, 0), (5, 10), (7, 40)]),
        ([(((0, 0), (5, 10), (9, 20)), 12), (((7, 12), (11, 50)), 14)], [(0, 0), (5, 10), (11, 50)]),
        # The same plan comes late, from a process that was slower.
        ([(((0, 0), (5, 10)), 9), (((9, 20),), 12), (((0, 0), (5, 10)), 9)], [(0, 0), (5, 10), (9, 20)]),
        # The topic was made anew.
        ([(((0, 70), (5, 80)), 9), (((0, 0),), None)], [(0, 0)]),
    ],
)
def test_mirror_map_a_record_replaces_what_was_known_of_its_own_offsets(
    plans: list[tuple[tuple[tuple[int, int], ...], int | None]], runs: list[tuple[int, int]]
) -> None:
    assert list(kept(*plans).runs["t", 0]) == runs


def test_mirror_map_forgets_what_expired_and_keeps_the_run_that_goes_on() -> None:
    found = kept((((0, 0), (5, 10)), 9), (((9, 20),), 12), (((30, 60),), 40))

    assert found.unneeded("t", 0, 8) == []
    assert found.unneeded("t", 0, 25) == [b"runs\tt\t0\t0\t9"]
    for key in found.unneeded("t", 0, 30):
        found.read(key, None)
    assert list(found.runs["t", 0]) == [(30, 60)]
    assert found.unneeded("t", 0, 100) == []


def test_mirror_map_sums_up_what_was_lost_and_keeps_the_records_that_say_so() -> None:
    records = [
        RunsRecord(topic="t", partition=0, runs=((each, 9 * each),), end=each + 1, lost=7) for each in (0, 5)
    ]

    found = MirrorMap.of((each.key, to_json(each)) for each in (*records, records[1]))

    assert (found.lost("t", 0), found.lost("t", 1), found.unneeded("t", 0, 50)) == (14, 0, [])


@pytest.mark.parametrize("seed", range(20))
def test_mirror_runs_translate_as_a_list_of_all_records_does(seed: int) -> None:
    rng = random.Random(seed)
    there, at = [], rng.randrange(1000)
    for _ in range(rng.randrange(1, 60)):
        at += rng.choice([0] * 6 + [1, 2, 30])
        there.append(at)
        at += 1
    plan = [(here, offset) for here, offset in enumerate(there) if not here or offset != there[here - 1] + 1]
    runs = Runs()
    while plan:  # in any number of records, and the beginning of each is known already
        count = rng.randrange(1, len(plan) + 1)
        behind = plan[count][0] if count < len(plan) else len(there)
        runs.put(plan[:count], behind)
        runs.put([*plan[:count]], rng.randrange(plan[count - 1][0] + 1, behind + 1))
        assert runs.agrees(plan[:count], behind)
        plan = plan[count:]

    for here, offset in enumerate(there):
        assert runs.origin(here) == offset
    for offset in range(there[0] - 2, there[-1] + 5):
        before = sum(each < offset for each in there)
        for end in {len(there), rng.randrange(len(there) + 1)}:
            assert runs.translated(offset, end) == min(before, end), (seed, offset, end)


def test_mirror_runs_without_any_are_at_the_end() -> None:
    assert (Runs().origin(0), Runs().translated(5, 0)) == (None, 0)


def test_mirror_runs_agree_with_a_plan_that_goes_on_in_one_of_them() -> None:
    runs = Runs([(0, 5), (9, 20)])

    assert runs.agrees([(3, 8)], 9)
    assert runs.agrees([(3, 8), (9, 20)], 100)
    assert not runs.agrees([(3, 8)], 10)
    assert not runs.agrees([(3, 9)], 5)
    assert not Runs().agrees([(0, 0)], 5)
