"""What a rebuild had let go of is found again once it was taken over, once, whatever stood there before."""

from pathlib import Path

from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.memory import ColdOrigins, take_over


def let_go(table: Path, job: str, generation: int, end: int) -> list[str]:
    """A job that lets go of all origins but two; gives their names."""
    cold = ColdOrigins(table, job, at_hand=2)
    seen = {f"far\tfile-{number}\t0": IntervalSet([(0, end)]) for number in range(5)}
    left = cold.let_go(seen, seen, generation, 0)
    assert cold.since == generation
    return [name for name in seen if name not in left]


def found(table: Path, job: str, generation: int, names: list[str]) -> dict[str, list[tuple[int, int]]]:
    cold = ColdOrigins(table, job)
    cold.since = generation
    return {name: intervals.pairs() for name, intervals in cold.with_those_of(names, {}).items()}


def test_take_over_of_what_a_shadow_let_go_of_is_found_and_taken_once(tmp_path: Path) -> None:
    table, shadow = tmp_path / "seen", tmp_path / "shadow"
    live = let_go(table, "clean", 1, 10)
    stale = let_go(table, "clean", 2, 99)
    others = let_go(table, "other", 2, 7)
    names = let_go(shadow, "clean", 2, 20)
    assert names
    for _ in range(2):
        take_over(table, shadow, "clean", 2)
        assert found(table, "clean", 2, stale) == {name: [(0, 20)] for name in names}
        assert found(table, "clean", 1, live) == {name: [(0, 10)] for name in live}
        assert found(table, "other", 2, others) == {name: [(0, 7)] for name in others}


def test_take_over_of_nothing_changes_nothing(tmp_path: Path) -> None:
    take_over(tmp_path / "seen", tmp_path / "shadow", "clean", 2)
    assert not (tmp_path / "seen").exists()
    names = let_go(tmp_path / "shadow", "clean", 2, 5)
    take_over(tmp_path / "seen", tmp_path / "shadow", "clean", 2)
    assert found(tmp_path / "seen", "clean", 2, names) == {name: [(0, 5)] for name in names}
