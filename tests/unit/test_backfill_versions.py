"""The versions that a rewind can go back to, told by a table's log and its job's checkpoints alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import main
from headwater_streams.base.ledger_entry import LedgerEntry

JOB, TABLE = "clean_departures", "silver.departures"
REFERENCE = f"jobs/flights.py:{JOB}"


def batch(generation: int, number: int) -> LedgerEntry:
    terms = {"departures": {"read": 7, "written": 5, "filtered": 2, "duplicate": 0, "quarantined": 0}}
    return LedgerEntry(
        job=JOB, generation=generation, batch=number, table=TABLE, kind="row", accounting=terms
    )


def begun(generation: int, number: int, action: str, **extra: Any) -> LedgerEntry:
    return LedgerEntry(
        job=JOB,
        generation=generation,
        batch=number,
        table=TABLE,
        kind="generation",
        extra={"action": action, **extra},
    )


def repair(action: str) -> LedgerEntry:
    extra = {"action": action, "backfill": f"{JOB}-12345678"}
    return LedgerEntry(
        job=JOB, generation=1, batch=1 if action == "swap" else 2, table=TABLE, kind="backfill", extra=extra
    )


def write(home: Path, *entries: LedgerEntry | None, kept: dict[int, range]) -> None:
    """A table's log, a commit for each entry, and of each generation the batches that its checkpoint has."""
    log = home / "tables" / "silver" / "departures" / "_delta_log"
    log.mkdir(parents=True)
    for version, entry in enumerate(entries):
        told = {} if entry is None else {"userMetadata": entry.to_json()}
        info = {"commitInfo": {"timestamp": 1356998400000 + 1000 * version, "operation": "WRITE", **told}}
        added = {"add": {"path": f"f{version}", "dataChange": True, "stats": '{"numRecords": 5}'}}
        (log / f"{version:020}.json").write_text(f"{json.dumps(info)}\n{json.dumps(added)}")
    for generation, batches in kept.items():
        for folder in ("offsets", "commits"):
            path = home / "checkpoints" / JOB / str(generation) / folder
            path.mkdir(parents=True)
            for number in batches:
                (path / str(number)).write_text('v1\n{"batchWatermarkMs":0}\n{}')


def listed(home: Path, capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    assert main(["backfill", "versions", REFERENCE, "--json", "--home", str(home), *more]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    return found


def test_versions_are_those_of_the_batches_that_the_table_comes_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    back = begun(2, 1, "rewind", restored_version=2)
    log = [None, batch(1, 0), batch(1, 1), batch(1, 2), back, batch(2, 2), batch(2, 3)]
    write(tmp_path, *log, kept={1: range(1, 3), 2: range(1, 4)})
    found = listed(tmp_path, capsys)
    assert [(each["version"], each["generation"], each["batch"]) for each in found] == [
        (6, 2, 3),
        (5, 2, 2),
        (2, 1, 1),
        (1, 1, 0),
    ]
    assert {key: found[2][key] for key in ("read", "written", "committed_at", "why_not")} == {
        "read": 7,
        "written": 5,
        "committed_at": "2013-01-01T00:00:02Z",
        "why_not": None,
    }
    assert found[0]["why_not"] == "it is the last one"
    assert "batch 0 no more (its oldest is batch 1); plan a rebuild" in found[3]["why_not"]
    assert [each["version"] for each in listed(tmp_path, capsys, "--limit", "1")] == [6]


def test_versions_before_a_repair_can_be_put_back_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = [None, batch(1, 0), repair("swap"), batch(1, 1), batch(1, 2), repair("rollback"), batch(1, 3)]
    write(tmp_path, *log, kept={1: range(4)})
    last, *others = listed(tmp_path, capsys)
    assert last["why_not"] == "it is the last one"
    assert [each["why_not"] for each in others] == [None, None, None]


def test_versions_of_a_rebuild_have_its_last_batch_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = [None, batch(1, 0), begun(2, -1, "rebuild"), batch(2, 0), batch(2, 1)]
    write(tmp_path, *log, kept={2: range(2)})
    assert [each["version"] for each in listed(tmp_path, capsys)] == [4, 3]


def test_versions_of_a_table_of_another_job_are_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    verb = ["backfill", "versions", REFERENCE, "--home", str(tmp_path)]
    assert main([*verb, "--table", "gold.x"]) == 1
    assert f"gold.x is no table of the job '{JOB}'; it writes {TABLE}" in capsys.readouterr().err
    assert main(verb) == 1
    assert f"there is no table {TABLE}, so" in capsys.readouterr().err
