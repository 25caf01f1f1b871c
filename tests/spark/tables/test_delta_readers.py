"""The tables of a home, the library's own among them, are read whole by other programs that read Delta tables."""

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headwater_streams.delta.compaction import compact
from headwater_streams.ledger.copy import copy_entries
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.memory import SEEN_TABLE, ColdOrigins, take_over
from headwater_streams.runtime.progress import PROGRESS_TABLE, ProgressLog
from headwater_streams.runtime.upkeep import Upkeep, tidy
from headwater_streams.storage.home import Home
from job_kinds import KINDS, three_batches
from other_readers import READERS, Reader, rows_by
from ready_homes import ready_home

_OF = ("rows", "tumbling", "history")
"""Kinds that write all sorts of tables: appended, merged, late, quarantined, and a change log beside a dimension."""


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every table of some homes, by kind and name: as they are written, and in the last one after their upkeep."""
    found: dict[str, Path] = {}
    for kind in (kind for kind in KINDS if kind.name in _OF):
        root = tmp_path_factory.mktemp("home") / "copy"
        made = ready_home(spark, three_batches, kind.jobs(1), {"kind": kind.name, "crash_at": ()})
        shutil.copytree(made, root)
        home = Home(root)
        tended = kind.name == _OF[-1]
        for name in home.tables():
            copy_entries(home, name)
            if tended:
                compact(home.table(name))
        progress = ProgressLog(home, 0)
        progress.event("story", "gold.story", 1, "started", "again")
        progress.flush(now=True)
        seen = {f"far\tfile-{number}\t0": IntervalSet([(0, 5)]) for number in range(4)}
        for place in (home.table(SEEN_TABLE), root / "shadow"):
            ColdOrigins(place, "story", at_hand=1).let_go(dict(seen), seen, 2, 0)
        take_over(home.table(SEEN_TABLE), root / "shadow", "story", 2)
        if tended:
            tidy(home, Upkeep())
            for name in home.tables():
                DeltaTable(str(home.table(name))).create_checkpoint()
        assert {PROGRESS_TABLE, SEEN_TABLE, "headwater.ledger"} <= set(home.tables())
        found |= {f"{kind.name}: {name}": home.table(name) for name in home.tables()}
    return found


@pytest.fixture(scope="module")
def expected(tables: dict[str, Path], spark: SparkSession) -> dict[str, int]:
    return {name: spark.read.format("delta").load(str(path)).count() for name, path in tables.items()}


def test_tables_ask_for_no_newer_protocol_than_1_and_2(tables: dict[str, Path]) -> None:
    newer = {}
    for name, path in tables.items():
        protocol = DeltaTable(str(path)).protocol()
        if (protocol.min_reader_version, protocol.min_writer_version) > (1, 2):
            newer[name] = protocol
    assert newer == {}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_tables_are_read_whole_by_other_programs(
    tables: dict[str, Path], expected: dict[str, int], reader: Reader
) -> None:
    assert rows_by(reader, tables) == expected
