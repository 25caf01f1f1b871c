"""Which records several rows of a table are of, seen in an array of offsets or counted."""

import random
from collections import Counter

import pyarrow as pa
import pytest

from amount import drawn_seed
from headwater_streams.ledger.repeats import are_apart, more_than_once

SEED = drawn_seed()
SCHEMA = pa.schema(
    [
        ("_generation", pa.int32()),
        ("_topic", pa.string()),
        ("_partition", pa.int32()),
        ("_offset", pa.int64()),
    ]
)
Place = tuple[int | None, str | None, int | None, int]


def table(places: list[Place], chunks: int = 1) -> pa.Table:
    parts = [places[part::chunks] for part in range(chunks)]
    return pa.concat_tables(
        pa.table([pa.array(column, field.type) for column, field in zip(zip(*part, strict=True), SCHEMA, strict=True)],
                 schema=SCHEMA)
        for part in parts if part
    )  # fmt: skip


def found(rows: pa.Table) -> list[Place]:
    repeated = more_than_once(rows)
    columns = (repeated[name].to_pylist() for name in SCHEMA.names)
    return sorted(zip(*columns, strict=True), key=repr)


def test_more_than_once_is_what_counting_finds() -> None:
    rng = random.Random(SEED)
    print("HEADWATER_SEED", SEED)
    for _ in range(200):
        far = rng.choice([0, 0, 2**40])
        there = set[Place]()
        for _ in range(rng.randrange(1, 60)):
            topic, at = rng.choice(["a", "b", None]), rng.randrange(40) + far * rng.randrange(2)
            there.add((rng.choice([0, 1, None]), topic, rng.choice([0, 1, 7, None]), at))
        places: list[Place] = rng.sample(sorted(there, key=repr), len(there))
        places += rng.choices(places, k=rng.choice([0, 0, 1, 3]))
        rng.shuffle(places)
        wanted = sorted((place for place, n in Counter(places).items() if n > 1), key=repr)
        assert found(table(places, rng.choice([1, 2, 5]))) == wanted


@pytest.mark.parametrize(
    ("places", "seen"),
    [
        ([(0, "t", p, n) for p in range(3) for n in range(50)], True),
        ([(0, "t", 0, 2**60), (0, "t", 0, 2**60 + 5)], True),
        ([(0, "t", 0, 0), (0, "t", 0, 2**60)], False),  # too far for an array
        ([(n, f"t{n}", n, n) for n in range(200)], False),  # too many kinds for one
    ],
)
def test_apart_is_seen_where_offsets_lie_together(places: list[Place], seen: bool) -> None:
    assert are_apart(table(places)) == seen
    assert found(table(places)) == []
    assert not are_apart(table([*places, places[-1]]))
    assert found(table([*places, places[-1]])) == [places[-1]]


def test_no_rows_are_apart() -> None:
    assert found(SCHEMA.empty_table()) == []
