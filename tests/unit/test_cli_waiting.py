"""What a command says while it waits: to a person at a terminal, and to nobody else."""

import sys

import pytest

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
