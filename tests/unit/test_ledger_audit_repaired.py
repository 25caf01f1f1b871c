"""What an audit says of windows that a repair replaced while they were open, and the live job has written again since.

batch        1      2     repair   3      4
window 10    rows                                   closed
window 11    rows   rows  open     rows             written again, without the repair
window 12           rows  open                      as the repair left it
window 13                                 rows      of none of its windows
"""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.ledger.audit.results import written_again
from headwater_streams.storage.home import Home

TOLD = (
    "gold.delays: 1 row of windows that were open at the swap of backfill delays-1 was written again by the live job "
    "since, from its own state; once they are closed, repair them again: headwater backfill plan delays --event-time "
    "2013-01-01T11:00:00Z 2013-01-01T13:00:00Z"
)


def moment(hour: int) -> str:
    return f"2013-01-01T{hour:02}:00:00Z"


def repair(name: str, first: int, end: int, *, action: str = "swap", opens: int | None = None) -> LedgerEntry:
    extra = {
        "backfill": name,
        "action": action,
        "replaced_version": 2,
        "windows": [[moment(first), moment(end)]],
    }
    if opens is not None:
        extra["open"] = {"windows": [moment(opens), moment(end)], "batch": 2}
    return LedgerEntry(
        job="delays",
        generation=1,
        batch=0,
        table="gold.delays",
        kind="backfill",
        sources=(),
        accounting={},
        fingerprint="f",
        extra=extra,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    rows = [(10, 1, 1), (11, 1, 3), (12, 1, 2), (13, 1, 4)]
    starts = [datetime(2013, 1, 1, hour, tzinfo=UTC) for hour, _, _ in rows]
    table = {
        "window_start": pa.array(starts, pa.timestamp("us", "UTC")),
        "_generation": pa.array([generation for _, generation, _ in rows], pa.int32()),
        "_batch": pa.array([batch for _, _, batch in rows], pa.int64()),
    }
    write_deltalake(home.table("gold.delays"), pa.table(table))
    return home


def test_windows_written_again_since_are_told_with_the_command_that_repairs_them(home: Home) -> None:
    assert written_again(home, "gold.delays", [repair("delays-1", 10, 13, opens=11)]) == [TOLD]


def test_repair_of_windows_that_were_closed_says_nothing(home: Home) -> None:
    assert written_again(home, "gold.delays", []) == []
    assert written_again(home, "gold.delays", [repair("delays-1", 10, 13)]) == []


def test_repair_that_was_rolled_back_or_repeated_says_nothing(home: Home) -> None:
    first = repair("delays-1", 10, 13, opens=11)
    assert written_again(home, "gold.delays", [first, repair("delays-1", 10, 13, action="rollback")]) == []
    assert written_again(home, "gold.delays", [first, repair("delays-2", 11, 13)]) == []
    assert written_again(home, "gold.delays", [first, repair("delays-2", 12, 13)]) == [TOLD]


def test_generation_that_has_read_its_rows_again_says_nothing(home: Home) -> None:
    later = LedgerEntry(**{**vars(repair("delays-1", 10, 13, opens=11)), "generation": 0})
    assert written_again(home, "gold.delays", [later]) == []
