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
    RunsRecord(topic="west.clicks", partition=3, runs=((0, 100), (17, 120))),
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
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[]}',
        b'{"version":1,"topic":"west.clicks","partition":3,"runs":[[5,1],[5,2]]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_mirror_records_that_are_none_are_refused(value: bytes) -> None:
    with pytest.raises(MirrorRecordError):
        from_json(RECORDS[2].key, value)


def test_mirror_map_passes_over_what_is_no_record_and_counts_it() -> None:
    found = MirrorMap.of([(b"x", b"y"), (None, b"z"), (RECORDS[1].key, to_json(RECORDS[1])), (b"gone", None)])

    assert (found.passed_over, list(found.topics)) == (1, ["west.clicks"])


def test_mirror_map_a_record_replaces_the_runs_behind_its_first_offset() -> None:
    plans = [((0, 0), (5, 10), (9, 20)), ((7, 12),), ((8, 40),)]
    records = [RunsRecord(topic="t", partition=0, runs=runs) for runs in plans]

    found = MirrorMap.of((each.key, to_json(each)) for each in records)

    assert list(found.runs["t", 0]) == [(0, 0), (5, 10), (7, 12), (8, 40)]


@pytest.mark.parametrize("seed", range(20))
def test_mirror_runs_translate_as_a_list_of_all_records_does(seed: int) -> None:
    rng = random.Random(seed)
    there, at = [], rng.randrange(1000)
    for _ in range(rng.randrange(1, 60)):
        at += rng.choice([0] * 6 + [1, 2, 30])
        there.append(at)
        at += 1
    runs = Runs()
    for here, offset in enumerate(there):
        if not here or offset != there[here - 1] + 1:
            runs.begin(here, offset)

    for here, offset in enumerate(there):
        assert runs.origin(here) == offset
    for offset in range(there[0] - 2, there[-1] + 5):
        before = sum(each < offset for each in there)
        for end in {len(there), rng.randrange(len(there) + 1)}:
            assert runs.translated(offset, end) == min(before, end), (seed, offset, end)


def test_mirror_runs_without_any_are_at_the_end() -> None:
    assert (Runs().origin(0), Runs().translated(5, 0)) == (None, 0)


def test_mirror_runs_cut_tells_whether_any_began_behind() -> None:
    runs = Runs([(0, 5), (9, 20)])

    assert not runs.cut(10)
    assert list(runs) == [(0, 5), (9, 20)]
    assert runs.cut(4)
    assert list(runs) == [(0, 5)]
