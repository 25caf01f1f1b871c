"""Whether a check is held or broken: by its action, its bound and the rows that failed."""

import pytest

from headwater_streams.base.record import NewerRecordError
from headwater_streams.base.rule import Judgement
from headwater_streams.quality import Check, InvalidCheckError
from headwater_streams.quality.check_result import (
    CheckResult,
    merged,
    of_batch,
    of_rows,
    results_of,
    sentence,
    stops,
)


@pytest.mark.parametrize(
    ("action", "at_most", "failed", "outcome", "stopped"),
    [
        ("warn", None, 0, "held", False),
        ("warn", None, 1, "broken", False),
        ("warn", "1 %", 1, "within", False),
        ("warn", "1 %", 2, "broken", False),
        ("fail", None, 1, "broken", True),
        ("fail", "1 %", 1, "within", False),
        ("fail", "1 %", 2, "broken", True),
        ("quarantine", None, 100, "within", False),
        ("quarantine", "1 %", 1, "within", False),
        ("quarantine", "1 %", 2, "broken", True),
        ("drop", None, 100, "within", False),
        ("drop", 1, 2, "broken", True),
    ],
)
def test_check_of_rows_is_broken_beyond_what_it_allows(action, at_most, failed, outcome, stopped):
    check = Check("c", "x > 0", action=action, at_most=at_most)
    result = of_rows(check, judged=100, failed=failed, sample=["t:0:7"])
    assert (result.outcome, stops(result)) == (outcome, stopped)


def test_sentence_says_the_share_that_is_allowed():
    check = Check("c", "x > 0", action="fail", at_most="1 %")
    result = of_rows(check, judged=1000, failed=20)
    assert sentence(check, result) == "20 rows fail the check 'c' (x > 0), of 1,000; it allows 1 %"


@pytest.mark.parametrize(
    ("bounds", "failed", "expected"),
    [
        ({"warn_over": "5 %"}, 5, ("within", "quarantine", False)),
        ({"warn_over": "5 %"}, 6, ("broken", "warn", False)),
        ({"warn_over": 0}, 0, ("held", "quarantine", False)),
        ({"warn_over": 0}, 1, ("broken", "warn", False)),
        ({"warn_over": 2, "at_most": "50 %"}, 50, ("broken", "warn", False)),
        ({"warn_over": 2, "at_most": "50 %"}, 51, ("broken", "quarantine", True)),
    ],
)
def test_many_rows_that_are_taken_out_are_warned_of_and_stop_no_job(bounds, failed, expected):
    result = of_rows(Check("c", "x > 0", **bounds), judged=100, failed=failed)
    assert (result.outcome, result.action, stops(result)) == expected


def test_sentence_says_of_how_many_rows_it_is_warned():
    check = Check("c", "x > 0", warn_over="1 %", at_most="50 %")
    warned, stopped = (of_rows(check, judged=1000, failed=failed) for failed in (20, 600))
    assert sentence(check, warned).endswith("(x > 0), of 1,000; it warns of more than 1 %")
    assert sentence(check, stopped).endswith("(x > 0), of 1,000; it allows 50 %")


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"action": "warn", "warn_over": "1 %"}, "this one is 'warn', whose bound is at_most="),
        ({"level": "batch", "action": "fail", "warn_over": 1}, "is of checks that take rows out"),
        ({"warn_over": "many"}, "warn_over='many' is no share"),
    ],
)
def test_warning_of_many_rows_is_of_checks_that_take_them_out(parts, why):
    with pytest.raises(InvalidCheckError, match=why):
        Check("c", "x > 0", **parts)


def test_check_of_a_batch_that_knows_its_rows_says_so():
    check = Check("c", "avg(x) > 0", level="batch", action="warn")
    result = of_batch(check, judged=5, judgement=Judgement(False, "avg(x) = -1"))
    assert sentence(check, result) == "the batch fails the check 'c' (avg(x) > 0): avg(x) = -1"
    assert not stops(result)


def test_bound_is_of_checks_of_rows():
    with pytest.raises(InvalidCheckError, match="this one judges the batch"):
        Check("c", "avg(x) > 0", level="batch", action="fail", at_most="1 %")


def test_dropped_row_is_one_that_comes_in():
    assert Check("c", "x > 0", action="drop").on == "input"


def test_result_is_read_back_as_it_was_stored():
    full = CheckResult(
        check="c",
        outcome="broken",
        action="warn",
        judged=9,
        failed=2,
        observed="much",
        values={"rows": 9, "newest_us": None},
        sample=("t:0:1",),
    )
    least = CheckResult(check="d", outcome="held", action="fail", judged=9)
    assert results_of([full.to_json(), least.to_json()]) == (full, least)
    assert least.to_json() == {"check": "d", "outcome": "held", "action": "fail", "judged": 9}


def test_result_with_a_key_of_a_newer_headwater_is_refused():
    stored = CheckResult(check="d", outcome="held", action="fail", judged=9).to_json() | {"colour": "red"}
    with pytest.raises(NewerRecordError, match="which this Headwater does not know in the result of a check"):
        results_of([stored])


def test_results_of_two_inputs_are_one_with_the_worse_outcome():
    one = of_rows(Check("c", "x > 0"), judged=10, failed=0)
    other = of_rows(Check("c", "x > 0"), judged=5, failed=2, sample=["t:0:1"])
    both = merged([{"c": one}, {"c": other}])["c"]
    assert (both.judged, both.failed, both.outcome, both.sample) == (15, 2, "within", ("t:0:1",))


def test_check_without_new_parts_has_the_fingerprint_that_it_had():
    check = Check("c", "x > 0")
    assert repr(check) == "Check(name='c', expression='x > 0', on='input', level='row', action='quarantine')"
    assert "at_most='1 %'" in repr(Check("c", "x > 0", at_most="1 %"))
    assert repr(Check("c", "x > 0", warn_over="1 %")) == repr(check)
