"""The oracle against rows made by hand, and the comparison against tables that are wrong in one way each."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headwater.demo.compare import add_up_windows, compare
from headwater.demo.flights import archive_path
from headwater.demo.oracle import EXPECTATIONS, Oracle, expected_view

_NEXT_YEAR = datetime(2014, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    return Oracle(archive_path(), month=1)


def _expected(oracle: Oracle, table: str) -> pa.Table:
    """The oracle's own answer as an Arrow table of the types that a job would write."""
    columns = ", ".join(
        f"{name}::timestamp as {name}" if kind.startswith("TIMESTAMP") else name
        for name, kind in EXPECTATIONS[table].columns.items()
    )
    arrow = oracle.connection.sql(f"select {columns} from {expected_view(table)}").to_arrow_table()
    for index, field in enumerate(arrow.schema):
        if pa.types.is_timestamp(field.type):
            zoned = arrow.column(index).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            arrow = arrow.set_column(index, field.name, zoned)
    return arrow


def _write(folder: Path, rows: pa.Table) -> Path:
    write_deltalake(folder, rows)
    return folder


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("silver.departures", 26_483),
        ("silver.arrivals", 26_398),
        ("gold.flights", 26_398),
        ("silver.weather", 2_241),
        ("gold.departures_weather", 26_483),
    ],
)
def test_oracle_january_has_the_rows_of_the_csv(oracle: Oracle, table: str, rows: int) -> None:
    count = oracle.connection.execute(f"select count(*) from {expected_view(table)}").fetchall()
    assert count == [(rows,)]
    assert len(oracle.flights_that_never_left()) == 521


def test_oracle_first_days_have_their_rows_of_the_csv() -> None:
    oracle = Oracle(archive_path(), month=1, days=4)
    counts = {
        table: oracle.connection.execute(f"select count(*) from {expected_view(table)}").fetchone()
        for table in ("silver.departures", "silver.arrivals", "silver.weather", "gold.flights")
    }
    assert counts == {
        "silver.departures": (3_586,),
        "silver.arrivals": (3_567,),
        "silver.weather": (301,),
        "gold.flights": (3_567,),
    }
    assert len(oracle.flights_that_never_left()) == 28


def test_oracle_first_flight_is_the_one_of_the_csv(oracle: Oracle) -> None:
    row = oracle.connection.execute(
        f"from {expected_view('gold.flights')} where flight_id = 'UA-1545-EWR-20130101-515'"
    ).fetchall()
    departed, landed = datetime(2013, 1, 1, 10, 17), datetime(2013, 1, 1, 14, 4)
    assert row == [("UA-1545-EWR-20130101-515", "UA", 1545, "N14228", "EWR", "IAH", departed, 2, landed, 227)]


def test_oracle_departure_has_the_last_report_of_its_airport(oracle: Oracle) -> None:
    row = oracle.connection.execute(
        f"select departed_at, observed_at, temp, visib from {expected_view('gold.departures_weather')} "
        "where flight_id = 'UA-1545-EWR-20130101-515'"
    ).fetchall()
    assert row == [(datetime(2013, 1, 1, 10, 17), datetime(2013, 1, 1, 10), 39.02, 10.0)]


def test_oracle_hours_after_the_data_set_have_reports_without_measurements() -> None:
    december = Oracle(archive_path(), month=12)
    rows = december.connection.execute(
        "select observed_at > '2013-12-30 23:00', count(*), count(temp) > 0 "
        f"from {expected_view('silver.weather')} group by all order by all"
    ).fetchall()
    assert rows == [(False, 2_159, True), (True, 34 * 3, False)]


def test_oracle_windows_sum_to_the_departures(oracle: Oracle) -> None:
    total = oracle.connection.execute(
        f"select sum(departures)::bigint, max(max_delay) from {expected_view('gold.delay_by_carrier')}"
    ).fetchall()
    assert total == [(26_483, 1301)]
    assert 0 < len(oracle.windows_the_first_version_gets_wrong()) <= 201


@pytest.mark.parametrize("table", sorted(EXPECTATIONS))
def test_compare_the_answer_itself_is_equal(oracle: Oracle, tmp_path: Path, table: str) -> None:
    expected = _expected(oracle, table)
    with_ours = expected.append_column("_batch", pa.array([1] * expected.num_rows, pa.int64()))
    comparison = compare(oracle, table, _write(tmp_path / "t", with_ours))
    assert comparison.equal
    assert comparison.rows == comparison.expected == expected.num_rows
    assert comparison.explain().endswith("rows, all as in the CSV")


def test_compare_row_left_out_is_named(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "silver.arrivals")
    comparison = compare(oracle, "silver.arrivals", _write(tmp_path / "t", expected.slice(1)))
    left_out = expected.column("flight_id")[0].as_py()
    assert comparison.missing == ((left_out,),)
    assert f"1 missing ({left_out})" in comparison.explain()
    assert not comparison.equal


def test_compare_row_written_twice_is_named(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "silver.arrivals")
    twice = pa.concat_tables([expected, expected.slice(7, 1)])
    comparison = compare(oracle, "silver.arrivals", _write(tmp_path / "t", twice))
    assert comparison.doubled == ((expected.column("flight_id")[7].as_py(),),)
    assert not comparison.changed
    assert "more than once" in comparison.explain()


def test_compare_row_of_nowhere_is_named(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "silver.arrivals")
    ghost = pa.table({"flight_id": ["GHOST-1"], "landed_at": [_NEXT_YEAR], "air_time": [1]}).cast(
        expected.schema
    )
    comparison = compare(
        oracle, "silver.arrivals", _write(tmp_path / "t", pa.concat_tables([expected, ghost]))
    )
    assert comparison.unexpected == (("GHOST-1",),)
    assert "1 not in the CSV (GHOST-1)" in comparison.explain()


def test_compare_changed_values_are_named_and_tiny_ones_are_not(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "gold.delay_by_carrier")
    averages = expected.column("avg_delay").to_pylist()
    averages[0] += 1e-12
    averages[5] += 1e-6
    averages[9] = None
    index = expected.schema.get_field_index("avg_delay")
    rows = expected.set_column(index, "avg_delay", pa.array(averages, pa.float64()))
    comparison = compare(oracle, "gold.delay_by_carrier", _write(tmp_path / "t", rows))
    keys = {
        (
            expected.column("carrier")[n].as_py(),
            f"{expected.column('window_start')[n].as_py():%Y-%m-%d %H:%M:%S}",
        )
        for n in (5, 9)
    }
    assert comparison.differing == keys
    assert "2 with other values" in comparison.explain()


def test_compare_other_type_is_named(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "silver.arrivals")
    wide = expected.set_column(2, "air_time", expected.column("air_time").cast(pa.int64()))
    comparison = compare(oracle, "silver.arrivals", _write(tmp_path / "t", wide))
    assert not comparison.equal
    assert "air_time BIGINT" in comparison.explain()


def test_compare_older_version_is_the_one_compared(oracle: Oracle, tmp_path: Path) -> None:
    expected = _expected(oracle, "silver.arrivals")
    path = _write(tmp_path / "t", expected.slice(1))
    write_deltalake(path, expected, mode="overwrite")
    assert not compare(oracle, "silver.arrivals", path, version=0).equal
    assert compare(oracle, "silver.arrivals", path).equal


def test_add_up_windows_late_rows_fill_what_the_windows_lack(oracle: Oracle, tmp_path: Path) -> None:
    departures = _expected(oracle, "silver.departures")
    late = _write(tmp_path / "late", departures.slice(100, 1))
    carrier = departures.column("carrier")[100].as_py()
    hour = departures.column("departed_at")[100].as_py().replace(minute=0, second=0)
    windows = _expected(oracle, "gold.delay_by_carrier")
    place = list(
        zip(windows.column("carrier").to_pylist(), windows.column("window_start").to_pylist(), strict=True)
    ).index((carrier, hour))
    counts = windows.column("departures").to_pylist()
    counts[place] -= 1
    index = windows.schema.get_field_index("departures")
    short = _write(tmp_path / "short", windows.set_column(index, "departures", pa.array(counts, pa.int64())))
    whole = _write(tmp_path / "whole", windows)

    key = (carrier, f"{hour:%Y-%m-%d %H:%M:%S}")
    sums = add_up_windows(oracle, short, late)
    assert sums.wrong == ()
    assert (sums.late_windows, sums.late_rows) == (frozenset({key}), 1)
    assert add_up_windows(oracle, whole, late).wrong == (key,)
