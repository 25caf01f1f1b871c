"""Records changed at random: the compiled walk, the walk in Python and both short ways agree, whatever the pieces."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from amount import amount
from bad_batches import raw_record
from headwater_broker.log.walk import PlainWalker, Walker, are_plain, explain, plain_records

_SMALL = st.binary(max_size=3)
_RECORDS = st.lists(
    st.tuples(
        st.none() | _SMALL,
        st.none() | _SMALL,
        st.integers(-200, 3_000),
        st.lists(st.tuples(_SMALL, st.none() | _SMALL), max_size=2),
    ),
    min_size=1,
    max_size=4,
)
_CHANGES = st.lists(
    st.tuples(
        st.sampled_from("rid"),
        st.integers(0, 10**6),
        st.sampled_from((0, 1, 2, 0x7F, 0x80, 0xFF)) | st.integers(0, 255),
    ),
    max_size=3,
)


@settings(max_examples=amount(small=300, full=5_000))
@given(_RECORDS, _CHANGES, st.lists(st.integers(1, 20), max_size=12), st.booleans())
def test_walk_compiled_and_in_python_agree(
    records: list[Any], changes: list[Any], pieces: list[int], has_gaps: bool
) -> None:
    data = bytearray()
    for number, (key, value, delta_ms, headers) in enumerate(records):
        data += raw_record(number, value, key=key, stamp_delta_ms=delta_ms, headers=headers)
    for kind, place, byte in changes:
        at = place % len(data)
        if kind == "r":
            data[at] = byte
        elif kind == "i":
            data.insert(at, byte)
        elif len(data) > 1:
            del data[at]
    count = len(records)
    seen = []
    for kind in (Walker, PlainWalker):
        walker, error, rest = kind(count, 5, 0, 2_000, True, has_gaps), 0, bytes(data)
        for size in [*pieces, len(rest)]:
            error = error or walker.feed(rest[:size])
            rest = rest[size:]
        seen.append((error, walker.state(), walker.wrong(), explain(walker, error, count)))
    assert seen[0] == seen[1]
    _, (_, _, greatest_ms, _, _), _, reason = seen[0]
    for delta_ms in (0, greatest_ms - 5):
        expected = reason is None and delta_ms >= 0 and delta_ms == greatest_ms - 5
        is_plain = are_plain(data, 0, count, delta_ms)
        assert plain_records(data, 0, count, delta_ms) == is_plain
        assert is_plain == expected or has_gaps
