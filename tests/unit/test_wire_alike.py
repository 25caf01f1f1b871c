"""Requests told by their bytes are what the parser says they are."""

from __future__ import annotations

import random
import struct

import pytest

from amount import drawn_seed
from headwater_broker.testing.batches import build_batch
from headwater_broker.wire import MalformedFrame, parse_request_header
from headwater_broker.wire.alike import ProduceForms, skip_frames
from headwater_broker.wire.primitives import write_uvarint
from headwater_broker.wire.produce import (
    ProduceResult,
    encode_all_produced,
    encode_produce_response,
    encode_produced,
    parse_produce,
)

SEED = drawn_seed()
VERSIONS = range(3, 12)
MAX_FRAME_BYTES = 1_000_000


@pytest.fixture
def rng() -> random.Random:
    print(f"HEADWATER_SEED={SEED}")
    return random.Random(SEED)


def produce(
    version: int,
    correlation_id: int,
    records: bytes,
    *,
    client_id: bytes = b"c",
    topic: bytes = b"topic",
    partition: int = 0,
    acks: int = 1,
    transactional_id: bytes | None = None,
    tags: bytes = b"\0\0\0",
) -> bytes:
    """A frame with its length prefix."""
    head = struct.pack(">hhih", 0, version, correlation_id, len(client_id)) + client_id
    end = struct.pack(">hi", acks, 1000)
    if version >= 9:
        name = b"\0" if transactional_id is None else bytes([len(transactional_id) + 1]) + transactional_id
        body = b"\0" + name + end + b"\2" + bytes([len(topic) + 1]) + topic + b"\2"
        body += struct.pack(">i", partition) + write_uvarint(len(records) + 1) + records + tags
    else:
        name = b"\xff\xff"
        if transactional_id is not None:
            name = struct.pack(">h", len(transactional_id)) + transactional_id
        body = name + end + struct.pack(">ih", 1, len(topic)) + topic
        body += struct.pack(">iii", 1, partition, len(records)) + records
    return struct.pack(">i", len(head) + len(body)) + head + body


def learnt(*frames: bytes) -> ProduceForms:
    forms = ProduceForms()
    for frame in frames:
        view = memoryview(frame)[4:]
        header = parse_request_header(view)
        forms.learn(view, header, parse_produce(view, header.body_position, header.api_version))
    return forms


def take(forms: ProduceForms, data: bytes, start: int = 0) -> tuple[list[bytes], list[int]]:
    buffer = bytearray(data)
    form = forms.find(buffer, start)
    if form is None:
        return [], []
    records, ids = form.take(buffer, memoryview(buffer), start, len(data), MAX_FRAME_BYTES)
    return [bytes(each) for each in records], ids


@pytest.mark.parametrize("version", VERSIONS)
def test_alike_requests_in_a_row_are_taken_with_their_records(version: int, rng: random.Random) -> None:
    sent = [rng.randbytes(size) for size in (100, 61, 127, 128, 129, 300, 16382, 16383, 70000)]
    frames = [produce(version, number * 7, records) for number, records in enumerate(sent)]

    records, ids = take(learnt(produce(version, 5, b"x" * 80)), b"".join(frames) + frames[0][:-1])

    assert records == sent
    assert ids == [number * 7 for number in range(len(sent))]
    assert skip_frames(bytearray(b"".join(frames)), 0, 3) == sum(map(len, frames[:3]))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "other",
    [
        {"client_id": b"d"},
        {"topic": b"topix"},
        {"partition": 1},
        {"acks": 0},
        {"transactional_id": b"t"},
        {"topic": b"longer-topic"},
    ],
    ids=str,
)
def test_alike_other_request_ends_the_row_and_is_found_once_learnt(
    version: int, other: dict[str, object]
) -> None:
    plain = produce(version, 1, b"x" * 70)
    odd = produce(version, 2, b"y" * 70, **other)  # type: ignore[arg-type]
    forms = learnt(plain)

    assert take(forms, plain + odd + plain)[1] == [1]
    assert take(forms, odd) == ([], [])
    assert forms.wants_more

    both = learnt(plain, odd)
    if "transactional_id" in other:
        assert take(both, odd) == ([], [])
    else:
        assert (take(both, odd)[1], take(both, plain)[1], take(both, odd)[1]) == ([2], [1], [2])


@pytest.mark.parametrize("version", [3, 8])
def test_alike_other_version_is_not_taken(version: int) -> None:
    assert take(learnt(produce(version, 1, b"x" * 70)), produce(version + 1, 1, b"x" * 70)) == ([], [])


@pytest.mark.parametrize("version", [7, 9])
def test_alike_request_with_any_byte_changed_is_taken_only_as_the_parser_reads_it(
    version: int, rng: random.Random
) -> None:
    good = produce(version, 1, bytes(build_batch([b"v" * 200])))
    forms = learnt(good)
    for position in range(len(good)):
        for value in {0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)}:
            data = bytearray(good)
            data[position] = value
            records, ids = take(forms, bytes(data) + good)
            if not records:
                continue
            view = memoryview(data)[4 : 4 + struct.unpack_from(">i", data)[0]]
            header = parse_request_header(view)
            ((topic, partition, start, end),) = parse_produce(view, header.body_position, version).partitions
            assert (topic, partition, header.client_id) == (b"topic", 0, b"c")
            assert (records[0], ids[0]) == (bytes(view[start:end]), header.correlation_id)


def test_alike_requests_of_any_bytes_never_pass_the_end(rng: random.Random) -> None:
    for version in (7, 9):
        good = produce(version, 1, b"x" * 100)
        forms = learnt(good)
        for _ in range(2000):
            size = rng.randrange(13, len(good))
            head = struct.pack(">i", rng.choice((size, size - 4, rng.randrange(-5, 300)))) + good[4:size]
            data = head + rng.randbytes(rng.randrange(20))
            try:
                records, _ = take(forms, data)
            except MalformedFrame:
                continue
            assert sum(map(len, records)) < len(data)


def test_alike_larger_than_allowed_is_not_taken() -> None:
    frame = produce(9, 1, b"x" * 1000)
    form = learnt(frame).find(bytearray(frame), 0)
    assert form is not None
    for allowed, taken in ((len(frame) - 4, 1), (len(frame) - 5, 0)):
        assert len(form.take(bytearray(frame), memoryview(frame), 0, len(frame), allowed)[0]) == taken


def test_alike_tagged_fields_are_not_learnt() -> None:
    frame = produce(9, 1, b"x" * 100, tags=b"\0\0\1\x07\2ab")
    assert take(learnt(frame), frame) == ([], [])


def test_alike_forms_are_bounded() -> None:
    forms = learnt(
        *(
            produce(9, 1, b"x" * 70, topic=b"t" * size, partition=p)
            for size in range(1, 99)
            for p in range(20)
        )
    )
    assert sum(map(len, forms._by_length.values())) <= 8 * 1024
    assert take(forms, produce(9, 3, b"x" * 70, topic=b"t" * 98, partition=19))[1] == [3]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_to_requests_in_a_row_are_those_to_each(version: int) -> None:
    ids, offsets = [5, 6, -2], [10, 11, 2**40]
    whole = encode_all_produced(ids, offsets, version, b"topic", 3, 7)
    each = zip(ids, offsets, strict=True)
    assert whole == b"".join(encode_produced(i, version, b"topic", 3, o, -1, 7) for i, o in each)
    last = ProduceResult(b"topic", 3, 0, 2**40, -1, 7)
    assert whole.endswith(encode_produce_response(-2, version, [last]))


def test_alike_requests_of_a_long_client_id_are_not_learnt() -> None:
    """A client may name itself anew with each request: it is not to fill the memory with that."""
    frame = produce(9, 1, b"x" * 70, client_id=b"c" * 2000)
    forms = learnt(frame)
    assert take(forms, frame) == ([], [])
    assert forms._by_length == {}
