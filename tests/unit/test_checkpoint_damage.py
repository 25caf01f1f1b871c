"""What is told of a checkpoint of which one file is gone, empty, overwritten, cut, or has a bit flipped."""

from pathlib import Path

import pytest

from damaged_files import DAMAGES, with_checksum, write_batch, write_checkpoint
from headwater.cli import main
from headwater_streams.ledger.audit import audit_home
from headwater_streams.runtime.stages.failing_rows import keep_failing, known_failing
from headwater_streams.spark.checkpoint import (
    first_lost,
    id_of_query,
    next_batch,
    put_back_id,
    read_offsets,
    remove_half_written,
)
from headwater_streams.spark.checkpoint_damage import checkpoint_damage
from headwater_streams.spark.damage_behind import damage_behind
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.home import Home

HARMLESS = {("metadata", "gone"), ("headwater.json", "gone"), ("commits/2", "gone"), ("sources/0/0", "gone")}
"""The id is made anew, and the last batch runs again, which the table has; the rest a start writes again."""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    found = Home(tmp_path)
    for table, kind in (("gold.delays", "window"), ("silver.clean", "row")):
        write_checkpoint(found, table, 3, 10, kind)
    return found


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize(
    "name",
    [
        "metadata",
        "headwater.json",
        "offsets/2",
        "offsets/1",
        "commits/2",
        "sources/0/0",
        "state/0/1/3.delta",
        "state/0/0/1.delta",
    ],
)
def test_damaged_file_is_told_with_its_job_and_the_verb(home: Home, name: str, damage: str) -> None:
    checkpoint = home.checkpoint("delays", 1)
    assert checkpoint_damage(checkpoint, with_state=True) is None
    DAMAGES[damage](checkpoint / name)
    found = checkpoint_damage(checkpoint, with_state=True)
    if (name, damage) in HARMLESS:
        assert found is None
    else:
        assert found is not None
        assert str(found).startswith(f"job 'delays': {checkpoint / name} ")
        assert "headwater jobs renew delays" in str(found)
        assert "\n" not in str(found)
    assert checkpoint_damage(home.checkpoint("clean", 1), with_state=True) is None


def test_id_of_a_query_that_is_gone_is_made_anew_once_batches_are_planned(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    put_back_id(checkpoint)
    assert id_of_query(checkpoint) == "a9"
    (checkpoint / "metadata").unlink()
    put_back_id(checkpoint)
    again = id_of_query(checkpoint)
    assert again not in (None, "a9"), "nor is it held against the checksum of the one before"
    put_back_id(checkpoint)
    assert id_of_query(checkpoint) == again
    put_back_id(home.checkpoint("delays", 2))
    assert id_of_query(home.checkpoint("delays", 2)) is None, "a query that has not begun"


def test_what_a_kill_left_of_a_first_batch_is_removed_and_of_a_later_one_left(home: Home) -> None:
    begun, new = home.checkpoint("delays", 1), home.checkpoint("delays", 2)
    for checkpoint in (begun, new):
        for folder in ("offsets", "commits"):
            (checkpoint / folder).mkdir(parents=True, exist_ok=True)
            (checkpoint / folder / ".0.5d0c.tmp").touch()
        remove_half_written(checkpoint)
    assert [path for folder in ("offsets", "commits") for path in (new / folder).iterdir()] == []
    assert (begun / "offsets" / ".0.5d0c.tmp").exists(), "Spark passes over it where batches are planned"
    assert (begun / "offsets" / "2").exists()


@pytest.mark.parametrize("lost", ["state", "state/0/1"])
def test_state_that_is_gone_is_told(home: Home, lost: str) -> None:
    checkpoint = home.checkpoint("delays", 1)
    (checkpoint / lost).rename(home.root / "away")
    found = checkpoint_damage(checkpoint, with_state=True)
    assert found is not None
    assert found.path.is_relative_to(checkpoint / lost)
    assert checkpoint_damage(checkpoint) is None, "a start leaves the state to Spark"


@pytest.mark.parametrize("damage", DAMAGES)
def test_metadata_of_the_state_is_for_its_readers_alone(home: Home, damage: str) -> None:
    checkpoint = home.checkpoint("delays", 1)
    DAMAGES[damage](checkpoint / "state/0/_metadata/metadata")
    assert checkpoint_damage(checkpoint, with_state=True) is None


def test_old_parts_of_the_state_may_be_gone_behind_a_snapshot(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    for piece in (0, 1):
        (checkpoint / f"state/0/{piece}/1.delta").unlink()
        (checkpoint / f"state/0/{piece}/2.delta").unlink()
        (checkpoint / f"state/0/{piece}/2.snapshot").write_text("whole")
    assert checkpoint_damage(checkpoint, with_state=True) is None


def test_batch_that_was_killed_leaves_no_damage(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    (checkpoint / "commits/2").unlink()
    (checkpoint / "commits/.2.crc").unlink()
    (checkpoint / "state/0/1/3.delta").write_text("half")
    assert checkpoint_damage(checkpoint, with_state=True) is None
    assert next_batch(checkpoint) == (2, 5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ("v1\n", "is no file of a checkpoint"),
        ("v1\n[]", "is no JSON object"),
        ("v1\n{}", "does not say batchWatermarkMs"),
        ('v1\n{"batchWatermarkMs":5}\n{"clicks":', "is no JSON"),
    ],
)
def test_offsets_that_are_none_are_one_sentence(home: Home, text: str, told: str) -> None:
    checkpoint = home.checkpoint("delays", 1)
    with_checksum(checkpoint / "offsets/2").write_text(text)
    (checkpoint / "offsets/.2.crc").unlink()
    with pytest.raises(DamagedFileError, match=f"offsets/2 {told}"):
        read_offsets(checkpoint, 2)


def test_error_of_spark_is_told_as_the_damage_that_it_comes_of(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    broken = checkpoint / "state/0/1/3.delta"
    error = RuntimeError(f"Error reading delta file file:{checkpoint}/state/0/1/4.delta: it does not exist")
    gone = damage_behind(error, home)
    assert gone is not None
    assert gone.path == checkpoint / "state/0/1/4.delta"
    broken.write_text("other")
    found = damage_behind(RuntimeError("null"), home, checkpoint=checkpoint)
    assert found is not None
    assert found.path == broken
    assert damage_behind(found, home, checkpoint=checkpoint) is None, "it is a sentence already"
    assert damage_behind(RuntimeError("null"), home, checkpoint=home.checkpoint("clean", 1)) is None


def test_commit_that_the_table_has_lost_is_told_by_the_checkpoint(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    assert first_lost(checkpoint, 2) is None
    assert first_lost(checkpoint, 1) == 2
    assert first_lost(checkpoint, 0) == 1
    (checkpoint / "offsets" / f"{10**12}").write_text("a copy that went wrong")
    assert first_lost(checkpoint, 2) is None, "found without a look at each number"
    (checkpoint / "offsets" / f"{10**12}").unlink()
    (checkpoint / "commits/2").unlink()
    assert first_lost(checkpoint, 1) is None, "Spark runs it again"


def test_batch_of_a_new_partition_without_records_is_no_lost_commit(home: Home) -> None:
    checkpoint = home.checkpoint("delays", 1)
    text = (checkpoint / "offsets/2").read_text()
    (checkpoint / "offsets/3").write_text(text.replace('{"0": 30}', '{"0": 30, "1": 0}'))
    (checkpoint / "commits/3").write_text('v1\n{"nextBatchWatermarkMs":7}')
    assert first_lost(checkpoint, 2) is None


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone"}))
def test_audit_goes_on_beside_a_damaged_checkpoint(
    home: Home, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    for table in ("gold.delays", "silver.clean"):
        for batch in range(3):
            write_batch(home, table, batch, 10)
    path = home.checkpoint("delays", 1) / "headwater.json"
    DAMAGES[damage](path)
    found = {each.table: each.findings for each in audit_home(home)}
    assert found["silver.clean"] == found["gold.delays"] == []
    (finding,) = found["checkpoints/delays"]
    assert finding.startswith(f"job 'delays': {path} is ")
    assert main(["audit", "--home", str(home.root)]) == 1
    printed = capsys.readouterr().out
    assert finding in printed
    assert "silver.clean" in printed
    assert main(["audit", "silver.clean", "--home", str(home.root)]) == 0


def test_audit_tells_that_a_table_has_lost_its_newest_commit(home: Home) -> None:
    for batch in range(3):
        write_batch(home, "silver.clean", batch, 10)
    assert [each.findings for each in audit_home(home, ["silver.clean"])] == [[]]
    log = home.table("silver.clean") / "_delta_log"
    for name in (f"{2:020d}.json", f".{2:020d}.json.crc"):
        (log / name).unlink()
    findings = [finding for each in audit_home(home, ["silver.clean"]) for finding in each.findings]
    (finding,) = findings
    assert finding == (
        "job 'clean': it has done with batch 2, and silver.clean ends with batch 1: commits of its log are gone; to "
        "read again what it had read: headwater jobs renew clean"
    )


@pytest.mark.parametrize("damage", sorted(DAMAGES.keys() - {"gone"}))
def test_rows_that_raise_are_not_read_from_a_damaged_file(home: Home, damage: str) -> None:
    checkpoint = home.checkpoint("delays", 1)
    found = {"clicks": {("clicks", 0, 3): "DIVIDE_BY_ZERO"}}
    keep_failing(checkpoint, 1, found)
    assert known_failing(checkpoint) == found
    path = checkpoint / "failing/1.json"
    DAMAGES[damage](path)
    with pytest.raises(DamagedFileError, match=r"remove it: the rows that it names are found again") as told:
        known_failing(checkpoint)
    assert str(told.value).startswith(f"job 'delays': {path} is ")
    path.unlink()
    assert known_failing(checkpoint) == {}
