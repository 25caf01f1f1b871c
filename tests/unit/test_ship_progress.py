"""What the progress topic says to a shipper, whatever else somebody wrote into it."""

import json
from dataclasses import replace
from typing import Any

import pytest

from headwater.ship.mark import Mark
from headwater.ship.progress import Entry, entry_key, progress_of

FILE_ID, OTHER_ID = "0" * 16, "1" * 16
ENTRY = Entry(
    FILE_ID, "/a.log", "/a.log", "/a.log", 1, 2**64 - 1, Mark.of(4, b"0123", b"0123"), 3, None, 9, False, 5
)
KEY, OTHER_KEY = entry_key("here", "logs", FILE_ID), entry_key("here", "logs", OTHER_ID)
OTHER = replace(ENTRY, file_id=OTHER_ID)


def changed(**values: Any) -> bytes:
    value = json.loads(ENTRY.to_json())
    mark = {**value["mark"], **values.pop("mark", {})}
    return json.dumps({**value, **values, "mark": mark}).encode()


UNREADABLE = [
    b"",
    b"\xff",
    b"null",
    b"{}",
    b"[" * 200_000,
    b"9" * 5000,
    b'{"mark": 1}',
    changed(mark={"position": -1}),
    changed(mark={"position": 2**70}),
    changed(mark={"head_bytes": 10**12}),
    changed(mark={"tail_bytes": 5}),
    changed(ordinal=-1),
    changed(size=True, saved_ms=10**18),
    changed(path="\ud800"),
    changed(unknown=1),
    changed(file_id=OTHER_ID),
]


@pytest.mark.parametrize("value", UNREADABLE, ids=range(len(UNREADABLE)))
def test_progress_record_that_is_no_entry_is_named_and_the_one_before_it_counts(value: bytes) -> None:
    records = [(0, KEY, ENTRY.to_json()), (1, OTHER_KEY, OTHER.to_json()), (7, KEY, value)]
    progress = progress_of(records, "here", "logs")
    assert progress.entries == (("here", "logs", ENTRY), ("here", "logs", OTHER))
    (sentence,) = progress.passed_over
    assert sentence == (
        "topic __headwater_ship, partition 0, offset 7, key here\\tlogs\\t0000000000000000: the record is no progress "
        "of a file and is passed over; the record before it counts"
    )
    progress = progress_of(records[1:], None, None)
    assert progress.entries == (("here", "logs", OTHER),)
    assert progress.passed_over[0].endswith("its file counts as a new one")


def test_progress_record_that_is_no_entry_is_forgotten_behind_one_that_is() -> None:
    records = [(0, KEY, b"?"), (1, KEY, ENTRY.to_json()), (2, OTHER_KEY, b"?"), (3, OTHER_KEY, None)]
    progress = progress_of(records, "here", "logs")
    assert (progress.entries, progress.passed_over) == ((("here", "logs", ENTRY),), ())


def test_progress_record_of_another_shipper_is_its_own_affair() -> None:
    records = [(0, entry_key("there", "logs", FILE_ID), b"?"), (1, KEY, ENTRY.to_json())]
    assert progress_of(records, "here", "logs").passed_over == ()
    assert progress_of(records, "here", None).entries == (("here", "logs", ENTRY),)


@pytest.mark.parametrize(
    ("key", "name"),
    [(None, "''"), (b"", "''"), (b"\xff\x1b", "\\xff\\x1b"), (b"a\tb\tc\td", "a\\tb\\tc\\td")],
)
def test_progress_record_under_a_key_of_no_file_is_named(key: bytes | None, name: str) -> None:
    progress = progress_of([(4, key, b"{}"), (5, KEY, ENTRY.to_json())], "here", "logs")
    assert progress.entries == (("here", "logs", ENTRY),)
    (sentence,) = progress.passed_over
    assert f"offset 4, key {name}: " in sentence
    assert sentence.endswith("its key is not that of a file")
