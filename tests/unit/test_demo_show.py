"""What the demo tells where nobody looks: a pipe's console is as wide as need be, and its lines are not."""

import io

import pytest
from rich.console import Console

from headwater.demo.producer import ReplayProgress
from headwater.demo.show import Pulse, Show


def test_show_table_in_a_wide_console_has_no_trailing_room() -> None:
    written = io.StringIO()
    Show(Console(file=written, width=10_000)).table("Who?", [{"carrier": "UA", "departures": 12}])
    lines = written.getvalue().splitlines()
    assert [line.split() for line in lines[:3]] == [["Who?"], ["carrier", "departures"], ["UA", "12"]]
    assert max(map(len, lines)) < 80


def test_pulse_says_every_few_seconds_how_far_events_and_jobs_are() -> None:
    lines: list[str] = []
    now = [0]
    pulse = Pulse(lambda _slices, text: lines.append(text), 0, every_s=5, monotonic=lambda: float(now[0]))
    for second in range(13):
        now[0] = second
        progress = ReplayProgress(second, 20, 1_357_000_000_000) if second < 6 else None
        pulse.beat(second * 1000, second * 900, progress)
    assert lines == [
        "events until 01 Jan 2013: 5,000 sent, 4,500 read by the jobs",
        "events until 01 Jan 2013: 10,000 sent, 9,000 read by the jobs",
    ]


def test_pulse_is_lines_where_the_output_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.demo.show._SAY_EVERY_S", 0.0)
    written = io.StringIO()
    with Show(Console(file=written, width=10_000)).replay(20, 0) as pulse:
        pulse.beat(10, 0)
        pulse.beat(10, 9)
    told = [line.partition("] ")[2] for line in written.getvalue().splitlines() if line.strip()]
    assert told[:2] == ["events: 10 sent, 0 read by the jobs", "events: 10 sent, 9 read by the jobs"]


def test_pulse_is_a_bar_at_a_terminal() -> None:
    written = io.StringIO()
    with Show(Console(file=written, width=120, force_terminal=True)).replay(20, 0) as pulse:
        pulse.beat(10, 9, ReplayProgress(7, 20, 1_357_000_000_000))
    assert "7/20" in written.getvalue()
    assert "10 sent, 9 read by the jobs" in written.getvalue()
