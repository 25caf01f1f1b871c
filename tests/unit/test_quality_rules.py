"""Ready-made checks: the SQL that they stand for, and their judgement of what was measured."""

import pickle
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from headwater_streams.base.at_most import AtMost
from headwater_streams.base.rule import Past
from headwater_streams.quality import Check, InvalidCheckError, expect
from headwater_streams.quality.rules.keys import judged_keys
from headwater_streams.quality.rules.literals import literal

_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000


@pytest.mark.parametrize(
    ("rule", "condition"),
    [
        (expect.not_null("a`b"), "`a``b` IS NOT NULL"),
        (expect.in_set("x", [1, 2]), "(`x` IS NULL OR `x` IN (1, 2))"),
        (expect.matches("x", r"^a\d'"), r"(`x` IS NULL OR `x` RLIKE '^a\\d\'')"),
        (
            expect.between("x", low=Decimal("1.50")),
            "(`x` IS NULL OR (`x` >= 1.50BD AND `x` <= DOUBLE('Infinity')))",
        ),
        (expect.length("x", high=3), "(`x` IS NULL OR length(`x`) <= 3)"),
        (expect.text_of("x", "integer"), "(`x` IS NULL OR try_cast(`x` AS BIGINT) IS NOT NULL)"),
        (expect.between("x", np.float64(1.5), np.int64(7)), "(`x` IS NULL OR (`x` >= 1.5D AND `x` <= 7))"),
        (expect.in_set("x", np.array([0.5, 1], "f4")), "(`x` IS NULL OR `x` IN (0.5D, 1.0D))"),
        (expect.between("x", "a"), "(`x` IS NULL OR `x` >= 'a')"),
    ],
)
def test_rule_on_rows_is_a_condition_that_a_null_passes(rule, condition):
    check = Check("c", rule)
    assert (check.expression, check.level, check.action, check.on) == (
        condition,
        "row",
        "quarantine",
        "input",
    )


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (True, "TRUE"),
        (2, "2"),
        (float("nan"), "DOUBLE('nan')"),
        (date(2013, 1, 2), "DATE '2013-01-02'"),
        (datetime(2013, 1, 2, 3), "TIMESTAMP '2013-01-02 03:00:00'"),
    ],
)
def test_literal_is_that_of_its_type(value, sql):
    assert literal(value) == sql


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: expect.in_set("x", []), "give some"),
        (lambda: expect.in_set("x", "AA"), "one text"),
        (lambda: expect.in_set("x", [b"a"]), "cannot stand in a check"),
        (lambda: expect.between("x"), "give low=, high= or both"),
        (lambda: expect.between("x", 3, 1), "3 is above 1"),
        (lambda: expect.between("x", high=float("nan")), "NaN is no bound"),
        (lambda: expect.between("x", np.float64("nan"), 1), "NaN is no bound"),
        (lambda: expect.in_set("x", ["AA", 1]), "texts and other values in one set"),
        (lambda: expect.text_of("x", "postcode"), "'postcode' is none of"),
        (lambda: expect.matches("x", ""), "no regular expression"),
        (lambda: expect.null_share("x", 10), "no share"),
        (lambda: expect.unique(), "give the columns"),
        (lambda: expect.unique("x", within="world"), "within='world'"),
        (lambda: expect.references("x", "airlines"), "write schema.name"),
        (lambda: expect.references(("x", "y"), "dim.a", "z"), "2 columns refer to 1"),
        (lambda: expect.volume(within=0), "above zero"),
        (lambda: expect.drift("x"), "give edges="),
        (lambda: expect.drift("x", edges=[3, 1]), "not in order"),
        (lambda: expect.drift("x", edges=[float("nan")]), "not in order"),
        (lambda: expect.drift("x", edges=[0, float("nan")]), "not in order"),
        (lambda: expect.drift("x", edges=[1], last=0), "at_most= and last= are above zero"),
        (lambda: expect.drift("x", edges=[1], at_most=float("nan")), "at_most= and last= are above zero"),
        (lambda: expect.same_columns("carrier"), "no list of columns"),
    ],
)
def test_rule_that_cannot_be_meant_is_refused_with_a_sentence(make, named):
    with pytest.raises(InvalidCheckError, match=named.replace("(", r"\(")):
        make()


def test_rule_that_there_is_not_is_told_with_its_like():
    with pytest.raises(
        AttributeError, match=r"hw\.expect has no rule 'notnull'; it has not_null, null_share"
    ):
        _ = expect.notnull  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("rule", "action"),
    [
        (expect.volume(), "warn"),
        (expect.volume(same_hour_of_days=7), "warn"),
        (expect.drift("x", values=["a"]), "warn"),
        (expect.fresh("t", "1 hour"), "warn"),
        (expect.unique("x"), "fail"),
        (expect.references("x", "dim.a"), "fail"),
        (expect.same_columns("x INT"), "fail"),
        (expect.null_share("x", "1 %"), "fail"),
    ],
)
def test_rule_on_batches_stops_the_job_only_where_another_try_may_pass_and_can_be_sent_elsewhere(
    rule, action
):
    check = Check("c", rule)
    assert (check.level, check.action, check.on) == ("batch", action, "output")
    assert Check("c", rule, action="fail").action == "fail"
    assert pickle.loads(pickle.dumps(check)) == check
    assert check.text == rule.text


@pytest.mark.parametrize(
    ("rule", "others"),
    [
        (expect.references("x", "dim.a"), lambda: pa.table({"x": ["a", "b"]})),  # of another type
        (expect.references("x", "dim.a"), lambda: pa.table({"y": [1]}).select(["x"])),
        (expect.unique("s"), lambda: None),
    ],
)
def test_keys_that_cannot_be_compared_break_the_check_and_not_the_job(rule, others):
    keys = pa.table({"x": [1, 2], "s": [[{"a": 1}], [{"a": 1}]]})
    judgement = judged_keys(rule, keys.select(rule.columns), lambda *_: others())
    assert not judgement.holds
    assert judgement.observed.startswith("the keys cannot be compared: ")


def test_freshness_is_that_of_the_newest_time():
    rule = expect.fresh("t", "10 minutes")
    assert rule.judge({"newest_us": 0}, (), 600_000).holds
    assert rule.judge({"newest_us": 0}, (), 600_001).observed == "the newest is 10 minutes old"
    assert not rule.judge({"newest_us": 0}, (), 600_001).holds
    assert rule.judge({"newest_us": None}, (), 600_001).holds  # an empty batch breaks nothing
    assert rule.judge({"newest_us": 600_000_000}, (), 0).holds  # clocks differ a little
    far = rule.judge({"newest_us": 7_200_000_000}, (), 0)
    assert (far.holds, far.observed) == (False, "the newest is 2 hours ahead")
    emptied = rule.judge_table({"newest_us": None}, (), 0)
    assert (emptied.holds, emptied.observed) == (False, "no row has a time")
    assert rule.judge_table({"newest_us": 0}, (), 0).holds


def test_volume_is_compared_with_the_median_of_the_last_batches():
    rule = expect.volume(within=0.5, last=5)
    before = [Past(i, {"rows": rows}) for i, rows in enumerate([9000, 100, 102, 98, 1, 100])]
    assert rule.judge({"rows": 150}, before, 0).holds
    broken = rule.judge({"rows": 49}, before, 0)
    assert (broken.holds, broken.observed) == (
        False,
        "49 rows, and the median of the last 5 batches has 100",
    )
    assert rule.judge({"rows": 0}, before[:4], 0).holds  # too few to say what is usual


def test_volume_by_the_hour_is_that_of_the_same_hour_on_earlier_days():
    rule = expect.volume(within=0.5, same_hour_of_days=2)
    before = []
    for day in (0, 1, 2):
        for hour, rows in ((9, 3600), (10, 36_000)):
            start = day * _DAY_MS + hour * _HOUR_MS
            before += [Past(start, {"rows": rows // 2}), Past(start + _HOUR_MS // 2, {"rows": rows // 2})]
    now = (
        2 * _DAY_MS + 10 * _HOUR_MS + _HOUR_MS // 2 + 60_000
    )  # a minute after the last batch, at 10 rows a second
    assert rule.judge({"rows": 600}, before, now).holds
    assert not rule.judge({"rows": 60}, before, now).holds  # usual at nine, not at ten
    assert rule.judge({"rows": 60}, before[-4:], now).holds  # nothing of earlier days


def test_drift_names_the_bin_that_moved():
    rule = expect.drift("carrier", values=["AA", "UA"], last=5)
    usual = {"'AA'": 50.0, "'UA'": 50.0, "others": 0.0, "NULL": 0.0}
    before = [Past(i, usual) for i in range(5)]
    assert rule.judge({"'AA'": 52, "'UA'": 48, "others": 0, "NULL": 0}, before, 0).holds
    moved = rule.judge({"'AA'": 50, "'UA'": 10, "others": 0, "NULL": 40}, before, 0)
    assert not moved.holds
    assert "NULL went from 0.0 % to 40.0 %" in moved.observed


def test_drift_has_a_bin_for_each_range_and_for_what_is_no_value():
    rule = expect.drift("delay", edges=[0, 60])
    assert list(rule.measures) == ["below 0", "0 to 60", "60 or more", "NULL"]


def test_bins_of_a_drift_have_names_of_their_own():
    near = [1_000_000.1, 1_000_000.2, 1_000_000.3]
    assert len(expect.drift("delay", edges=near).measures) == 5
    rule = expect.drift("kind", values=["others", "NULL", "1", 1, "1"])
    assert list(rule.measures) == ["'others'", "'NULL'", "'1'", "1", "others", "NULL"]


def test_unique_counts_rows_beyond_the_first_and_leaves_nulls_out():
    rule = expect.unique("a", "b")
    rows = pa.table({"a": [1, 1, 1, 2, None, None], "b": ["x", "x", "x", "x", "y", "y"]})
    judged = rule.judge(rows, None)
    assert (judged.holds, judged.failed, judged.sample) == (False, 2, ("a=1, b=x",))
    assert expect.unique("a", "b", at_most="50 %").judge(rows, None).holds


def test_unique_in_the_table_finds_what_stands_there():
    rule = expect.unique("a", within="table")
    judged = rule.judge(pa.table({"a": [1, 2]}), pa.table({"a": [2, 3]}))
    assert (judged.failed, judged.sample) == (1, ("a=2",))


def test_references_finds_keys_that_the_other_table_lacks():
    rule = expect.references("carrier", "dim.airlines", "code")
    judged = rule.judge(pa.table({"carrier": ["AA", "XX", None, "XX"]}), pa.table({"code": ["AA", "UA"]}))
    assert (judged.holds, judged.failed, judged.sample) == (False, 2, ("carrier=XX",))
    assert not rule.judge(pa.table({"carrier": ["AA"]}), None).holds


def test_keys_are_compared_by_their_values():
    nan = float("nan")
    rule = expect.unique("a")
    assert rule.judge(pa.table({"a": [0.0, -0.0, nan, -nan, 1.5]}), None).failed == 2
    assert (
        expect.unique("a", within="table").judge(pa.table({"a": [0.0]}), pa.table({"a": [-0.0]})).failed == 1
    )
    rule = expect.references("a", "dim.a")
    judged = rule.judge(
        pa.table({"a": [-0.0, nan, 2.5]}), pa.table({"a": pa.array([0.0, nan], pa.float32())})
    )
    assert (judged.failed, judged.sample) == (1, ("a=2.5",))
    prices = pa.table({"a": pa.array([Decimal("1.50"), Decimal("1.25")])})
    finer = pa.table({"a": pa.array([Decimal("1.5000"), Decimal("1.2501")])})
    judged = rule.judge(prices, finer)
    assert (judged.failed, judged.observed) == (1, "1 of 2 rows with a key that dim.a lacks")
    assert rule.judge(finer, prices).failed == 1


def test_references_to_a_table_that_there_is_not_say_so():
    judged = expect.references("a", "dim.a").judge(pa.table({"a": [1, None]}), None)
    assert judged.observed == "1 of 2 rows with a key that dim.a lacks, as there is no table dim.a"
    assert expect.references("a", "dim.a").judge(pa.table({"a": pa.array([None], pa.int64())}), None).holds


def test_references_may_be_to_longer_numbers():
    rule = expect.references("id", "dim.users")
    known = pa.table({"id": pa.array([7, 2**40])})
    judged = rule.judge(pa.table({"id": pa.array([7, 8], pa.int32())}), known)
    assert (judged.failed, judged.sample) == (1, ("id=8",))


def test_columns_that_are_gone_changed_or_new_are_named():
    rule = expect.same_columns("carrier STRING, delay INT, p STRUCT<a: INT, b: INT>")
    seen = {
        "carrier": "string",
        "delay": "bigint",
        "_offset": "bigint",
        "gate": "string",
        "p": "struct<a:int,b:int>",
    }
    assert rule.judge(seen).observed == "delay is BIGINT, not INT; gate STRING is new"
    assert expect.same_columns("Carrier string", may_have_more=True).judge(seen).holds


def test_types_of_columns_may_be_spelled_as_sql_does():
    rule = expect.same_columns(
        "`a, b` INTEGER NOT NULL, `c``d` NUMERIC(10, 2), e DEC, f VARCHAR(10), "
        "g STRUCT<x INT, y: ARRAY<LONG>, z REAL NOT NULL>, h TIMESTAMP_LTZ, i MAP<STRING, INTEGER>"
    )
    seen = {
        "a, b": "int",
        "c`d": "decimal(10,2)",
        "e": "decimal(10,0)",
        "f": "string",
        "g": "struct<x:int,y:array<bigint>,z:float>",
        "h": "timestamp",
        "i": "map<string,int>",
    }
    assert rule.judge(seen).observed == "as expected"
    assert rule.judge(seen | {"e": "decimal(9,0)"}).observed == "e is DECIMAL(9,0), not DEC"
    assert not rule.judge(seen | {"g": "struct<x:int,y:array<int>,z:float>"}).holds


@pytest.mark.parametrize(
    ("value", "shown"), [("1%", "1 %"), (0.25, "25 %"), ("0.5 percent", "0.5 %"), (1, "1 row")]
)
def test_bound_is_a_share_or_a_number_of_rows(value, shown):
    assert str(AtMost.of(value)) == shown


@pytest.mark.parametrize(
    "value", ["much", "100 %", -1, 1.5, 1.0, True, None, "1", float("inf"), float("nan")]
)
def test_bound_that_is_neither_is_refused(value):
    with pytest.raises(ValueError, match="no share such as"):
        AtMost.of(value)
