"""What an audit of counts says of small cases, each sentence of it."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from headwater_client import Appended, Counts, Source, TopicTotals
from headwater_streams.base.bucket_run import BucketRun
from headwater_streams.ledger.counts import (
    Batch,
    Claims,
    Earlier,
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


def found_by(of: TopicLog, claims: Claims, now_ms: int = LATER_MS) -> Findings:
    """All that producers say they had said before the log was looked at."""
    earlier = Earlier(
        {each.key: each for each in claims.counts},
        {each.record.instance: each.record for each in claims.sources},
    )
    found = Findings("clicks")
    check_producers(found, of, replace(claims, earlier=earlier), now_ms)
    return found


def said(of: TopicLog, claims: Claims, now_ms: int = LATER_MS) -> list[str]:
    return [str(each) for each in found_by(of, claims, now_ms).findings]


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
    living = source(at_ms=START_MS + 20_000, heard_ms=START_MS + 20_000, closed=False)
    claims, now_ms = Claims([claim(0, 2)], [living]), START_MS + 21_000
    assert said(log((0, 3, START_MS)), claims, now_ms) == []
    since = [Mark(START_MS + 5_000, {0: 3})]
    assert len(said(log((0, 3, START_MS), marks=since), claims, now_ms)) == 1
    just_now = [Mark(START_MS + 15_000, {0: 3})]
    assert said(log((0, 3, START_MS), marks=just_now), claims, now_ms) == []


def spoken(of: TopicLog, claims: Claims) -> list[str]:
    """The verdict of each bucket, long after it has ended."""
    found = found_by(of, claims)
    return [each.words for each in verdicts(found, bucket_ms=60_000, now_ms=LATER_MS + 10**9, grace_ms=0)]


def test_what_was_said_after_the_log_was_looked_at_is_open_whatever_the_clocks_say() -> None:
    """Offsets behind the end of the log are missing where they were said before that, and else of later records."""
    of, longer = log((0, 3, START_MS)), claim(0, 5)
    for heard_ms in (None, START_MS, LATER_MS + 3_600_000):
        heard = source(heard_ms=heard_ms, closed=False)
        found = Findings("clicks")
        claims = Claims(
            [longer], [heard], earlier=Earlier({longer.key: claim(0, 3)}, {"web-1": heard.record})
        )
        check_producers(found, of, claims, LATER_MS)
        assert [f for f in found.findings if f.kind != "clock"] == []
        assert [c.open for c in found.counts if c.tier == "producer"] == [2]
        assert said(of, Claims([longer], [heard]))[0] == (
            "clicks 2013-01-01T10:00:00Z: 2 records are missing at broker (web-1): offsets clicks 0 [3, 5)"
        )


def test_what_was_removed_before_an_audit_looked_is_unknown_and_neither_complete_nor_missing() -> None:
    def looked(*runs: tuple[int, int, int], start: int, unseen: Sequence[tuple[int, int]] = ()) -> TopicLog:
        return replace(log(*runs), counted={0: (start, runs[-1][1])}, unseen={0: unseen})

    claims = Claims([claim(0, 5), claim(5, 8, NEXT_MS)], [source()])
    assert spoken(looked((5, 8, NEXT_MS), start=5), claims) == ["unknown 5", "complete"]
    assert spoken(looked((3, 5, START_MS), (5, 8, NEXT_MS), start=3), claims) == ["unknown 3", "complete"]
    # The audit before had seen some of it, and retention was faster than the next one.
    hole = looked((0, 2, START_MS), (5, 8, NEXT_MS), start=0, unseen=[(2, 5)])
    assert spoken(hole, claims) == ["unknown 3", "complete"]
    appended = Claims(appended=[counted_by_broker((0, 5, START_MS), (5, 8, NEXT_MS))])
    assert spoken(hole, appended) == ["unknown 3", "complete"]
    assert spoken(hole, replace(claims, appended=appended.appended)) == ["unknown 3", "complete"]
    # What its batches say of such offsets cannot be compared.
    found, batch = Findings("clicks"), Batch(0, 0, 8, terms(read=8, written=8))
    check_table(found, hole, table(batch, offsets=[(0, 8)]))
    assert found.findings == []


def test_what_is_gone_of_a_compacted_topic_is_unknown_but_for_what_was_behind_its_end() -> None:
    claims = Claims([claim(0, 5)], [source()])
    assert spoken(log((0, 1, START_MS), (3, 5, START_MS), compacted=True), claims) == ["unknown 2"]
    assert spoken(log((0, 1, START_MS), (2, 3, START_MS), compacted=True), claims) == ["missing 2, unknown 1"]


def test_counts_that_may_be_of_a_former_topic_of_that_name_are_unknown_where_they_differ() -> None:
    of, claims = log((0, 3, START_MS)), Claims([claim(0, 5)], [source(acknowledged=9)])
    assert spoken(of, replace(claims, doubtful={claims.counts[0].key})) == ["unknown 2"]
    assert len(said(of, claims)) == 2
    again = replace(of, again=(START_MS, START_MS + 1))
    assert said(again, replace(claims, doubtful={claims.counts[0].key})) == []


def test_records_without_an_offset_are_missing_where_the_log_was_seen_whole() -> None:
    """As of acks=0. What was said after the log was looked at may be behind it."""
    of, claims = log((0, 2, START_MS)), Claims([claim(0, 0, acknowledged=3)], [source()])
    assert spoken(of, claims) == ["missing 1"]
    assert spoken(replace(of, counted={0: (1, 2)}), claims) == ["unknown 1"]
    assert spoken(replace(of, is_compacted=True), claims) == ["unknown 1"]
    before = {claims.counts[0].key: claim(0, 0, acknowledged=2)}
    found = Findings("clicks")
    check_producers(found, of, replace(claims, earlier=Earlier(before)), LATER_MS)
    assert found.findings == []


def test_records_that_a_producer_ended_without_an_answer_of_are_unknown() -> None:
    """It was killed, or its time to end was up. What of them stands there nobody counted."""
    totals = TopicTotals(sent=5, acknowledged=3, unanswered={START_MS: 2})
    record = replace(source(closed=False).record, topics={"clicks": totals})
    dead, living = Heard(record, START_MS), Heard(record, LATER_MS)
    assert spoken(log((0, 3, START_MS)), Claims([claim(0, 3)], [dead])) == ["unknown 2"]
    assert spoken(log((0, 4, START_MS)), Claims([claim(0, 3)], [dead])) == ["uncounted 1, unknown 1"]
    assert spoken(log((0, 5, START_MS)), Claims([claim(0, 3)], [dead])) == ["uncounted 2"]
    assert spoken(log((0, 3, START_MS)), Claims([claim(0, 3)], [living])) == ["still open 2"]
    assert spoken(log((0, 3, NEXT_MS)), Claims([claim(0, 3, NEXT_MS)], [dead])) == ["unknown 2", "complete"]


def test_producer_without_the_brokers_time_is_waited_for() -> None:
    """Where the topic of counts has the producers' own times, a clock that is an hour wrong would judge too early."""
    marks = [Mark(START_MS + 1_000, {0: 3})]
    for hours in (-1, 0, 1):
        heard = source(at_ms=START_MS + 20_000 + hours * 3_600_000, closed=False)
        assert spoken(log((0, 3, START_MS), marks=marks), Claims([claim(0, 2)], [heard])) == ["still open 1"]


def test_source_that_waited_for_brokers_has_said_no_more_than_when_it_was_written() -> None:
    stale = source(at_ms=START_MS, heard_ms=START_MS + 600_000, closed=False)
    of = log((0, 3, START_MS), marks=[Mark(START_MS + 300_000, {0: 3})])
    (only,) = said(of, Claims([claim(0, 2)], [stale]), START_MS + 601_000)
    assert only.startswith("clicks: the clock of producer web-1 is 10 min behind")


def test_records_of_the_minute_in_which_producers_began_to_count_are_not_judged() -> None:
    """One that did not count was replaced by one that does."""
    begun = replace(source().record, opened_ms=START_MS + 30_000)
    of = log((0, 3, START_MS), (3, 5, START_MS))
    assert said(of, Claims([claim(3, 5)], [Heard(begun, START_MS)])) == []


def test_counts_of_narrower_buckets_are_in_those_of_the_audit() -> None:
    wide = replace(log((0, 4, START_MS)), bucket_ms=300_000)
    found = found_by(wide, Claims([claim(0, 2), claim(2, 4, NEXT_MS)], [source()]))
    assert found.findings == []
    assert [(c.bucket_start_ms, c.tier, c.count) for c in found.counts] == [
        (START_MS, "producer", 4),
        (START_MS, "broker", 4),
    ]


def test_producers_that_were_not_heard_of_are_named_once_and_not_all() -> None:
    dead = [source(name, heard_ms=START_MS, closed=False) for name in ("a", "b", "b", "c", "d", "e")]
    (sentence,) = said(log((0, 3, START_MS)), Claims([claim(0, 2)], dead))
    assert "(perhaps of a, b, c and 2 more, which were not heard of since)" in sentence


def test_audit_of_many_buckets_takes_time_by_their_number() -> None:
    def seconds(minutes: int) -> float:
        each, claims, batches = 50, [], []
        for n in range(minutes):
            start_ms = START_MS + n * 60_000
            claims.append(claim(n * each, (n + 1) * each, start_ms))
            batches += [
                Batch(0, at, at + 10, terms(read=10, written=5, filtered=5))
                for at in range(n * each, (n + 1) * each, 10)
            ]
        of = log(*((n * each, (n + 1) * each, START_MS + n * 60_000) for n in range(minutes)))
        appended = [counted_by_broker((a.start, a.end, a.bucket_start_ms)) for a in of.runs[0]]
        rows = table(*batches, offsets=[(at, at + 1) for at in range(0, minutes * each, 2)])
        begun, found = time.process_time(), Findings("clicks")
        check_producers(found, of, Claims(claims, [source()], appended=appended), LATER_MS)
        check_table(found, of, rows)
        assert found.findings == []
        return time.process_time() - begun

    # By the square of it, it would be 64 times as much.
    assert min(seconds(1_600) for _ in range(2)) < 24 * min(seconds(200) for _ in range(3))


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
        (log((0, 3, START_MS), end=5, compacted=True), [counted_by_broker((0, 5, START_MS))], []),
        # What is behind the end was not compacted.
        (log((0, 3, START_MS), compacted=True), [counted_by_broker((0, 5, START_MS))], [LOST]),
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


def test_what_retention_removed_at_the_mirror_between_two_audits_is_not_missing_there() -> None:
    there = {0: [BucketRun(0, 2, START_MS), BucketRun(3, 5, START_MS)]}
    copy = TopicLog("east:clicks", 60_000, there, {0: (0, 5)}, unseen={0: [(2, 3)]})
    for each, count in ((copy, 0), (replace(copy, unseen={}), 1)):
        found = Findings("clicks")
        check_mirror(found, log((0, 5, START_MS)), mirror_facts("east", each, {0: Runs(((0, 0),))}))
        assert len(found.findings) == count
