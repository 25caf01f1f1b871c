"""Small files of a home: what was written is read, and nothing else is."""

import json
from pathlib import Path

import pytest

from damaged_files import DAMAGES, with_checksum
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.stored_files import read_bytes, read_json, write_json

VALUE = {"job": "delays", "rows": 17, "state": ["Aggregate(who, \u00fc)"], "ids": {"0": None}, "share": 0.5}


def test_object_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, VALUE | {"keys": ("a", "b")})
    assert read_json(path) == VALUE | {"keys": ["a", "b"]}


def test_object_of_an_older_version_has_no_digest_and_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(VALUE))
    assert read_json(path) == VALUE


def test_object_of_which_any_bit_is_flipped_is_not_read_as_another(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, VALUE)
    whole = path.read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            data = bytearray(whole)
            data[position] ^= 1 << bit
            path.write_bytes(data)
            try:
                # A flip in the digest's own name makes it a key of the object.
                assert {k: v for k, v in read_json(path).items() if k in VALUE} == VALUE, (position, bit)
            except DamagedFileError:
                continue


def test_object_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, VALUE)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedFileError, match=r"a\.json is (empty|no JSON)"):
            read_json(path)


def test_object_that_is_gone_or_none_is_told(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"a\.json is gone"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1]")
    with pytest.raises(DamagedFileError, match=r"a\.json is no JSON object"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize("size", [1, 511, 512, 513, 1500])
def test_file_is_held_against_the_checksum_that_hadoop_wrote(tmp_path: Path, size: int) -> None:
    path = tmp_path / "17"
    whole = bytes(range(256)) * 6
    path.write_bytes(whole[:size])
    with_checksum(path)
    assert read_bytes(path) == whole[:size]
    for position in range(0, size, 7):
        data = bytearray(whole[:size])
        data[position] ^= 1
        path.write_bytes(data)
        begin = position // 512 * 512
        with pytest.raises(
            DamagedFileError, match=rf"does not match its checksum \.17\.crc from byte {begin} on"
        ):
            read_bytes(path)


@pytest.mark.parametrize("lost", [1, 512, 900])
def test_file_that_is_cut_is_told_by_its_checksum(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "17"
    path.write_bytes(b"x" * 1536)
    with_checksum(path)
    path.write_bytes(b"x" * (1536 - lost))
    with pytest.raises(DamagedFileError, match="checksum"):
        read_bytes(path)


@pytest.mark.parametrize("damage", ["gone", "empty", "garbage"])
def test_checksum_that_is_none_is_passed_over_as_hadoop_does(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "17"
    path.write_bytes(b"x" * 1536)
    with_checksum(path)
    DAMAGES[damage](tmp_path / ".17.crc")
    assert read_bytes(path) == b"x" * 1536
