"""Alarms: once when a check breaks and once when it is well again, whatever fails; suites when they are due."""

import json
import os
import random
import signal
import subprocess
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import create_server
from subprocess import TimeoutExpired
from threading import Event, Thread
from types import SimpleNamespace

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headwater.running import quality_watch
from headwater.running.quality_watch import AlarmBell, QualityWatch, WatchSettings, by_command, by_webhook
from headwater_streams.quality.alarms import AlarmState, Schedule, alarms, turns
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


def test_rows_that_stay_in_a_table_do_not_ring_for_ever_as_suite_and_batches_take_turns():
    state, told = AlarmState(), []
    for minute in range(0, 60, 2):
        rows = [row(minute, "held"), row(minute + 1, "broken", kind="suite")]
        news = alarms(state, rows)
        told += [(alarm.by, alarm.state) for alarm in news]
        state = after(state, news)
    assert told == [("suite", "broken")]
    (batch,) = alarms(state, [row(61, "broken")])
    assert (batch.by, batch.state) == ("batch", "broken")


@pytest.mark.parametrize("kind", ["backfill", "manual"])
def test_what_a_person_runs_is_no_news(kind):
    found = pa.Table.from_pylist([row(1, "held"), row(2, "broken", kind=kind)])
    assert turns(found).to_pylist() == [row(1, "held")]


@pytest.mark.parametrize("seed", range(20))
def test_news_of_the_turns_is_that_of_all_rows(seed):
    rng = random.Random(seed)
    rows = [
        row(
            minute,
            rng.choice(["held", "within", "broken"]),
            check=rng.choice("ab"),
            kind=rng.choice(["batch", "stopped", "suite"]),
            table=rng.choice(["a.b", "c.d"]),
        )
        for minute in range(rng.randrange(1, 40))
    ]
    state = after(AlarmState(), alarms(AlarmState(), rows[: len(rows) // 2]))
    found = turns(pa.Table.from_pylist(rows))
    assert alarms(state, found.to_pylist()) == alarms(state, rows)
    assert found.num_rows <= 2 * 8


def test_state_is_read_back():
    state = after(AlarmState(), alarms(AlarmState(), [row(1, "broken"), row(2, "broken", check="volume")]))
    assert AlarmState.from_json(state.to_json()) == state


@pytest.mark.parametrize(
    ("schedule", "waited_s", "version", "judged", "due"),
    [
        (Schedule(every_s=60), 59, 5, 1, None),
        (Schedule(every_s=60), 60, 5, 1, "suite"),
        (Schedule(every_s=60), 600, 5, 5, None),
        (Schedule(commits=3), 0, 5, 2, "suite"),
        (Schedule(commits=3), 9999, 4, 2, None),
        (Schedule(), 9999, 4, -1, None),
    ],
)
def test_suite_is_due_by_time_or_commits_and_never_for_a_version_that_was_judged(
    schedule, waited_s, version, judged, due
):
    assert schedule.due(waited_s=waited_s, version=version, judged_version=judged) == due


def test_freshness_is_due_by_time_also_where_nothing_comes_any_more():
    def due(version, waited_s=60):
        schedule = Schedule(every_s=60)
        return schedule.due(waited_s=waited_s, version=version, judged_version=5, by_clock=True)

    assert [due(5), due(6), due(5, 59)] == ["clock", "suite", None]
    assert Schedule(every_s=60).due(waited_s=99, version=-1, judged_version=-1, by_clock=True) is None


def judged(home, minute, outcome, kind="batch"):
    result = CheckResult(check="set", outcome=outcome, action="warn", judged=10)
    at_ms = int((NOON + timedelta(minutes=minute)).timestamp() * 1000)
    append(home, rows_of(Judged(kind=kind, at_ms=at_ms, table="a.b", job="j", batch=minute), [result]))


def bell_of(home, deliver, way="command"):
    return AlarmBell(home, way, deliver, lambda: NOON + timedelta(hours=1))


def test_bell_rings_once_and_again_where_it_was_not_heard(tmp_path):
    home, heard, deaf = Home(tmp_path), [], [True]

    def deliver(alarm):
        if deaf[0]:
            raise OSError("nobody there")
        heard.append(alarm.state)

    judged(home, 0, "broken")
    bell = bell_of(home, deliver)
    assert not bell.look()
    deaf[0] = False
    assert bell.look()
    assert bell.look()
    assert bell_of(home, deliver).look()  # another command does not repeat it
    judged(home, 30, "held")
    bell.look()
    assert heard == ["broken", "well"]


def test_suite_by_hand_neither_rings_nor_ends_an_alarm(tmp_path):
    home, heard = Home(tmp_path), []
    bell = bell_of(home, lambda alarm: heard.append((alarm.by, alarm.state)))
    judged(home, 0, "broken", kind="manual")
    bell.look()
    assert heard == []
    judged(home, 1, "broken", kind="suite")
    judged(home, 2, "held", kind="manual")
    bell.look()
    judged(home, 3, "held", kind="manual")
    bell.look()
    assert heard == [("suite", "broken")]


def test_result_of_a_clock_that_was_ahead_is_no_news_once_its_time_has_come(tmp_path):
    home, heard = Home(tmp_path), []
    judged(home, 50, "broken")
    judged(home, 20, "held")
    bell_of(home, lambda alarm: heard.append(alarm.state)).look()
    assert heard == []


def test_bell_hears_what_comes_after_its_own_clock_was_set_back(tmp_path):
    home, heard, hours = Home(tmp_path), [], [25]
    bell = AlarmBell(
        home, "way", lambda alarm: heard.append(alarm.state), lambda: NOON + timedelta(hours=hours[0])
    )
    judged(home, 25 * 60, "held")
    bell.look()
    hours[0] = 1
    judged(home, 60, "broken")
    bell.look()
    assert heard == ["broken"]


def test_results_of_a_clock_that_was_a_day_ahead_hide_no_later_ones(tmp_path):
    home, heard = Home(tmp_path), []
    judged(home, 24 * 60, "held")
    bell = bell_of(home, lambda alarm: heard.append(alarm.state))
    assert bell.look()
    judged(home, 30, "broken")
    assert bell.look()
    assert heard == ["broken"]


def test_two_commands_of_a_home_tell_it_once(tmp_path):
    home, heard = Home(tmp_path), []

    def slowly(alarm):
        assert bell_of(home, heard.append).look()  # the other command looks meanwhile
        heard.append(alarm.state)

    judged(home, 0, "broken")
    assert bell_of(home, slowly).look()
    assert heard == ["broken"]


def test_damaged_state_tells_once_more_and_not_for_ever(tmp_path, caplog):
    home, heard = Home(tmp_path), []
    judged(home, 0, "broken")
    bell_of(home, heard.append).look()
    (tmp_path / "quality/alarms-command.json").write_text("{")
    bell = bell_of(home, heard.append)
    assert bell.look()
    assert bell.look()
    assert len(heard) == 2
    assert "told once more" in caplog.text


class Webhook:
    """A web server that answers with a status, and keeps what it was sent."""

    def __init__(self):
        self.status, self.location, self.bodies = 200, None, []
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if webhook.status == 200:
                    assert self.headers["Content-Type"] == "application/json"
                    webhook.bodies.append(json.loads(body))
                self.send_response(webhook.status)
                if webhook.location:
                    self.send_header("Location", webhook.location)
                self.end_headers()

            def do_GET(self):
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def webhook():
    started = Webhook()
    yield started
    started.close()


def test_webhook_gets_the_alarm_once_it_answers_and_keeps_no_other_way_waiting(tmp_path, webhook, caplog):
    home, heard = Home(tmp_path), []
    judged(home, 0, "broken")
    by_web = bell_of(home, by_webhook(webhook.url), "webhook")
    for status, said in ((503, "answered 503"), (302, "it has moved to https://elsewhere/hook: write that")):
        webhook.status, webhook.location = status, "https://elsewhere/hook" if status == 302 else None
        assert not by_web.look()
        assert said in caplog.text
        assert bell_of(home, heard.append).look()
    webhook.status, webhook.location = 200, None
    assert by_web.look()
    assert by_web.look()
    (body,) = webhook.bodies
    assert (body["state"], body["table"], body["check"]) == ("broken", "a.b", "set")
    assert body["text"] == "a.b: the check 'set' is broken in batch 0: 0 of 10 rows failed"
    assert len(heard) == 1


def test_webhook_that_is_no_web_server_is_a_failure_and_no_end(tmp_path):
    with create_server(("127.0.0.1", 0)) as server:

        def answer():
            with server.accept()[0] as connection:
                connection.recv(10_000)
                connection.sendall(b"SSH-2.0-x\r\n")

        talking = Thread(target=answer)
        talking.start()
        (alarm,) = alarms(AlarmState(), [row(1, "broken")])
        with pytest.raises(OSError, match="is no HTTP"):
            by_webhook(f"http://127.0.0.1:{server.getsockname()[1]}")(alarm)
        talking.join()


def test_command_gets_the_alarm_as_json(tmp_path):
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    by_command(f"cat > {tmp_path / 'alarm.json'}")(alarm)
    assert '"state": "broken"' in (tmp_path / "alarm.json").read_text()
    with pytest.raises(OSError, match="ended with status 3"):
        by_command("exit 3")(alarm)


def test_command_may_leave_something_running_behind_it(tmp_path):
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    begun = time.monotonic()
    by_command(f"sleep 60 & echo $! > {tmp_path / 'pid'}")(alarm)
    assert time.monotonic() - begun < 30
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def test_what_a_failing_command_says_need_not_be_text():
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    with pytest.raises(OSError, match=r"ended with status 2: \\xff no"):
        by_command(r"printf '\377 no' >&2; exit 2")(alarm)


def test_command_that_hangs_is_ended_with_what_it_has_started(tmp_path, monkeypatch):
    monkeypatch.setattr(quality_watch, "_TAKES_AT_MOST_S", 1.0)
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    with pytest.raises(TimeoutExpired):
        by_command(f"sleep 600 & echo $! > {tmp_path / 'pid'}; wait; true")(alarm)
    left = subprocess.run(
        ["ps", "-o", "stat=", "-p", (tmp_path / "pid").read_text().strip()], capture_output=True, text=True
    )
    assert left.stdout.strip()[:1] in ("", "Z")


def test_command_that_says_much_is_told_by_its_last_words():
    (alarm,) = alarms(AlarmState(), [row(1, "broken")])
    with pytest.raises(OSError, match=r"ended with status 1: [\s\S]*the end") as failure:
        by_command("seq 1 1000000 >&2; echo the end >&2; exit 1")(alarm)
    assert len(str(failure.value)) < 400


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def test_watch_judges_new_versions_then_by_the_clock_alone_and_survives_a_suite_that_raises(tmp_path, caplog):
    home, clock, judged_as = Home(tmp_path), Clock(), []
    timed = SimpleNamespace(goes_by_clock=True)
    job = SimpleNamespace(name="visits", target=SimpleNamespace(name="silver.visits"), checks=(timed,))
    path = home.table("silver.visits")

    def judge(_, due):
        judged_as.append(due)
        if len(judged_as) == 1:
            raise ValueError("boom")
        return DeltaTable(path).version()

    watch = QualityWatch(home, [job], WatchSettings(Schedule(every_s=60)), judge, clock)

    def after_a_minute():
        clock.now += 60
        watch.tick()
        watch.finish()
        return list(judged_as)

    assert after_a_minute() == []  # there is no table yet
    write_deltalake(path, pa.table({"page": ["a"]}))
    assert after_a_minute() == ["suite"]
    assert "the suite of silver.visits did not run: boom" in caplog.text
    assert after_a_minute() == ["suite"] * 2
    assert after_a_minute() == ["suite", "suite", "clock"]
    write_deltalake(path, pa.table({"page": ["b"]}), mode="append")
    assert after_a_minute()[3:] == ["suite"]


def test_alarms_do_not_wait_for_a_suite_that_takes_long(tmp_path):
    home, clock, heard, ends = Home(tmp_path), Clock(), tmp_path / "heard", Event()
    job = SimpleNamespace(name="visits", target=SimpleNamespace(name="silver.visits"), checks=())
    write_deltalake(home.table("silver.visits"), pa.table({"page": ["a"]}))
    append(
        home,
        rows_of(
            Judged(kind="batch", at_ms=int(time.time() * 1000), table="a.b", job="j", batch=1),
            [CheckResult(check="set", outcome="broken", action="warn", judged=10)],
        ),
    )

    def judge(_, __):
        ends.wait(60)
        return 0

    settings = WatchSettings(Schedule(every_s=60), command=f"cat >> {heard}")
    watch = QualityWatch(home, [job], settings, judge, clock)
    clock.now += 60
    watch.tick()
    watch._ringing.join(60)
    assert heard.exists()
    ends.set()
    watch.finish()
