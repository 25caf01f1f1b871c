"""The small text files, leader epochs, and names."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from headwater_broker.log import EpochEnd, LogDirError
from headwater_broker.log.checkpoints import (
    DamagedCheckpointError,
    decode_epochs,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
    encode_clean_shutdown,
    encode_epochs,
    encode_meta_properties,
    encode_offsets,
    encode_partition_metadata,
    is_slip,
)
from headwater_broker.log.epochs import LeaderEpochs
from headwater_broker.log.paths import parse_partition_directory

TOPIC_ID = bytes.fromhex("fbfbfb00112233445566778899aabbcc")


def test_offsets_bytes_are_kafkas_but_for_blanks() -> None:
    data = encode_offsets({("b", 0): 5, ("a", 10): 7})
    kafkas = b"0\n2\na 10 7\nb 0 5\n"
    # Kafka splits a line at blanks, and passes over those at its end.
    assert [line.split() for line in data.splitlines()] == [line.split() for line in kafkas.splitlines()]
    blanks = data.removeprefix(kafkas[:-1]).removesuffix(b"\n")
    assert int(blanks.decode().translate(str.maketrans(" \t", "01")), 2) == crc32c(kafkas)
    assert decode_offsets(data) == decode_offsets(kafkas) == {("a", 10): 7, ("b", 0): 5}
    assert encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize(
    "written", [encode_offsets({("b", 0): 5, ("a", 10): 7}), encode_epochs([(0, 0), (3, 17)])]
)
def test_checkpoint_of_which_any_bit_is_flipped_or_that_is_cut_is_refused(written: bytes) -> None:
    decode = decode_offsets if b"b 0 5" in written else decode_epochs
    whole = decode(written)
    for bit in range(len(written) * 8):
        data = bytearray(written)
        data[bit // 8] ^= 1 << bit % 8
        try:
            assert decode(bytes(data)) == whole, bit
        except DamagedCheckpointError:
            continue
    for length in range(1, len(written)):
        try:
            assert decode(written[:length]) == whole, length
        except DamagedCheckpointError:
            continue


def test_offsets_empty_file_as_kafka_makes_it_is_none() -> None:
    assert decode_offsets(b"") == {}


@pytest.mark.parametrize(
    "data", [b"\n", b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0\nx\n", b"\xff\xfe"]
)
def test_offsets_damaged_refused(data: bytes) -> None:
    with pytest.raises(DamagedCheckpointError):
        decode_offsets(data)


def test_epochs_bytes_are_kafkas_but_for_blanks() -> None:
    assert encode_epochs([(0, 0), (3, 17)]).split() == b"0\n2\n0 0\n3 17\n".split()
    assert decode_epochs(b"0\n2\n0 0\n3 17\n") == [(0, 0), (3, 17)]


def test_partition_metadata_bytes_are_kafkas() -> None:
    data = encode_partition_metadata(TOPIC_ID)
    assert data == b"version: 0\ntopic_id: -_v7ABEiM0RVZneImaq7zA"
    assert decode_partition_metadata(data) == TOPIC_ID


@pytest.mark.parametrize(
    "data", [b"", b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", b"version: 0\ntopic_id: x"]
)
def test_partition_metadata_damaged_refused(data: bytes) -> None:
    with pytest.raises(DamagedCheckpointError):
        decode_partition_metadata(data)


def test_meta_properties_reads_what_kafka_writes() -> None:
    data = b"#\n#Sat Nov 21 04:00:00 UTC 2026\nbroker.id=1\nversion=0\ncluster.id=abc=\n"
    assert decode_meta_properties(data) == {"broker.id": "1", "version": "0", "cluster.id": "abc="}
    assert decode_meta_properties(encode_meta_properties({"version": "0", "x": "y"})) == {
        "version": "0",
        "x": "y",
    }


def test_slip_is_an_id_that_differs_in_one_character() -> None:
    flipped = bytearray(TOPIC_ID)
    flipped[3] ^= 4
    assert is_slip(TOPIC_ID, bytes(flipped))
    assert not is_slip(TOPIC_ID, TOPIC_ID)
    assert not is_slip(TOPIC_ID, TOPIC_ID[::-1])


@pytest.mark.parametrize("data", [b"", b"\xff", b"version=2\n", b"version=1\nbroker.id=1\n"])
def test_meta_properties_that_are_damaged_are_no_other_versions(data: bytes) -> None:
    with pytest.raises(DamagedCheckpointError):
        decode_meta_properties(data)


def test_meta_properties_of_kraft_refused() -> None:
    with pytest.raises(LogDirError, match="KRaft"):
        decode_meta_properties(b"version=1\nnode.id=1\n")


def test_clean_shutdown_is_kafkas_json() -> None:
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("events-0", ("events", 0)),
        ("a-b-12", ("a-b", 12)),
        ("events", None),
        ("-1", None),
        ("a-x", None),
        ("a-\u0663", None),
        ("a-1_0", None),
        ("a-", None),
        ("a-0.f00-delete", None),
        ("a-0-future", None),
    ],
)
def test_parse_partition_directory(name: str, parsed: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == parsed


def _epochs() -> LeaderEpochs:
    return LeaderEpochs([(1, 0), (4, 10), (5, 20)])


@pytest.mark.parametrize(("offset", "epoch"), [(-1, -1), (0, 1), (9, 1), (10, 4), (20, 5), (99, 5)])
def test_epochs_at(offset: int, epoch: int) -> None:
    assert _epochs().at(offset) == epoch


@pytest.mark.parametrize(("offset", "start"), [(-1, 0), (0, 10), (9, 10), (10, 20), (20, 2**63 - 1)])
def test_epochs_next_start(offset: int, start: int) -> None:
    assert _epochs().next_start(offset) == start


@pytest.mark.parametrize(
    ("epoch", "end"),
    [(0, (0, 0)), (1, (1, 10)), (2, (1, 10)), (4, (4, 20)), (5, (5, 30)), (6, (-1, -1)), (-1, (-1, -1))],
)
def test_epochs_end_of(epoch: int, end: tuple[int, int]) -> None:
    assert _epochs().end_of(epoch, 30) == EpochEnd(*end)


def test_epochs_assign_older_or_equal_is_no_news() -> None:
    epochs = _epochs()
    assert not epochs.assign(5, 40)
    assert epochs.assign(6, 40)
    assert epochs.latest == 6


def test_epochs_assign_replaces_those_that_wrote_nothing() -> None:
    epochs = _epochs()
    epochs.assign(9, 20)
    assert epochs.entries == [(1, 0), (4, 10), (9, 20)]


def test_epochs_truncate_end_and_start() -> None:
    epochs = _epochs()
    assert epochs.truncate_end(20)
    assert not epochs.truncate_end(20)
    assert epochs.entries == [(1, 0), (4, 10)]
    assert epochs.truncate_start(15)
    assert epochs.entries == [(4, 15)]
    assert not epochs.truncate_start(15)
    assert not epochs.truncate_start(3)
