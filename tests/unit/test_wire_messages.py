"""Our readers and writers against kio's, message by message."""

from __future__ import annotations

import io
import random
import struct
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_origin
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from amount import amount, drawn_seed
from headwater_broker.log import finished
from headwater_broker.wire import APIS, Api, MalformedFrame, parse_request_header
from headwater_broker.wire import codec as codec_module
from headwater_broker.wire.apis import API_VERSIONS, FETCH, METADATA, OFFSET_COMMIT, PRODUCE
from headwater_broker.wire.codec import (
    build,
    decode_request,
    decode_request_slices,
    encode_response,
    encode_response_slices,
    is_heavy,
    message_type,
    milliseconds,
)
from headwater_broker.wire.fetch import FetchResult, encode_fetch_response, parse_fetch
from headwater_broker.wire.primitives import read_uvarint, skip_tags, write_uvarint
from headwater_broker.wire.produce import (
    ProduceResult,
    encode_produce_response,
    encode_produced,
    parse_produce,
)
from headwater_broker.wire.reader import read_message, without_none

SEED = drawn_seed()

VERSIONS = [
    (api, version)
    for api in APIS.values()
    for version in range(max(api.lowest, {PRODUCE: 3, FETCH: 4}.get(api.key, 0)), api.highest + 1)
]
each_version = pytest.mark.parametrize(
    ("api", "version"), VERSIONS, ids=[f"{api.name}-v{version}" for api, version in VERSIONS]
)


@pytest.fixture
def rng() -> random.Random:
    print(f"HEADWATER_SEED={SEED}")
    return random.Random(SEED)


def random_message(entity_type: type[Any], rng: random.Random) -> Any:
    """An instance of kio's class with random values."""
    return entity_type(**{field.name: _random_value(field, rng) for field in fields(entity_type)})


def _random_value(field: Any, rng: random.Random) -> Any:
    kind, nullable = without_none(field.type)
    is_tagged = "tag" in field.metadata
    if get_origin(kind) is tuple:
        if nullable and rng.random() < 0.2:
            return None
        element = without_none(get_args(kind)[0])[0]
        return tuple(_random_element(field, element, rng) for _ in range(rng.randrange(4)))
    if nullable and not is_tagged and rng.random() < 0.3:
        return None
    return _random_element(field, kind, rng)


def _random_element(field: Any, kind: Any, rng: random.Random) -> Any:
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return random_message(kind, rng)
    name = field.metadata["kafka_type"]
    if name in ("int8", "int16", "int32", "int64"):
        bits = int(name[3:]) - 1
        return rng.randrange(-(2**bits), 2**bits)
    makers: dict[str, Any] = {
        "uint16": lambda: rng.randrange(2**16),
        "bool": lambda: rng.random() < 0.5,
        "float64": lambda: rng.uniform(-1e12, 1e12),
        "string": lambda: "".join(rng.choice("abc-é") for _ in range(rng.randrange(200))),
        "bytes": lambda: rng.randbytes(rng.randrange(300)),
        "records": lambda: rng.randbytes(rng.randrange(300)),
        "uuid": lambda: UUID(int=rng.randrange(1, 2**128)),
        "error_code": lambda: ErrorCode(rng.randrange(-1, 90)),
        "timedelta_i32": lambda: timedelta(milliseconds=rng.randrange(2**31)),
        "timedelta_i64": lambda: timedelta(milliseconds=rng.randrange(2**40)),
        "datetime_i64": lambda: datetime.fromtimestamp(rng.randrange(2**40) // 1000, UTC),
    }
    return makers[name]()


def written(message: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


# -- the reader --------------------------------------------------------------------------------------------


@each_version
def test_reader_random_requests_read_as_kio_reads_them(api: Api, version: int, rng: random.Random) -> None:
    entity_type = message_type(api.name, version, "request")
    for _ in range(amount(small=5, full=20)):
        data = written(random_message(entity_type, rng))
        theirs, _ = entity_reader(entity_type)(data, 0)
        frame = memoryview(b"xyz" + data)
        assert decode_request(api, version, frame, 3) == theirs
        assert finished(decode_request_slices(api, version, frame, 3)) == theirs


@each_version
def test_reader_truncated_anywhere_is_malformed(api: Api, version: int, rng: random.Random) -> None:
    data = written(random_message(message_type(api.name, version, "request"), rng))
    for end in range(len(data)):
        with pytest.raises(MalformedFrame):
            decode_request(api, version, memoryview(data)[:end], 0)
        with pytest.raises(MalformedFrame):
            finished(decode_request_slices(api, version, memoryview(data)[:end], 0))


@each_version
def test_reader_random_bytes_are_read_or_malformed(api: Api, version: int, rng: random.Random) -> None:
    for _ in range(amount(small=40, full=200)):
        data = bytes(
            rng.choice((0, 0, 1, 2, 0x7F, 0xFF, rng.randrange(256))) for _ in range(rng.randrange(60))
        )
        try:
            if api.key == PRODUCE:
                parse_produce(memoryview(data), 0, version)
            elif api.key == FETCH:
                parse_fetch(memoryview(data), 0, version)
            decode_request(api, version, memoryview(data), 0)
        except MalformedFrame:
            continue


@pytest.mark.parametrize(("version", "count"), [(8, b"\x7f\xff\xff\xff"), (12, b"\xff\xff\xff\xff\x0f")])
def test_reader_count_of_billions_is_malformed_and_allocates_nothing(version: int, count: bytes) -> None:
    with pytest.raises(MalformedFrame, match="array of"):
        decode_request(APIS[METADATA], version, memoryview(count), 0)


def test_reader_in_slices_yields_within_arrays_of_either_depth() -> None:
    body = (
        b"\0\0\0\1\0\1t"
        + struct.pack(">i", 1000)
        + b"".join(struct.pack(">iqh", n, n, 0) for n in range(1000))
    )
    request = b"\0\1g\0\0\0\1\0\1m" + bytes(8) + body
    slices = decode_request_slices(APIS[OFFSET_COMMIT], 2, memoryview(request), 0)
    yields = 0
    while True:
        try:
            next(slices)
            yields += 1
        except StopIteration as end:
            read = end.value
            break
    assert yields == 10
    assert [each.partition_index for each in read.topics[0].partitions] == list(range(1000))


def test_reader_unknown_tagged_field_is_passed_over() -> None:
    request = decode_request(APIS[METADATA], 12, memoryview(b"\x00\x01\x00\x01\x63\x03abc"), 0)
    assert request.topics is None
    assert request.allow_auto_topic_creation


@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63)])
def test_reader_time_longer_than_any_is_the_longest(ms: int) -> None:
    kind = message_type("renew_delegation_token", 2, "request")
    read = read_message(kind, memoryview(b"\x04abc" + ms.to_bytes(8, "big", signed=True) + b"\x00"), 0)
    assert read.hmac == b"abc"
    assert milliseconds(read.renew_period) == (86_399_999_913_600_000 if ms > 0 else -86_399_999_913_600_000)


def test_reader_null_where_none_is_allowed_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="must not be null"):
        decode_request(APIS[12], 0, memoryview(b"\xff\xff"), 0)


# -- the writer --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("api", "version"), [(api, version) for api, version in VERSIONS if api.key not in (PRODUCE, FETCH)]
)
def test_writer_responses_are_frames_that_kio_reads(
    api: Api, version: int, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    entity_type = message_type(api.name, version, "response")
    message = random_message(entity_type, rng)
    frame = encode_response(api, version, 77, plain(message))
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 77)
    has_tags = api.is_flexible(version) and api.key != API_VERSIONS
    start = 9 if has_tags else 8
    back, read = entity_reader(entity_type)(frame, start)
    assert back == message
    assert start + read == len(frame)
    for few in (0, 3):
        monkeypatch.setattr(codec_module, "_STRUCTURES_AT_ONCE", few)
        assert finished(encode_response_slices(api, version, 77, plain(message))) == frame


def test_writer_in_slices_yields_between_entries_and_cuts_what_is_too_long() -> None:
    topics = [
        {
            "error_code": 0,
            "name": "x" * (40_000 if number == 7 else 5),
            "partitions": [],
            "is_internal": False,
        }
        for number in range(1000)
    ]
    values = {"brokers": [], "cluster_id": "c", "controller_id": 1, "topics": topics}
    assert is_heavy(values)
    slices = encode_response_slices(APIS[METADATA], 4, 1, values)
    count = 0
    while True:
        try:
            next(slices)
            count += 1
        except StopIteration as end:
            frame = end.value
            break
    assert count == 1000
    answer = read_message(message_type("metadata", 4, "response"), memoryview(frame), 8)
    assert [len(each.name) for each in answer.topics] == [5] * 7 + [2**15 - 1] + [5] * 992
    assert not is_heavy({**values, "topics": topics[:100]})
    assert is_heavy({"results": [{"configs": [{}] * 100}] * 4})


def test_writer_in_slices_yields_within_a_single_entry() -> None:
    partitions = [{"partition_index": number, "error_code": 0} for number in range(1000)]
    values = {"topics": [{"name": "t", "partitions": partitions}]}
    assert is_heavy(values)
    assert sum(1 for _ in encode_response_slices(APIS[OFFSET_COMMIT], 8, 1, values)) > 1000
    frame = finished(encode_response_slices(APIS[OFFSET_COMMIT], 8, 1, values))
    assert frame == encode_response(APIS[OFFSET_COMMIT], 8, 1, values)


def plain(message: Any) -> dict[str, Any]:
    """kio's message as the plain values that a handler gives."""

    def convert(value: Any) -> Any:
        if is_dataclass(value) and not isinstance(value, type):
            return plain(value)
        if isinstance(value, tuple):
            return [convert(each) for each in value]
        if isinstance(value, timedelta):
            return value // timedelta(milliseconds=1)
        if isinstance(value, datetime):
            return int(value.timestamp() * 1000)
        return value

    return {field.name: convert(getattr(message, field.name)) for field in fields(message)}


def test_build_leaves_out_what_a_version_lacks() -> None:
    values = {"error_code": 25, "generation_id": 3, "protocol_type": "consumer", "protocol_name": "range"}
    values |= {"leader": "a", "member_id": "b", "members": [], "skip_assignment": True}
    oldest = build(message_type("join_group", 0, "response"), values)
    assert oldest.error_code is ErrorCode.unknown_member_id
    assert not hasattr(oldest, "protocol_type")
    newest = build(message_type("join_group", 9, "response"), values)
    assert newest.protocol_type == "consumer"
    assert newest.throttle_time == timedelta(0)


# -- Produce and Fetch by hand -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_random_requests_parse_as_kio_reads_them(version: int, rng: random.Random) -> None:
    entity_type = message_type("produce", version, "request")
    for _ in range(50):
        data = written(random_message(entity_type, rng))
        theirs, _ = entity_reader(entity_type)(data, 0)
        frame = memoryview(b"header" + data)
        ours = parse_produce(frame, 6, version)
        transactional_id = None if ours.transactional_id is None else ours.transactional_id.decode()
        assert transactional_id == theirs.transactional_id
        assert (ours.acks, ours.timeout_ms) == (theirs.acks, theirs.timeout // timedelta(milliseconds=1))
        assert [
            (topic.decode(), partition, frame[start:end].tobytes())
            for topic, partition, start, end in ours.partitions
        ] == [
            (topic.name, partition.index, bytes(partition.records or b""))
            for topic in theirs.topic_data
            for partition in topic.partition_data
        ]
        for end in range(len(frame)):
            with pytest.raises(MalformedFrame):
                parse_produce(frame[:end], 6, version)


@pytest.mark.parametrize("version", range(3, 12))
def test_produce_response_reads_back_by_kio(version: int) -> None:
    results = [
        ProduceResult(b"a", 0, 0, 5, -1, 2),
        ProduceResult(b"a", 1, 10, -1, -1, -1, "too large: é"),
        ProduceResult(b"b" * 200, 0, 0, 2**40, 1234, 0),
    ]
    frame = encode_produce_response(9, version, results)
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 9)
    start = 9 if version >= 9 else 8
    response, read = entity_reader(message_type("produce", version, "response"))(frame, start)
    assert start + read == len(frame)
    flat = [(topic.name, each) for topic in response.responses for each in topic.partition_responses]
    assert [(name, each.index, each.error_code, each.base_offset) for name, each in flat] == [
        ("a", 0, 0, 5),
        ("a", 1, 10, -1),
        ("b" * 200, 0, 0, 2**40),
    ]
    if version >= 5:
        assert flat[0][1].log_start_offset == 2
    if version >= 8:
        assert [each.error_message for _, each in flat] == [None, "too large: é", None]


@pytest.mark.parametrize("version", range(3, 12))
@pytest.mark.parametrize("topic", [b"t", b"a-long-name" * 20])
def test_produced_is_the_response_of_the_ordinary_case(version: int, topic: bytes) -> None:
    log_start_offset = 7 if version >= 5 else -1
    result = ProduceResult(topic, 3, 0, 2**33, 1234, log_start_offset)
    expected = encode_produce_response(99, version, [result])
    assert encode_produced(99, version, topic, 3, 2**33, 1234, log_start_offset) == expected


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_random_requests_parse_as_kio_reads_them(version: int, rng: random.Random) -> None:
    entity_type = message_type("fetch", version, "request")
    for _ in range(50):
        data = written(random_message(entity_type, rng))
        theirs, _ = entity_reader(entity_type)(data, 0)
        ours = parse_fetch(memoryview(data), 0, version)
        replica_id = theirs.replica_state.replica_id if version >= 15 else theirs.replica_id
        assert ours.replica_id == replica_id
        assert ours[1:5] == (
            theirs.max_wait // timedelta(milliseconds=1),
            theirs.min_bytes,
            theirs.max_bytes,
            theirs.isolation_level,
        )
        if version >= 7:
            assert (ours.session_id, ours.session_epoch) == (theirs.session_id, theirs.session_epoch)
            assert list(ours.forgotten) == [
                ((topic.topic_id or UUID(int=0)).bytes if version >= 13 else topic.topic.encode(), number)
                for topic in theirs.forgotten_topics_data
                for number in topic.partitions
            ]
        assert [tuple(each) for each in ours.partitions] == [
            (
                (topic.topic_id or UUID(int=0)).bytes if version >= 13 else topic.topic.encode(),
                each.partition,
                each.current_leader_epoch if version >= 9 else -1,
                each.fetch_offset,
                each.partition_max_bytes,
            )
            for topic in theirs.topics
            for each in topic.partitions
        ]


@pytest.mark.parametrize("version", range(4, 18))
def test_fetch_response_reads_back_by_kio_with_records_in_the_gaps(version: int) -> None:
    names = [UUID(int=1).bytes, UUID(int=2).bytes] if version >= 13 else [b"a", b"b"]
    records = [b"x" * 300, b"", b"yz"]
    results = [
        FetchResult(names[0], 0, 0, 9, 8, 1, len(records[0])),
        FetchResult(names[0], 1, 6, -1, -1, -1, 0),
        FetchResult(names[1], 0, 0, 3, 3, 0, len(records[2])),
    ]
    pieces = encode_fetch_response(5, version, results, session_id=77)
    frame = pieces[0] + b"".join(record + piece for record, piece in zip(records, pieces[1:], strict=True))
    assert struct.unpack_from(">ii", frame) == (len(frame) - 4, 5)
    start = 9 if version >= 12 else 8
    response, read = entity_reader(message_type("fetch", version, "response"))(frame, start)
    assert start + read == len(frame)
    flat = [each for topic in response.responses for each in topic.partitions]
    assert [(each.partition_index, each.error_code, each.high_watermark) for each in flat] == [
        (0, 0, 9),
        (1, 6, -1),
        (0, 0, 3),
    ]
    assert [bytes(each.records or b"") for each in flat] == records
    assert [each.aborted_transactions for each in flat] == [None, None, None]
    if version >= 7:
        assert response.session_id == 77


def test_fetch_response_error_of_the_whole_request() -> None:
    (frame,) = encode_fetch_response(5, 12, [], error_code=70)
    response, _ = entity_reader(message_type("fetch", 12, "response"))(frame, 9)
    assert (response.error_code, response.responses) == (70, ())


# -- header and primitives ---------------------------------------------------------------------------------


def test_header_flexible_skips_tagged_fields() -> None:
    frame = memoryview(struct.pack(">hhih", METADATA, 12, 42, 3) + b"abc" + b"\x01\x05\x02zz" + b"body")
    header = parse_request_header(frame)
    assert header[:4] == (METADATA, 12, 42, b"abc")
    assert frame[header.body_position :].tobytes() == b"body"


def test_header_legacy_null_client_id() -> None:
    header = parse_request_header(memoryview(struct.pack(">hhih", METADATA, 1, 42, -1)))
    assert (header.client_id, header.body_position) == (None, 10)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\x00\x03\x00\x0c", struct.pack(">hhih", 3, 12, 1, 100), struct.pack(">hhih", 3, 12, 1, -1)],
)
def test_header_too_short_is_malformed(frame: bytes) -> None:
    with pytest.raises(MalformedFrame):
        parse_request_header(memoryview(frame))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**14, 2**21, 2**28, 2**32 - 1])
def test_uvarint_round_trip(value: int) -> None:
    encoded = write_uvarint(value)
    assert read_uvarint(memoryview(b"x" + encoded), 1) == (value, 1 + len(encoded))


def test_uvarint_of_more_than_five_bytes_is_malformed() -> None:
    with pytest.raises(MalformedFrame, match="five bytes"):
        read_uvarint(memoryview(b"\xff" * 6), 0)


def test_tags_longer_than_the_frame_are_malformed() -> None:
    with pytest.raises(MalformedFrame, match="passes the end"):
        skip_tags(memoryview(b"\x01\x00\x7f"), 0)


def test_tags_more_than_any_structure_has_are_malformed() -> None:
    assert skip_tags(memoryview(b"\x80\x02" + b"\x07\x00" * 256), 0) == 514
    with pytest.raises(MalformedFrame, match="257 tagged fields"):
        skip_tags(memoryview(b"\x81\x02" + b"\x07\x00" * 257), 0)
    heartbeat = message_type(APIS[12].name, 4, "request")
    with pytest.raises(MalformedFrame, match="257 tagged fields"):
        read_message(heartbeat, memoryview(b"\x02g\0\0\0\x01\x02m\0\x81\x02" + b"\x07\x00" * 257), 0)


def _wide_fetch(*counts: int, forgotten: tuple[int, ...] = ()) -> bytes:
    topics = b"".join(
        struct.pack(">hsi", 1, b"t", count) + struct.pack(">iqqi", 0, 0, 0, 9) * count for count in counts
    )
    without = b"".join(struct.pack(">hsi", 1, b"t", count) + bytes(4 * count) for count in forgotten)
    start = struct.pack(">iiiibiii", -1, 0, 1, 9, 0, 0, -1, len(counts))
    return start + topics + struct.pack(">i", len(forgotten)) + without


def _wide_produce(*counts: int, version: int) -> bytes:
    if version < 9:
        topics = b"".join(struct.pack(">hsi", 1, b"t", count) + bytes(8 * count) for count in counts)
        return struct.pack(">hhii", -1, 1, 9, len(counts)) + topics
    topics = b"".join(b"\x02t" + write_uvarint(count + 1) + bytes(6 * count) + b"\0" for count in counts)
    return b"\0" + struct.pack(">hi", 1, 9) + write_uvarint(len(counts) + 1) + topics + b"\0"


@pytest.mark.parametrize(
    ("counts", "is_taken"),
    [((19_990,), True), ((10_000, 9_990), True), ((20_001,), False), ((10_000, 10_000), False), ((0,) * 20_001, False)],
    ids=["one topic", "two topics", "one topic of more", "two topics of more", "topics without any"],
)  # fmt: skip
def test_requests_for_more_partitions_than_there_are_in_a_broker_are_malformed(
    counts: tuple[int, ...], is_taken: bool
) -> None:
    parses: list[Callable[[], list[Any]]] = [
        lambda: parse_fetch(memoryview(_wide_fetch(*counts)), 0, 7).partitions,
        lambda: list(parse_fetch(memoryview(_wide_fetch(forgotten=counts)), 0, 7).forgotten),
        lambda: list(parse_produce(memoryview(_wide_produce(*counts, version=7)), 0, 7).partitions),
        lambda: list(parse_produce(memoryview(_wide_produce(*counts, version=9)), 0, 9).partitions),
    ]
    for parse in parses:
        if is_taken:
            assert len(parse()) == sum(counts)
        else:
            with pytest.raises(MalformedFrame, match="names more than 20000 topics and partitions"):
                parse()


def test_requests_with_topics_of_less_than_no_partition_get_no_room_by_that() -> None:
    wide = struct.pack(">hhii", -1, 1, 9, 2) + struct.pack(">hsi", 1, b"t", -(2**31))
    wide += struct.pack(">hsi", 1, b"t", 30_000) + bytes(8 * 30_000)
    with pytest.raises(MalformedFrame, match="names more than 20000"):
        parse_produce(memoryview(wide), 0, 7)
