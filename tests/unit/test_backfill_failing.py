"""What a repair knows of rows for which the function raises, from step to step, and the offsets that name them."""

from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.repair.failing import KnownFailing
from headwater_streams.plan.job import ErrorBound

A, B, C, D = [("sales", 0, offset) for offset in range(4)]


def test_step_knows_what_it_and_the_one_before_found_and_what_was_planned() -> None:
    known = KnownFailing({"sales": {A: "planned"}})
    known.begin()
    assert known.found == {"sales": {A: "planned"}}
    known.add({"sales": {B: "why"}, "returns": {C: "so"}})
    assert known.of("sales") == {A: "planned", B: "why"}
    known.begin()
    assert known.found == {"sales": {A: "planned", B: "why"}, "returns": {C: "so"}}
    known.add({"sales": {D: "this"}})
    known.begin()
    assert known.of("sales") == {A: "planned", D: "this"}
    assert known.of("returns") == {}
    known.begin()
    assert known.found == {"sales": {A: "planned"}}


def test_offsets_of_places_are_read_as_they_were_written() -> None:
    found = Offsets.at([D, A, B, ("returns", 2, 7)])
    assert found.pairs == {("returns", 2): ((7, 8),), ("sales", 0): ((0, 2), (3, 4))}
    assert Offsets.from_json(found.to_json()) == found
    assert Offsets.from_json([]) == Offsets.at([]) == Offsets(pairs={})


def test_bound_of_a_repair_is_that_of_the_batches_its_rows_came_in() -> None:
    assert ErrorBound.of(5).most(1_000, batches=7) == 35
    assert ErrorBound.of(5).most(40, batches=7) == 20, "half of the rows at the most"
    assert ErrorBound.of(0.1).most(1_000, batches=7) == ErrorBound.of(0.1).most(1_000) == 100
