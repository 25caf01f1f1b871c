"""A home is made by one set of arguments, and by one demo at a time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.demo.events import ReplayPlan, ReplaySpec, plan_replay
from headwater.demo.flights import read_month
from headwater.demo.home import DemoHome
from headwater.errors import UsageError


@pytest.fixture(scope="module")
def plan() -> ReplayPlan:
    return plan_replay(ReplaySpec(month=1, seed=1, duplicates=0.05, late=0.002), read_month(1)[:50])


def test_claim_empty_home_then_again_goes_on(plan: ReplayPlan, tmp_path: Path) -> None:
    home = DemoHome(tmp_path / "home")
    assert home.claim(plan) is False
    assert DemoHome(tmp_path / "home").claim(plan) is True


def test_claim_other_arguments_are_named(plan: ReplayPlan, tmp_path: Path) -> None:
    DemoHome(tmp_path).claim(plan)
    other = replace(plan, spec=replace(plan.spec, seed=2))
    with pytest.raises(UsageError, match="was made with --seed 1, not --seed 2: use those"):
        DemoHome(tmp_path).claim(other)


def test_claim_home_of_before_there_were_days_has_the_whole_month(plan: ReplayPlan, tmp_path: Path) -> None:
    home = DemoHome(tmp_path)
    home.claim(plan)
    made = json.loads(home.arguments_path.read_text())
    del made["days"]
    home.arguments_path.write_text(json.dumps(made))
    assert home.claim(plan) is True
    with pytest.raises(UsageError, match="was made with --days 31, not --days 4: use those"):
        home.claim(replace(plan, spec=replace(plan.spec, days=4)))


def test_claim_home_of_the_plain_demo_is_not_one_of_the_full(plan: ReplayPlan, tmp_path: Path) -> None:
    DemoHome(tmp_path).claim(plan)
    with pytest.raises(UsageError, match="was made with no --full, not --full: use those"):
        DemoHome(tmp_path).claim(replace(plan, spec=replace(plan.spec, full=True)))


def test_claim_plan_of_another_version_is_refused(plan: ReplayPlan, tmp_path: Path) -> None:
    DemoHome(tmp_path).claim(plan)
    other = replace(plan, emissions=plan.emissions[1:])
    with pytest.raises(UsageError, match="another version of the demo"):
        DemoHome(tmp_path).claim(other)


def test_claim_tables_of_somebody_else_are_left_alone(plan: ReplayPlan, tmp_path: Path) -> None:
    (tmp_path / "tables" / "gold" / "mine" / "_delta_log").mkdir(parents=True)
    with pytest.raises(UsageError, match="gold tables that the demo did not make"):
        DemoHome(tmp_path).claim(plan)
    assert not (tmp_path / "demo").exists()


def test_locked_second_demo_is_refused(tmp_path: Path) -> None:
    first, second = DemoHome(tmp_path), DemoHome(tmp_path)
    with first.locked(), pytest.raises(UsageError, match="another demo is running"), second.locked():
        pass
    with DemoHome(tmp_path).locked():
        pass
