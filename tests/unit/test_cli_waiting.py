"""What a command says while it waits: to a person at a terminal, and elsewhere only where it takes long."""

import sys
import time

import pytest

from headwater.cli import setup
from headwater.cli._common import waiting


@pytest.mark.parametrize("at_terminal", [True, False])
def test_waiting_is_told_at_a_terminal_alone(
    at_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: at_terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "")
    with waiting("starting Spark"):
        pass
    said = capsys.readouterr()
    assert ("starting Spark" in said.err) is at_terminal
    assert said.out == ""


def test_waiting_lets_errors_through() -> None:
    with pytest.raises(ZeroDivisionError), waiting("starting Spark"):
        raise ZeroDivisionError


def test_waiting_that_takes_long_is_told_in_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with waiting("archiving", lines_every_s=0.01):
        deadline_s = time.monotonic() + 30
        said = ""
        while said.count("\n") < 3 and time.monotonic() < deadline_s:
            said += capsys.readouterr().err
    assert said.splitlines()[:3] == ["archiving", "  [  0 s] still at it", "  [  0 s] still at it"]


def test_jars_are_told_in_lines_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    with setup._fetching() as progress:
        for done_bytes in (0, 1_000_000, 2_000_000):
            progress(done_bytes, 20_000_000)
        monkeypatch.setattr(setup, "_LINES_EVERY_S", 0.0)
        progress(19_000_000, 20_000_000)
    assert capsys.readouterr().err.splitlines() == [
        "fetching the jars: 0 of 20 MB",
        "fetching the jars: 19 of 20 MB",
    ]
