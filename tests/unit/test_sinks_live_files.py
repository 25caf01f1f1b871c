"""Which data files hold a key: what statistics rule out is not opened, what they leave is looked at."""

import math
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_streams.delta import live_files
from headwater_streams.delta.live_files import files_between, files_with

_SCHEMA = pa.schema([("carrier", pa.string()), ("hour", pa.timestamp("us", "UTC")), ("n", pa.int64())])
_START = datetime(2013, 1, 1, tzinfo=UTC)


def _hour(number: float) -> datetime:
    return _START + timedelta(hours=number)


def _append(table: Path, rows: list[tuple[str | None, datetime | None]]) -> str:
    before = set(DeltaTable(str(table)).file_uris()) if table.exists() else set()
    columns = [[row[0] for row in rows], [row[1] for row in rows], list(range(len(rows)))]
    write_deltalake(str(table), pa.table(columns, schema=_SCHEMA), mode="append")
    (made,) = set(DeltaTable(str(table)).file_uris()) - before
    return Path(made).name


def _keys(rows: list[tuple[str | None, datetime | None]]) -> pa.Table:
    columns = [[row[0] for row in rows], [row[1] for row in rows]]
    return pa.table(columns, schema=pa.schema([_SCHEMA.field("carrier"), _SCHEMA.field("hour")]))


def _found(table: Path, version: int, rows: list[tuple[str | None, datetime | None]]) -> list[str]:
    return [file.name for file in files_with(table, version, _keys(rows))]


def test_files_with_only_files_that_hold_a_key(tmp_path: Path) -> None:
    table = tmp_path / "t"
    first = _append(table, [("UA", _hour(0)), ("AA", _hour(3))])
    second = _append(table, [("UA", _hour(1))])
    assert _found(table, 1, [("UA", _hour(1))]) == [second]
    assert _found(table, 1, [("AA", _hour(3)), ("UA", _hour(1))]) in ([first, second], [second, first])
    assert _found(table, 1, [("AA", _hour(1))]) == []
    assert _found(table, 1, [("UA", _hour(3))]) == [], "both parts are in the first file, in different rows"
    assert _found(table, 0, [("UA", _hour(1))]) == [], "the file came with the next version"


def test_files_with_what_statistics_rule_out_is_not_opened(tmp_path: Path) -> None:
    table = tmp_path / "t"
    early = _append(table, [("UA", _hour(0))])
    late = _append(table, [("UA", _hour(9))])
    (table / early).unlink()
    assert _found(table, 1, [("UA", _hour(9))]) == [late]


def test_files_with_times_finer_than_statistics_are_found(tmp_path: Path) -> None:
    table = tmp_path / "t"
    when = _START + timedelta(microseconds=1_999)
    name = _append(table, [("UA", when)])
    assert _found(table, 0, [("UA", when)]) == [name]


def test_files_with_null_equals_null(tmp_path: Path) -> None:
    table = tmp_path / "t"
    without_carrier = _append(table, [(None, _hour(0))])
    without_hour = _append(table, [("UA", None)])
    assert _found(table, 1, [(None, _hour(0))]) == [without_carrier]
    assert _found(table, 1, [("UA", None)]) == [without_hour]
    assert _found(table, 1, [(None, None)]) == []


(_OTHER_NAN,) = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))
_LONG = "x" * 40


_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "DOUBLE": (pa.float64(), [math.nan, -0.0, 0.0, 5e-324, 1.5, math.inf, None]),
    "FLOAT": (pa.float32(), [math.nan, -0.0, 0.0, 1.5, None]),
    "DECIMAL": (pa.decimal128(38, 18), [Decimal("1.5"), Decimal("99999999999.123456789"), Decimal("-1.5"), None]),
    "STRING": (pa.string(), ["", "a", "a ", "A", "\u00e9", "e\u0301", f"{_LONG}1", f"{_LONG}2", "a\0", None]),
    "BINARY": (pa.binary(), [b"", b"a", b"a\0", b"\xff" * 40, b"\xff" * 41, None]),
    "DATE": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "BOOLEAN": (pa.bool_(), [True, False, None]),
    "BIGINT": (pa.int64(), [-(2**63), 2**53, 2**53 + 1, 2**63 - 1, None]),
}  # fmt: skip


@pytest.mark.parametrize("of_type", _KEYS)
def test_files_with_a_key_are_those_whose_key_is_equal_to_spark(tmp_path: Path, of_type: str) -> None:
    kind, values = _KEYS[of_type]
    table, names = tmp_path / "t", list[str]()
    for value in values:
        before = set(DeltaTable(str(table)).file_uris()) if names else set()
        write_deltalake(str(table), pa.table({"k": pa.array([value], kind)}), mode="append")
        names += [Path(made).name for made in set(DeltaTable(str(table)).file_uris()) - before]

    def found(value: Any) -> set[str]:
        keys = pa.table({"k": pa.array([value], kind)})
        return {file.name for file in files_with(table, len(values) - 1, keys)}

    def key(value: Any) -> object:
        return "NaN" if isinstance(value, float) and math.isnan(value) else value

    for value in [*values, *([_OTHER_NAN] if pa.types.is_floating(kind) else [])]:
        assert found(value) == {
            name for name, each in zip(names, values, strict=True) if key(each) == key(value)
        }


@pytest.mark.parametrize(
    ("kept", "narrower", "values"),
    [
        (pa.int64(), pa.int32(), [2**40, 7]),
        (pa.decimal128(20, 5), pa.decimal128(10, 2), [Decimal("123456789012.12345"), Decimal("7.50")]),
        (pa.float64(), pa.float32(), [0.1, 7.0]),
    ],
    ids=str,
)
def test_files_with_keys_of_a_narrower_type_than_the_table_s(
    tmp_path: Path, kept: pa.DataType, narrower: pa.DataType, values: list[Any]
) -> None:
    """What only the wider type can hold is no key of the job's, and no reason to fail."""
    write_deltalake(str(tmp_path / "t"), pa.table({"k": pa.array(values, kept)}))
    found = files_with(tmp_path / "t", 0, pa.table({"k": pa.array([values[1]], narrower)}))
    assert len(found) == 1
    absent = pa.table({"k": pa.array([values[1] + 1], narrower)})
    assert files_with(tmp_path / "t", 0, absent) == []


@pytest.mark.parametrize("rows", [[], [("UA", _hour(0))]])
def test_files_with_empty_side_finds_nothing(
    tmp_path: Path, rows: list[tuple[str | None, datetime | None]]
) -> None:
    table = tmp_path / "t"
    if rows:
        DeltaTable.create(str(table), schema=_SCHEMA)
    else:
        _append(table, [("UA", _hour(0))])
    assert _found(table, 0, rows) == []


def test_files_between_only_files_whose_times_reach_into_the_range(tmp_path: Path) -> None:
    table = tmp_path / "t"
    first = _append(table, [("UA", _hour(0)), ("AA", _hour(3))])
    second = _append(table, [("UA", _hour(4)), ("AA", _hour(6))])
    untimed = _append(table, [("UA", None)])
    third = _append(table, [("UA", _hour(9))])

    def found(version: int, start: float | None, end: float) -> set[str]:
        start_us = None if start is None else round(_hour(start).timestamp() * 1_000_000)
        end_us = round(_hour(end).timestamp() * 1_000_000)
        return set(files_between(table, version, "hour", start_us, end_us))

    assert found(3, 1, 5) == {first, second, untimed}
    assert found(3, 3, 4) == {first, second, untimed}
    assert found(3, 7, 9) == {untimed, third}
    assert found(1, 0, 24) == {first, second}
    assert found(3, None, 3) == {first, untimed}
    assert found(-1, None, 24) == set()


def test_files_with_a_key_that_has_a_dot_beside_a_struct_of_that_field(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for n in (1, 11):
        rows = {"a.b": [n, n + 1], "a": [{"b": n + 100}, {"b": n + 200}], "t.t": [_hour(n), _hour(n)]}
        write_deltalake(str(table), pa.table(rows), mode="append")
    newest = DeltaTable(str(table))
    names = {row["min"]["a.b"]: row["path"] for row in pa.table(newest.get_add_actions()).to_pylist()}
    for wanted, held in ((12, [names[11]]), (102, []), (112, [])):
        assert [each.name for each in files_with(table, 1, pa.table({"a.b": [wanted]}))] == held
    start_us, end_us = (int(_hour(hour).timestamp() * 1e6) for hour in (0, 5))
    assert files_between(table, 1, "t.t", start_us, end_us) == [names[1]]


@pytest.mark.parametrize("column", ["hour", "day", "n"])
def test_keys_of_two_times_open_no_file_of_those_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    opened, holds = list[Path](), live_files._holds

    def noting(file: Path, *more: Any) -> bool:
        opened.append(file)
        return holds(file, *more)

    monkeypatch.setattr(live_files, "_holds", noting)
    hours = [[_hour(day * 24), _hour(day * 24 + 0.9999999)] for day in range(40)]
    for day, of_day in enumerate(hours):
        values = {"hour": of_day, "day": [each.date() for each in of_day], "n": [2 * day, 2 * day + 1]}
        schema = pa.schema([_SCHEMA.field("hour"), ("day", pa.date32()), ("n", pa.int64())])
        write_deltalake(str(tmp_path / "t"), pa.table(values, schema=schema), mode="append")
    keys = pa.table(
        {"hour": [hours[3][1], hours[31][0]], "n": [7, 62]},
        schema=pa.schema([schema.field("hour"), schema.field("n")]),
    )
    keys = keys.append_column(
        schema.field("day"), pa.array([date(2013, 1, 4), date(2013, 2, 1)], pa.date32())
    )
    assert len(files_with(tmp_path / "t", 39, keys.select([column]))) == len(opened) == 2
    assert files_with(tmp_path / "t", 39, keys.select([column]).slice(0, 0)) == []
