"""Alarms: once when a check breaks and once when it is well again, whatever fails; suites when they are due."""

from datetime import UTC, datetime, timedelta

import pytest

from headwater.running.quality_watch import AlarmBell, by_command
from headwater_streams.quality.alarms import AlarmState, Schedule, alarms
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.results import Judged, append, rows_of
from headwater_streams.storage.home import Home

NOON = datetime(2013, 1, 1, 12, tzinfo=UTC)


def row(minute, outcome, *, check="set", kind="batch", table="silver.departures"):
    return {
        "at": NOON + timedelta(minutes=minute),
        "table": table,
        "check": check,
        "outcome": outcome,
        "kind": kind,
        "job": "departures",
        "batch": minute,
        "version": minute,
        "judged": 10,
        "failed": 2,
        "observed": "",
        "sample": ["departures:0:7"],
    }


def after(state, news):
    for alarm in news:
        state = state.after(alarm)
    return state


def test_check_that_breaks_is_news_once_from_the_batch_that_broke_it():
    rows = [row(0, "held"), row(1, "broken"), row(2, "broken")]
    (alarm,) = alarms(AlarmState(), rows)
    assert alarm.sentence == ("silver.departures: the check 'set' is broken in batch 1: 2 of 10 rows failed")
    assert alarms(after(AlarmState(), [alarm]), [*rows, row(3, "broken")]) == []


def test_check_that_is_well_again_is_news_once_and_knows_since_when_it_was_not():
    state = after(AlarmState(), alarms(AlarmState(), [row(1, "broken")]))
    rows = [row(1, "broken"), row(2, "within")]
    (alarm,) = alarms(state, rows)
    assert (alarm.state, alarm.since) == ("well", "2013-01-01T12:01:00+00:00")
    assert alarms(after(state, [alarm]), rows) == []


def test_check_that_was_well_again_before_anybody_looked_is_no_news():
    assert alarms(AlarmState(), [row(1, "broken"), row(2, "held")]) == []


def test_checks_of_one_name_in_two_tables_are_two():
    rows = [row(1, "broken"), row(2, "held", table="gold.delays")]
    assert [alarm.table for alarm in alarms(AlarmState(), rows)] == ["silver.departures"]


def test_state_is_read_back():
    state = after(AlarmState(), alarms(AlarmState(), [row(1, "broken"), row(2, "broken", check="volume")]))
    assert AlarmState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    ("schedule", "waited_s", "version", "judged", "due"),
    [
        (Schedule(every_s=60), 59, 5, 1, False),
        (Schedule(every_s=60), 60, 5, 1, True),
        (Schedule(every_s=60), 600, 5, 5, False),
        (Schedule(commits=3), 0, 5, 2, True),
        (Schedule(commits=3), 9999, 4, 2, False),
        (Schedule(), 9999, 4, -1, False),
    ],
)
def test_suite_is_due_by_time_or_commits_and_never_for_a_version_that_was_judged(
    schedule, waited_s, version, judged, due
):
    assert schedule.is_due(waited_s=waited_s, version=version, judged_version=judged) is due


def judged(home, minute, outcome):
    result = CheckResult(check="set", outcome=outcome, action="warn", judged=10)
    at_ms = int((NOON + timedelta(minutes=minute)).timestamp() * 1000)
    append(home, rows_of(Judged(kind="batch", at_ms=at_ms, table="a.b", job="j", batch=minute), [result]))


def test_bell_rings_once_and_again_where_it_was_not_heard(tmp_path):
    home, heard, deaf = Home(tmp_path), [], [True]

    def deliver(alarm):
        if deaf[0]:
            raise OSError("nobody there")
        heard.append(alarm.state)

    judged(home, 0, "broken")
    bell = AlarmBell(home, [deliver], lambda: NOON)
    assert not bell.look()
    deaf[0] = False
    assert bell.look()
    assert bell.look()
    assert AlarmBell(home, [deliver], lambda: NOON).look()  # another command does not repeat it
    judged(home, 30, "held")
    bell.look()
    assert heard == ["broken", "well"]


def test_way_that_heard_it_is_not_told_again_because_another_did_not(tmp_path):
    home, heard = Home(tmp_path), []

    def deaf(alarm):
        raise OSError("nobody there")

    judged(home, 0, "broken")
    bell = AlarmBell(home, [heard.append, deaf], lambda: NOON)
    assert not bell.look()
    assert not bell.look()
    assert len(heard) == 1


def test_command_gets_the_alarm_as_json(tmp_path):
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    by_command(f"cat > {tmp_path / 'alarm.json'}")(alarm)
    assert '"state": "broken"' in (tmp_path / "alarm.json").read_text()
    with pytest.raises(OSError, match="ended with status 3"):
        by_command("exit 3")(alarm)
