"""What a new generation reads again for its state: found in the ledger alone."""

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.ledger.log import Commit
from headwater_streams.runtime.warm_up import WarmUp, first_needed, offsets_needed

MINUTE_US = 60_000_000


def row(version: int, minute: int | None) -> Commit:
    """A commit of an ingest table, and the greatest event time that had come by then."""
    newest = None if minute is None else minute * MINUTE_US
    entry = LedgerEntry(
        job="clean", generation=1, batch=version, table="silver.clicks", kind="row", max_event_time_us=newest
    )
    return Commit(version, 0, "WRITE", 1, 0, True, entry, (f"{version}.parquet",))


def foreign(version: int) -> Commit:
    return Commit(version, 0, "OPTIMIZE", 1, 1, False, None)


def window(batch: int, minute: int | None, **ends: tuple[int, int]) -> LedgerEntry:
    newest = None if minute is None else minute * MINUTE_US
    ranges = {"clicks": {int(name[1:]): span for name, span in ends.items()}}
    sources = (SourceRange(input="clicks", ranges=ranges, topic="clicks"),)
    return LedgerEntry(
        job="hourly",
        generation=1,
        batch=batch,
        table="gold.hourly",
        kind="window",
        sources=sources,
        max_event_time_us=newest,
    )


def test_first_needed_is_behind_the_last_commit_of_which_all_before_is_older() -> None:
    made = [foreign(0), row(1, None), row(2, 10), row(3, 10), foreign(4), row(5, 50), row(6, 70)]
    assert first_needed(made, 0, 11 * MINUTE_US) == 4
    assert first_needed(made, 0, 10 * MINUTE_US + 500) == 0, (
        "a watermark may be rounded down by a millisecond"
    )
    assert first_needed(made, 0, 60 * MINUTE_US) == 6
    assert first_needed(made, 0, 90 * MINUTE_US) == 7


def test_first_needed_is_the_beginning_where_no_entry_says_more() -> None:
    assert first_needed([foreign(3), row(4, None)], 3, 60 * MINUTE_US) == 3
    assert first_needed([row(4, 10)], 3, None) == 3
    assert first_needed([], 3, 10) == 3


def test_offsets_needed_begin_where_the_batch_began_that_read_the_first_young_record() -> None:
    made = [
        window(0, 10, _0=(5, 8)),
        window(1, 20, _0=(8, 10), _1=(0, 3)),
        window(2, 50, _0=(10, 12), _1=(3, 3), _2=(0, 4)),
        window(3, 50, _0=(12, 20), _1=(3, 6), _2=(4, 5)),
    ]
    ended = made[-1].sources[0]
    assert offsets_needed(made, ended, 30 * MINUTE_US) == {"clicks": {0: (10, 20), 1: (3, 6), 2: (0, 5)}}
    assert offsets_needed(made, ended, 15 * MINUTE_US) == {"clicks": {0: (8, 20), 1: (0, 6), 2: (0, 5)}}
    assert offsets_needed(made, ended, None) == {"clicks": {0: (5, 20), 1: (0, 6), 2: (0, 5)}}


def test_offsets_needed_are_all_where_older_entries_do_not_say_what_had_come() -> None:
    made = [window(0, None, _0=(5, 8)), window(1, None, _0=(8, 10))]
    assert offsets_needed(made, made[-1].sources[0], 90 * MINUTE_US) == {"clicks": {0: (5, 10)}}


def test_warm_up_stands_in_the_entry_that_began_the_generation() -> None:
    sources = (
        SourceRange(input="clicks", ranges={"clicks": {0: (3, 9)}}, topic="clicks"),
        SourceRange(input="good", ranges={}, table="silver.clicks", versions=(4, 7)),
    )
    again = WarmUp(watermark_ms=1_000, sources=sources)
    entry = LedgerEntry(
        job="hourly",
        generation=2,
        batch=-1,
        table="gold.hourly",
        kind="generation",
        extra=again.ledger_extra(),
    )
    assert WarmUp.of(LedgerEntry.from_json(entry.to_json())) == again
    assert str(again) == "clicks 0 offsets [3, 9), versions [4, 7) of silver.clicks"
    assert (
        WarmUp.of(
            LedgerEntry(
                job="hourly",
                generation=2,
                batch=0,
                table="gold.hourly",
                kind="window",
                extra=again.ledger_extra(),
            )
        )
        is None
    )
    assert WarmUp.of(None) is None
