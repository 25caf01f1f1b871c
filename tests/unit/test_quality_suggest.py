"""Suites that a table's rows suggest: each suggestion is a check, and says what it saw."""

import pyarrow as pa
from deltalake import write_deltalake

from headwater_streams.quality import Check, expect
from headwater_streams.quality.profile import profile_of, profiled
from headwater_streams.quality.suggest import ColumnProfile, as_module, suggested


class _Headwater:
    """What a module calls `hw`, without the job API."""

    Check, expect = Check, expect


def checks_of(found):
    text = as_module("silver.departures", 3, 300, found).replace("import headwater as hw", "")
    scope = {"hw": _Headwater}
    exec(compile(text, "suite.py", "exec"), scope)
    return scope["CHECKS"]


def test_suggestions_are_checks_that_only_warn():
    rows = 300
    profiles = [
        profile_of("carrier", pa.chunked_array([["AA", "UA", "it's"] * 100])),
        profile_of("delay", pa.chunked_array([list(range(rows))])),
        profile_of("tail", pa.chunked_array([[None, *[f"N{n:03}" for n in range(rows - 1)]]])),
        ColumnProfile(name="_offset", kind="number", rows=rows, nulls=0),
    ]
    checks = checks_of(suggested(profiles, keys=["flight_id"]))
    assert {check.name: check.text for check in checks} == {
        "carrier_present": "carrier is not NULL",
        "carrier_known": "carrier is one of AA, UA, it's",
        "delay_present": "delay is not NULL",
        "delay_in_range": "delay is between 0 and 299",
        "delay_unique": "delay is unique in the table",
        "tail_mostly_present": "at most 0.7 % of tail is NULL",
        "tail_length": "the length of tail is between 4 and 4",
        "flight_id_unique": "flight_id is unique in the table",
    }
    assert {check.action for check in checks} == {"warn"}


def test_column_without_values_suggests_nothing():
    assert suggested([ColumnProfile(name="x", kind="text", rows=10, nulls=10)]) == []
    assert suggested([ColumnProfile(name="x", kind="text", rows=0, nulls=0)]) == []


def test_few_rows_suggest_no_set_of_values():
    names = [each.name for each in suggested([profile_of("x", pa.chunked_array([["a", "b"]]))])]
    assert names == ["x_present", "x_length"]


def test_profile_is_that_of_the_newest_version(tmp_path):
    write_deltalake(str(tmp_path / "t"), pa.table({"x": [1, None, 3], "_offset": [0, 1, 2]}))
    version, rows, (profile,) = profiled(tmp_path / "t")
    assert (version, rows, profile.nulls, profile.least, profile.most) == (0, 3, 1, 1, 3)


def test_numbers_that_are_none_suggest_no_bounds():
    nan, inf = float("nan"), float("inf")
    for odd in (nan, inf, -inf):
        profile = profile_of("x", pa.chunked_array([[1.5, odd] * 200]))
        assert [check.name for check in checks_of(suggested([profile]))] == ["x_present"]
    (known,) = suggested([profile_of("x", pa.chunked_array([[0.5, None] * 200]))])
    assert known.rule == "hw.expect.in_set('x', [0.5])"


def test_columns_whose_names_look_alike_have_checks_of_their_own():
    names = ["été", "ôtô", "a" * 200 + "1", "a" * 200 + "2"]
    found = suggested([profile_of(name, pa.chunked_array([[{"x": 1}]])) for name in names])
    checks = checks_of(found)
    assert len({check.name for check in checks}) == 4
    assert [check.name for check in checks[:2]] == ["_t__present", "_t__present_2"]
    assert [check.rule.columns for check in checks] == [(name,) for name in names]


def test_long_texts_suggest_no_set():
    profile = profile_of("x", pa.chunked_array([["a" * 3000, "b"] * 200]))
    assert [each.name for each in suggested([profile])] == ["x_present"]
