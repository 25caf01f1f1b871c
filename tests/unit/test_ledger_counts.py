"""What an audit of counts says of small cases, each sentence of it."""

from collections.abc import Sequence

import pytest

from headwater_client import Appended, Counts, Source, TopicTotals
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts import (
    Batch,
    Claims,
    Findings,
    Heard,
    Held,
    MirrorFacts,
    TableFacts,
    TopicLog,
    check_mirror,
    check_producers,
    check_table,
    mirror_facts,
    verdicts,
)
from headwater_streams.ledger.counts.facts import Mark
from headwater_streams.sources.mirrored import Runs

START_MS = 1_357_034_400_000
NEXT_MS = START_MS + 60_000
LATER_MS = START_MS + 3_600_000


def log(
    *runs: tuple[int, int, int], end: int = 0, marks: Sequence[Mark] = (), compacted: bool = False
) -> TopicLog:
    ends = max([end, *(run[1] for run in runs)])
    of_it = {0: [BucketRun(*run) for run in runs]}
    return TopicLog("clicks", 60_000, of_it, {0: (0, ends)}, marks, compacted)


def claim(start: int, end: int, bucket: int = START_MS, *, name: str = "web-1", **more: int) -> Counts:
    return Counts(
        source=name,
        instance=name,
        topic="clicks",
        bucket_start_ms=bucket,
        acknowledged=more.pop("acknowledged", end - start),
        ranges={0: [(start, end)]} if start < end else {},
        **more,
    )


def source(
    name: str = "web-1",
    *,
    at_ms: int = START_MS,
    heard_ms: int | None = None,
    closed: bool = True,
    acknowledged: int = 0,
) -> Heard:
    totals = {"clicks": TopicTotals(sent=acknowledged, acknowledged=acknowledged)}
    record = Source(source=name, instance=name, opened_ms=START_MS, at_ms=at_ms, closed=closed, topics=totals)
    return Heard(record, heard_ms)


def said(of: TopicLog, claims: Claims, now_ms: int = LATER_MS) -> list[str]:
    found = Findings("clicks")
    check_producers(found, of, claims, now_ms)
    return [str(each) for each in found.findings]


@pytest.mark.parametrize(
    ("of", "claims", "expected"),
    [
        (log((0, 5, START_MS)), Claims([claim(0, 5)], [source()]), []),
        (log((0, 5, START_MS)), Claims(), []),  # nobody counts
        (
            log((0, 3, START_MS), end=5),
            Claims([claim(0, 5)], [source()]),
            ["clicks 2013-01-01T10:00:00Z: 2 records are missing at broker (web-1): offsets clicks 0 [3, 5)"],
        ),
        (log((0, 3, START_MS), end=5, compacted=True), Claims([claim(0, 5)], [source()]), []),
        (  # the offset has a record, of another time
            log((0, 3, START_MS), (3, 4, NEXT_MS)),
            Claims([claim(0, 4), claim(3, 4, NEXT_MS, name="web-2")], [source()]),
            ["clicks 2013-01-01T10:00:00Z: 1 record is missing at broker (web-1): offsets clicks 0 [3, 4)"],
        ),
        (  # two were told of one offset
            log((0, 4, START_MS)),
            Claims([claim(0, 4), claim(3, 4, name="web-2")], [source()]),
            [
                "clicks 2013-01-01T10:00:00Z: 1 record is missing at broker (web-1, web-2): offsets clicks 0 [3, 4)"
            ],
        ),
        (  # acknowledged without an offset
            log((0, 2, START_MS)),
            Claims([claim(0, 0, acknowledged=3)], [source()]),
            ["clicks 2013-01-01T10:00:00Z: 1 record is missing at broker (web-1)"],
        ),
        (log((0, 3, START_MS)), Claims([claim(0, 2, uncertain=1)], [source()]), []),
        (log((0, 2, START_MS)), Claims([claim(0, 2, uncertain=1)], [source()]), []),
        (
            log((0, 3, START_MS)),
            Claims([claim(0, 2)], [source(acknowledged=3)]),
            [
                (
                    "clicks 2013-01-01T10:00:00Z: 1 record that no producer counted (all producers that count have "
                    "ended): offsets clicks 0 [2, 3)"
                ),
                "clicks: producer web-1 counted 1 record more than its counts in the topic of counts name",
            ],
        ),
        (
            log((0, 2, START_MS)),
            Claims([claim(0, 2)], [source(at_ms=START_MS + 3_600_000, heard_ms=START_MS)]),
            [
                (
                    "clicks: the clock of producer web-1 is 60 min ahead; its records are in buckets of that time at "
                    "every tier, and none is missing for it"
                ),
            ],
        ),
    ],
)
def test_producers_against_the_log(of: TopicLog, claims: Claims, expected: list[str]) -> None:
    assert said(of, claims) == expected


def test_records_of_before_producers_counted_are_not_judged() -> None:
    old = (0, 3, START_MS - 60_000)
    assert said(log(old, (3, 5, START_MS)), Claims([claim(3, 5)], [source()])) == []


def test_record_is_judged_once_each_living_producer_has_spoken_since() -> None:
    living = source(at_ms=START_MS + 20_000, closed=False)
    claims, now_ms = Claims([claim(0, 2)], [living]), START_MS + 21_000
    assert said(log((0, 3, START_MS)), claims, now_ms) == []
    since = [Mark(START_MS + 5_000, {0: 3})]
    assert len(said(log((0, 3, START_MS), marks=since), claims, now_ms)) == 1
    just_now = [Mark(START_MS + 15_000, {0: 3})]
    assert said(log((0, 3, START_MS), marks=just_now), claims, now_ms) == []


def counted_by_broker(*runs: tuple[int, int, int], instance: str = "7", bucket_ms: int = 60_000) -> Appended:
    return Appended(
        source="broker-1",
        instance=instance,
        tier="broker",
        topic="clicks",
        partition=0,
        start=runs[0][0],
        end=runs[-1][1],
        bucket_ms=bucket_ms,
        runs=runs,
    )


LOST = "clicks 2013-01-01T10:00:00Z: 2 records are missing at broker (broker-1): offsets clicks 0 [3, 5)"


@pytest.mark.parametrize(
    ("of", "appended", "expected"),
    [
        (log((0, 5, START_MS)), [counted_by_broker((0, 5, START_MS))], []),
        (log((0, 3, START_MS), end=5), [counted_by_broker((0, 5, START_MS))], [LOST]),  # a hole
        (log((0, 3, START_MS)), [counted_by_broker((0, 5, START_MS))], [LOST]),  # cut
        (log((0, 3, START_MS)), [counted_by_broker((0, 5, START_MS), bucket_ms=3_600_000)], [LOST]),
        # Cut, and its offsets were given away again: to records of another bucket, and of the same one.
        (log((0, 3, START_MS), (3, 5, NEXT_MS)), [counted_by_broker((0, 5, START_MS))], [LOST]),
        (
            log((0, 9, START_MS)),
            [counted_by_broker((0, 5, START_MS)), counted_by_broker((3, 9, START_MS), instance="8")],
            [LOST],
        ),
        (log((0, 3, START_MS), compacted=True), [counted_by_broker((0, 5, START_MS))], []),
    ],
)
def test_what_a_broker_appended_and_lost_is_missing_of_producers_that_do_not_count(
    of: TopicLog, appended: list[Appended], expected: list[str]
) -> None:
    assert said(of, Claims(appended=appended)) == expected
    both = Claims([claim(0, 5)], [source()], appended=appended)
    assert len([each for each in said(of, both) if "missing" in each]) == len(expected)  # and not once more


def test_what_a_broker_appended_is_a_tier_in_the_buckets_of_the_audit() -> None:
    found, half = (
        Findings("clicks"),
        counted_by_broker((0, 2, START_MS), (2, 3, START_MS + 30_000), bucket_ms=30_000),
    )
    check_producers(found, log((0, 3, START_MS)), Claims(appended=[half]), LATER_MS)
    assert [(c.tier, c.where, c.count) for c in found.counts] == [
        ("appended", "broker-1", 3),
        ("broker", "", 3),
    ]


def table(
    *batches: Batch, offsets: Sequence[tuple[int, int]] = (), again: Sequence[tuple[int, int]] = ()
) -> TableFacts:
    return TableFacts("silver.clicks", "clicks", batches, {"table": {0: Held(offsets, again)}})


def terms(**counts: int) -> dict[str, int]:
    return {"read": 0, "written": 0, "filtered": 0, "duplicate": 0, "quarantined": 0, **counts}


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (table(Batch(0, 0, 5, terms(read=5, written=5)), offsets=[(0, 5)]), []),
        (table(Batch(0, 0, 5, terms(read=5, written=3, filtered=2)), offsets=[(0, 3)]), []),
        (
            table(Batch(0, 0, 5, terms(read=5, written=5)), offsets=[(0, 4)]),
            [
                "clicks 2013-01-01T10:01:00Z: 1 record is missing at table silver.clicks: offsets clicks 0 [4, 5)"
            ],
        ),
        (
            table(Batch(0, 0, 5, terms(read=5, written=5)), offsets=[(0, 5)], again=[(4, 5)]),
            [
                (
                    "clicks 2013-01-01T10:01:00Z: 1 record stands there more than once at table silver.clicks: "
                    "offsets clicks 0 [4, 5)"
                ),
            ],
        ),
        (
            table(Batch(0, 0, 5, terms(read=4, written=4)), offsets=[(0, 4)]),
            [
                "clicks 2013-01-01T10:01:00Z: 1 record is missing at input silver.clicks: offsets clicks 0 [4, 5)"
            ],
        ),
        (
            table(
                Batch(0, 0, 2, terms(read=2, written=2)),
                Batch(0, 3, 5, terms(read=2, written=2)),
                offsets=[(0, 2), (3, 5)],
            ),
            [
                "clicks 2013-01-01T10:00:00Z: 1 record is missing at input silver.clicks: offsets clicks 0 [2, 3)"
            ],
        ),
        (
            table(Batch(0, 0, 5, terms(read=5, written=4, filtered=1)), offsets=[(0, 2), (3, 4)]),
            [
                (
                    "clicks 2013-01-01T10:00:00Z to 2013-01-01T10:01:00Z: 1 record is missing at table silver.clicks: "
                    "offsets clicks 0 [2, 3), clicks 0 [4, 5)"
                ),
            ],
        ),
    ],
)
def test_table_against_the_log(facts: TableFacts, expected: list[str]) -> None:
    found = Findings("clicks")
    check_table(found, log((0, 3, START_MS), (3, 5, NEXT_MS)), facts)
    assert [str(each) for each in found.findings] == expected


def test_rows_of_offsets_that_the_log_does_not_have_are_stray() -> None:
    found = Findings("clicks")
    check_table(found, log((0, 3, START_MS), end=5), table(Batch(0, 0, 5), offsets=[(0, 4)]))
    assert [str(each) for each in found.findings] == [
        "clicks: silver.clicks has 1 row of records that the brokers do not hold: offsets clicks 0 [3, 4)"
    ]


def test_bucket_is_open_until_its_grace_is_over_and_while_a_job_has_not_read_it() -> None:
    of = log((0, 3, START_MS), (3, 5, NEXT_MS))
    found = Findings("clicks")
    check_producers(found, of, Claims(), LATER_MS)
    ended = START_MS + 60_000
    states = [
        [each.words for each in verdicts(found, bucket_ms=60_000, now_ms=now_ms, grace_ms=60_000)]
        for now_ms in (ended + 59_000, ended + 60_000, ended + 120_000)
    ]
    assert states == [["still open", "still open"], ["complete", "still open"], ["complete", "complete"]]
    check_table(found, of, table(Batch(0, 0, 4, terms(read=4, written=4)), offsets=[(0, 4)]))
    words = [each.words for each in verdicts(found, bucket_ms=60_000, now_ms=LATER_MS, grace_ms=0)]
    assert words == ["complete", "still open 1"]


def mirrored(
    *runs: tuple[int, int], offsets: tuple[int, int], start: int = 0, compacted: bool = False
) -> MirrorFacts:
    """A mirror that has records at these offsets of its own, and what it keeps of where they first stood."""
    there = {0: [BucketRun(*offsets, START_MS)]}
    copy = TopicLog("east:clicks", 60_000, there, {0: (start, offsets[1])}, (), compacted)
    return mirror_facts("east", copy, {0: Runs(runs)})


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (mirrored((0, 0), offsets=(0, 5)), []),
        (mirrored((0, 0), offsets=(0, 3)), []),  # the rest is not copied yet
        (mirrored((0, 2), offsets=(0, 3)), []),  # what stood before had expired
        (mirrored((0, 0), offsets=(2, 5), start=2), []),  # as some of it there
        (
            mirrored((0, 0), (2, 3), offsets=(0, 4)),
            ["clicks 2013-01-01T10:00:00Z: 1 record is missing at mirror east: offsets clicks 0 [2, 3)"],
        ),
        (
            mirrored((0, 0), (3, 1), offsets=(0, 5)),
            [
                (
                    "clicks 2013-01-01T10:00:00Z: 2 records stand there more than once at mirror east: offsets "
                    "clicks 0 [1, 3)"
                ),
            ],
        ),
        (mirrored((0, 0), (2, 3), offsets=(0, 4), compacted=True), []),
        (mirrored(offsets=(0, 5)), []),  # nothing is known of it
    ],
)
def test_mirror_against_the_log(facts: MirrorFacts, expected: list[str]) -> None:
    found = Findings("clicks")
    check_mirror(found, log((0, 5, START_MS)), facts)
    assert [str(each) for each in found.findings] == expected


def test_records_between_runs_that_the_origin_has_no_more_are_not_missing_at_the_mirror() -> None:
    found = Findings("clicks")
    check_mirror(found, log((0, 2, START_MS), (3, 5, START_MS)), mirrored((0, 0), (2, 3), offsets=(0, 4)))
    assert found.findings == []
    assert [(c.tier, c.where, c.count, c.open) for c in found.counts] == [("mirror", "east", 4, 0)]
