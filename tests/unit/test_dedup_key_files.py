"""Files of recent keys: which of them stay."""

from pathlib import Path

import pyarrow as pa

from headwater_streams.operators.dedup.key_files import KeyFiles
from headwater_streams.operators.dedup.recent_keys import KEY_SCHEMA


def keys(at_us: int) -> pa.Table:
    return pa.table({"key": [1], "more": [2], "at_us": [at_us]}, schema=KEY_SCHEMA)


def test_key_files_stay_while_a_batch_that_is_kept_needs_them(tmp_path: Path) -> None:
    # One row in each batch, a minute apart; those of the last three minutes are needed, and two batches are kept.
    files = KeyFiles(tmp_path)
    for batch in range(10):
        if batch == 6:
            files = KeyFiles(tmp_path)  # the job was started again
            assert [found["at_us"].to_pylist() for found in files.read(3, 5)] == [[3], [4], [5]]
        files.write(batch, keys(batch), batch - 3)
        assert files.since(batch - 3, batch) == max(0, batch - 3)
        files.forget(batch, 2)
        there = sorted(int(path.stem) for path in (tmp_path / "keys").iterdir())
        assert there == list(range(max(0, batch - 2 - 3), batch + 1))
    assert files.read(6, 9)[0].schema.equals(KEY_SCHEMA, check_metadata=True)


def test_key_files_of_an_older_headwater_stay(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path)
    files.write(0, keys(0), None)
    with pa.ipc.new_file(str(tmp_path / "keys" / "0.arrow"), KEY_SCHEMA) as writer:
        writer.write_table(keys(0))
    files.write(1, keys(1), 1)
    files.forget(1, 1)
    assert (tmp_path / "keys" / "0.arrow").exists()
