"""Which commits a table's rows come from: after rebuilds that were swapped in, and versions that were restored."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater_streams.backfill.rewind.sides import undone_of
from headwater_streams.base.ledger_entry import LedgerEntry, is_undone
from headwater_streams.ledger.log import last_entry, lineage, seen_of, since_rebuilt
from headwater_streams.ledger.shared import recreated_topics_after

SHADOW = "backfills/a/rebuilt/tables/gold/x"


def batch(generation: int, number: int) -> LedgerEntry:
    seen = {"\tclicks\t0": [(0, 10 * generation + number)]}
    return LedgerEntry(job="job", generation=generation, batch=number, table="gold.x", kind="row", seen=seen)


def begun(generation: int, action: str, number: int = -1, **extra: Any) -> LedgerEntry:
    return LedgerEntry(
        job="job",
        generation=generation,
        batch=number,
        table="gold.x",
        kind="generation",
        extra={"action": action, **extra},
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "tables" / "gold" / "x"


def write(table: Path, *entries: LedgerEntry | None) -> None:
    """A log with a commit for each entry; None is one by somebody else."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    for version, entry in enumerate(entries):
        told = {} if entry is None else {"userMetadata": entry.to_json()}
        actions = [{"commitInfo": {"timestamp": version, "operation": "WRITE", **told}}]
        (log / f"{version:020}.json").write_text("\n".join(json.dumps(action) for action in actions))


def batches(table: Path, **until: int) -> list[tuple[int, int, int]]:
    """Version, generation and number of each batch that the rows come from."""
    found = since_rebuilt(lineage(table, **until))
    return [(c.version, c.entry.generation, c.entry.batch) for c in found if c.entry and c.entry.is_batch]


def test_lineage_of_batches_alone_is_the_log(table: Path) -> None:
    write(table, None, batch(1, 0), batch(1, 1))
    assert batches(table) == [(1, 1, 0), (2, 1, 1)]
    assert batches(table, until=2) == [(1, 1, 0)]


def test_lineage_of_a_rebuild_has_the_batches_of_its_shadow(table: Path, tmp_path: Path) -> None:
    write(tmp_path / SHADOW, None, begun(2, "rebuild"), batch(2, 0), batch(2, 1))
    write(table, None, batch(1, 0), begun(2, "rebuild", shadow=SHADOW, replaced_version=1), batch(2, 2))
    assert batches(table) == [(2, 2, 0), (2, 2, 1), (3, 2, 2)]
    assert batches(table, until=2) == [(1, 1, 0)]
    write(table, None, batch(1, 0), begun(2, "rebuild", shadow=SHADOW, replaced_version=1))
    (table / "_delta_log" / f"{3:020}.json").unlink()
    last = last_entry(table, "job", 2)
    assert last is not None
    assert last.batch == 1, "where nothing came after it, the shadow's last batch is the generation's"
    assert seen_of(table, "job", 2) == {"\tclicks\t0": [(0, 21)]}


def test_lineage_of_a_restored_version_has_nothing_that_came_after_it(table: Path, tmp_path: Path) -> None:
    write(tmp_path / SHADOW, None, begun(2, "rebuild"), batch(2, 0))
    rebuilt = begun(2, "rebuild", shadow=SHADOW, replaced_version=2)
    restored = begun(3, "restore", 1, restored_version=2, replaced_version=4)
    write(table, None, batch(1, 0), batch(1, 1), rebuilt, batch(2, 1), restored, batch(3, 2))
    assert batches(table) == [(1, 1, 0), (2, 1, 1), (6, 3, 2)]
    last = last_entry(table, "job", 3)
    assert last is not None
    assert last.batch == 2


def test_lineage_of_a_rewind_that_was_taken_back_has_what_the_rewind_left_out(table: Path) -> None:
    rewound = begun(2, "rewind", 0, restored_version=1, replaced_version=3)
    restored = begun(3, "restore", 2, restored_version=3, replaced_version=5)
    log = [None, batch(1, 0), batch(1, 1), batch(1, 2), rewound, batch(2, 1), restored]
    write(table, *log[:6])
    assert batches(table) == [(1, 1, 0), (5, 2, 1)]
    write(table, *log)
    assert batches(table) == [(1, 1, 0), (2, 1, 1), (3, 1, 2)]
    assert seen_of(table, "job", 1, until=3) == {"\tclicks\t0": [(0, 11)]}


def test_ledger_repairs_are_of_no_batch_that_a_rewind_undoes() -> None:
    back = LedgerEntry(
        job="job",
        generation=1,
        batch=2,
        table="gold.x__quarantine",
        kind="backfill",
        extra={"action": "rollback"},
    )
    after = begun(2, "rewind", 1, after={"generation": 1, "batch": 1})
    assert is_undone(batch(1, 2), after)
    assert not is_undone(batch(1, 1), after)
    beyond = begun(4, "rewind", 1, after={"generation": 1, "batch": 1})
    assert is_undone(batch(3, 0), beyond), "of a generation between"
    assert not is_undone(batch(4, 2), beyond), "of the one that goes on from there"
    assert not is_undone(back, after), "its number is the rollback's mark"
    half_back = begun(1, "restore", 2, restored_version=3, replaced_version=5)
    assert not is_undone(half_back, after), "the files that it put back are of the batches that wrote them"


def test_rewind_takes_a_side_table_to_no_version_that_was_taken_back(table: Path) -> None:
    """Found by crash-backfill: rewound to batch 0 and rolled back, then repaired, then rewound to batch 1."""
    rewound = begun(2, "rewind", 0, after={"generation": 1, "batch": 0})
    restored = begun(3, "restore", 1, restored_version=2, after={"generation": 1, "batch": 1})
    swapped = {"action": "swap", "backfill": "job-1"}
    repaired = LedgerEntry(
        job="job", generation=3, batch=1, table="gold.x__quarantine", kind="backfill", extra=swapped
    )
    back = begun(4, "rewind", 1, after={"generation": 1, "batch": 1})
    log = [None, batch(1, 0), batch(1, 1), rewound, batch(2, 1), restored, batch(3, 2), repaired, batch(3, 3)]
    write(table, *log)
    assert undone_of(table, "job", back, {"job-1": {"swap": 9}}, version=2).before == 5, "as restored"
    assert undone_of(table, "job", back, {}, version=2).before is None, "no repair came later"


def test_rows_of_a_generation_are_of_another_topic_from_the_next_one_on_that_began_it_anew() -> None:
    made = [
        batch(1, 0),
        begun(2, "renew", anew=["clicks"]),
        begun(3, "renew"),
        begun(4, "renew", anew=["clicks", "taps"]),
    ]
    assert [recreated_topics_after(made, generation) for generation in (1, 2, 3, 4)] == [
        {"clicks": 2, "taps": 4},
        {"clicks": 4, "taps": 4},
        {"clicks": 4, "taps": 4},
        {},
    ]
