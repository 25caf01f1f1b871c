"""Ledger entries: what is written is read back, and books that do not balance say so."""

from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange, merge_ranges

ENTRY = LedgerEntry(
    job="clean",
    generation=1,
    batch=7,
    table="silver.departures",
    kind="row",
    sources=(
        SourceRange(input="departures", ranges={"departures": {0: (10, 20), 1: (0, 5)}}, topic="departures"),
        SourceRange(
            input="flights", ranges={"departures": {0: (1, 2)}}, table="silver.flights", versions=(3, 5)
        ),
    ),
    accounting={"departures": {"read": 15, "written": 12, "filtered": 1, "duplicate": 1, "quarantined": 1}},
    fingerprint="abc",
    max_event_time_us=1357034400000000,
    seen={"\tdepartures\t0": [(0, 20)]},
    extra={"warnings": ["one"]},
    partitions={"departures": {0: {"read": 10, "written": 10}}},
)


def test_entry_to_json_and_back_is_the_same() -> None:
    assert LedgerEntry.from_json(ENTRY.to_json()) == ENTRY


def test_entry_metadata_of_others_is_not_an_entry() -> None:
    for text in (None, "", "{}", "hello", '{"headwater": "2"}', '["headwater"]', '{"headwater": '):
        assert LedgerEntry.from_json(text) is None


def test_entry_imbalance_is_named() -> None:
    assert ENTRY.imbalances() == []
    broken = LedgerEntry(
        job="j",
        generation=1,
        batch=3,
        table="a.b",
        kind="window",
        accounting={"x": {"read": 5, "folded": 3, "late": 1}},
    )
    assert broken.imbalances() == ["a.b batch 3, input x: read 5 is not 3 folded + 1 late"]
    more = LedgerEntry(
        job="j",
        generation=1,
        batch=3,
        table="a.b",
        kind="window",
        accounting={"x": {"read": 5, "folded": 5, "late": 1}},
    )
    assert more.imbalances() == ["a.b batch 3, input x: read 5 is not 5 folded + 1 late"]


def test_entry_as_of_and_semi_sides_have_terms_of_their_own() -> None:
    left = {"read": 9, "matched": 3, "unmatched": 1, "waiting": 2, "filtered": 2, "quarantined": 1}
    right = {"read": 5, "kept": 2, "filtered": 1, "late": 1, "quarantined": 1}
    entry = LedgerEntry(
        job="j", generation=1, batch=3, table="a.b", kind="as_of", accounting={"l": left, "r": right}
    )
    assert entry.imbalances() == []
    broken = LedgerEntry(
        job="j",
        generation=1,
        batch=3,
        table="a.b",
        kind="as_of",
        accounting={"l": left, "r": right | {"kept": 1}},
    )
    assert broken.imbalances() == [
        "a.b batch 3, input r: read 5 is not 1 kept + 1 filtered + 1 late + 1 quarantined"
    ]
    semi = LedgerEntry(
        job="j",
        generation=1,
        batch=3,
        table="a.b",
        kind="join",
        accounting={"r": {"read": 4, "kept": 3, "filtered": 0, "late": 1}},
    )
    assert semi.imbalances() == []


def test_merge_ranges_takes_the_span() -> None:
    assert merge_ranges([{"t": {0: (5, 9)}}, {"t": {0: (2, 6), 1: (0, 1)}}]) == {"t": {0: (2, 9), 1: (0, 1)}}
