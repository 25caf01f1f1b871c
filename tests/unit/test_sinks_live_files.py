"""Which data files hold a key: what statistics rule out is not opened, what they leave is looked at."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater_streams.sinks.live_files import files_between, files_with

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
