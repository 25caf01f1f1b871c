"""The spec of a check: defaults, contradictions, and the SQL that it stands for."""

import dataclasses
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest

import headwater_streams
from headwater_streams.base.check import OF_RECORDS
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


def test_check_may_not_be_called_as_the_quarantine_calls_faults_of_records():
    """They would count as its own, and one at_most= would stop the job for the other."""
    sources = Path(headwater_streams.__file__).parent
    text = "".join(path.read_text() for path in sources.rglob("*.py"))
    literal = {*re.findall(r'Problem\(\s*"(\w+)"', text), *re.findall(r'incomplete\("(\w+)"', text)}
    assert literal <= {*OF_RECORDS}
    assert {"value", "event_time", "producer"} <= literal
    for name in OF_RECORDS:
        with pytest.raises(InvalidCheckError, match="call it otherwise"):
            Check(name, "a > 0")
        Check(name, "a > 0", action="warn")
