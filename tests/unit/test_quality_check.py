"""The spec of a check: defaults, contradictions, and the SQL that it stands for."""

import dataclasses
import pickle
import subprocess
import sys

import pytest

from headwater_streams.quality import Check, InvalidCheckError


@pytest.mark.parametrize(
    ("action", "level", "expected"),
    [("quarantine", "row", "input"), ("fail", "row", "output"), ("warn", "batch", "output")],
)
def test_check_without_on_looks_where_its_action_needs(action, level, expected):
    assert Check("c", "x > 0", action=action, level=level).on == expected


def test_check_with_on_keeps_it():
    assert Check("c", "avg(x) > 0", on="input", level="batch", action="fail").on == "input"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"name": ""}, "check name ''"),
        ({"name": "two words"}, "'two words'"),
        ({"name": "a:b"}, "'a:b'"),
        ({"expression": "  "}, "empty"),
        ({"on": "both"}, "on='both' is not one of 'input', 'output'"),
        ({"level": "table"}, "level='table' is not one of 'row', 'batch'"),
        ({"action": "ignore"}, "action='ignore' is not one of 'quarantine', 'drop', 'fail', 'warn'"),
        ({"level": "batch", "action": "quarantine"}, "no row to quarantine"),
    ],
)
def test_check_that_cannot_be_meant_is_refused(arguments, named):
    with pytest.raises(InvalidCheckError) as refusal:
        Check(**({"name": "c", "expression": "x > 0"} | arguments))
    assert named in str(refusal.value)


def test_check_is_immutable_comparable_and_picklable():
    check = Check("c", " x > 0 ")
    assert check == Check("c", "x > 0")
    assert hash(check) == hash(Check("c", "x > 0"))
    assert pickle.loads(pickle.dumps(check)) == check
    assert dataclasses.replace(check, action="warn", on=None).on == "output"
    with pytest.raises(dataclasses.FrozenInstanceError):
        check.name = "d"


def test_row_check_treats_unknown_as_violation_and_batch_check_does_not():
    assert Check("c", "x > 0").passes_sql == "coalesce((x > 0), FALSE)"
    assert (
        Check("c", "avg(x) > 0", level="batch", action="warn").violation_sql
        == "NOT coalesce((avg(x) > 0), TRUE)"
    )


def test_check_imports_without_spark():
    code = "import sys, headwater_streams.quality; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
