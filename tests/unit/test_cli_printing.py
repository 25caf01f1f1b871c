"""What the command line prints passes the one place that escapes what would steer a terminal or begin a line."""

import ast
from pathlib import Path

import pytest

import headwater
import headwater.cli
from headwater.cli import stack
from headwater.cli._console import PlainConsole
from headwater.demo.show import Show
from headwater.stack.disks import disk_problem, lost_records
from headwater_broker.server import process

FOLDER = Path(headwater.cli.__file__).parent
ESCAPING = {"__init__.py", "_common.py"}
"""Where the texts are escaped."""
OWN = {"verbs.py"}
"""Help and version."""


def plain_prints(path: Path) -> list[int]:
    """Lines that call `print` or `typer.echo`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id == "print")
            or (isinstance(node.func, ast.Attribute) and node.func.attr in ("echo", "secho"))
        )
    ]


def test_platform_prints_through_what_escapes() -> None:
    paths = Path(headwater.__file__).parent.rglob("*.py")
    found = {
        str(path.relative_to(FOLDER.parent)): lines
        for path in paths
        if (lines := plain_prints(path)) and path.name not in ESCAPING | OWN
    }
    assert found == {}


def test_stack_tells_a_sentence_with_a_name_of_others_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    stack._tell("broker 1 ended (t\x1b[2J\nheadwater: all is well)")
    assert capsys.readouterr().err == "headwater: broker 1 ended (t\\x1b[2J\\nheadwater: all is well)\n"


def test_broker_that_ends_names_a_file_of_others_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    process._say("x\n2026-01-01 INFO forged is in the log directory")
    assert capsys.readouterr().err == "headwater_broker: x\\n2026-01-01 INFO forged is in the log directory\n"


def test_demo_shows_names_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show = Show(PlainConsole(width=80))
    show.step("a\x1b[2J")
    show.say("b\x1b[2J")
    show.table("c\x1b[2J", [{"name": "d\x1b[2J"}])
    printed = capsys.readouterr().out
    assert "\x1b[2J" not in printed
    assert printed.count("\\x1b[2J") == 4


def test_file_of_lost_offsets_that_is_damaged_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "broker-1" / "log"
    folder.mkdir(parents=True)
    path = folder / ".headwater-missing-offsets"
    path.write_bytes(b"t 0 3 6 /data/t-0/3.log\nt 0 \xff\n")
    lost, damaged = lost_records(tmp_path)
    assert lost.startswith("t-0 of broker-1 has lost offsets 3 to 5: /data/t-0/3.log is gone or short: ")
    assert damaged == f"{path} does not say what is lost: the broker writes it anew when it starts"
    assert disk_problem(tmp_path / "gone").endswith("does not answer: no such file or directory")
