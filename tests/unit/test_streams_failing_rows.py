"""Rows for which a stateful job's function raises, as they are written down: which of them a query is to know."""

from pathlib import Path

from headwater_streams.runtime.stages.failing_pairs import blamed_for_pairs
from headwater_streams.runtime.stages.failing_rows import (
    blamed_before,
    carry_blamed,
    carry_failing,
    failing_to_come,
    in_ranges,
    keep_failing,
    known_failing,
    names_earlier,
)


def planned(checkpoint: Path, batch: int, *, done: bool) -> None:
    for folder in ("offsets", "commits") if done else ("offsets",):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
        (checkpoint / folder / str(batch)).touch()


def test_query_names_the_rows_of_batches_that_are_not_done_alone(tmp_path: Path) -> None:
    keep_failing(tmp_path, 0, {"sales": {("sales", 0, 3): "why"}})
    assert failing_to_come(tmp_path) == {"sales": {("sales", 0, 3): "why"}}
    planned(tmp_path, 0, done=False)
    assert failing_to_come(tmp_path) == {"sales": {("sales", 0, 3): "why"}}
    planned(tmp_path, 0, done=True)
    assert failing_to_come(tmp_path) == {}
    for batch in range(1, 300):
        planned(tmp_path, batch, done=True)
        keep_failing(tmp_path, batch, {"sales": {("sales", 0, 3 + batch): "why"}})
    planned(tmp_path, 300, done=False)
    keep_failing(tmp_path, 300, {"sales": {("sales", 1, 0): "so"}, "returns": {("returns", 0, 1): "this"}})
    assert failing_to_come(tmp_path) == {
        "sales": {("sales", 1, 0): "so"},
        "returns": {("returns", 0, 1): "this"},
    }
    assert len(known_failing(tmp_path)["sales"]) == 301


def test_what_generations_before_knew_is_for_the_batch_that_reads_them_again(tmp_path: Path) -> None:
    before, now = tmp_path / "1", tmp_path / "2"
    keep_failing(before, 7, {"sales": {("sales", 0, 3): "why"}})
    carry_failing(before, now)
    planned(now, 0, done=False)
    assert failing_to_come(now) == {"sales": {("sales", 0, 3): "why"}}
    assert names_earlier(now)
    planned(now, 0, done=True)
    assert failing_to_come(now) == {}
    assert not names_earlier(now)
    assert not names_earlier(before)
    assert known_failing(now) == {"sales": {("sales", 0, 3): "why"}}


def test_rebuild_knows_what_was_blamed_before_it_and_computes_it_like_all_else(tmp_path: Path) -> None:
    before, now = tmp_path / "1", tmp_path / "2"
    carry_blamed(before, now)
    assert blamed_before(now) == {}
    found = {"sales": {("sales", 0, 3): "why"}}
    keep_failing(before, 7, found)
    carry_blamed(before, now)
    carry_blamed(before, now)
    assert blamed_before(now) == found
    assert (known_failing(now), failing_to_come(now), names_earlier(now)) == ({}, {}, False)
    keep_failing(now, 0, {"returns": {("returns", 0, 1): "so"}})
    assert blamed_before(now) == found


def test_rows_of_some_offsets_and_those_that_were_to_blame_for_a_pair() -> None:
    rows = {
        ("sales", 0, 3): "[DIVIDE_BY_ZERO] Division by zero. (as a pair with returns 0 offset 5)",
        ("sales", 0, 4): "ValueError: x",
        ("sales", 1, 4): "ValueError: x",
    }
    assert [*in_ranges(rows, {"sales": {0: (4, 9)}, "returns": {1: (0, 9)}})] == [("sales", 0, 4)]
    assert blamed_for_pairs(rows) == [("sales", 0, 3)]
