"""The interactive prompt: reads statements up to a semicolon, runs them, shows tables."""

import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from headwater.errors import UserError
from headwater.sql.output import print_table
from headwater.sql.session import SqlSession
from headwater.sql.statements import split_statements

if TYPE_CHECKING:
    from rich.console import Console

_PROMPT, _CONTINUED = "headwater> ", "      ...> "
_QUIT = frozenset({"quit", "exit", "\\q"})
_HELP = """\
tables               the tables with their versions and rows (also \\d)
describe NAME        the columns of a table (also \\d NAME)
trace NAME;          the records that a table's rows were made of (also trace NAME where ...;)
trace 'T:P:O';       what became of the record of topic T, partition P, offset O
quit                 leave (also exit, \\q, Ctrl-D)
Everything else is SQL, up to a semicolon. Each statement sees the tables as they are when it starts."""


def run_prompt(
    session: SqlSession,
    console: "Console",
    *,
    max_rows: int,
    raw: bool = False,
    null: str = "",
    read_line: Callable[[str], str] = input,
) -> None:
    """Reads and answers until the person leaves; errors are printed, and the prompt goes on.

    Args:
        session: What answers.
        console: Where answers go.
        max_rows: The most rows shown of an answer; 0 shows all.
        raw: Whether control characters of the data are printed as they are.
        null: What stands for NULL.
        read_line: Gives one line for a prompt, raises EOFError at the end; a test passes its own.
    """
    answer = partial(_answer, session, console=console, max_rows=max_rows, raw=raw, null=null)
    _enable_line_editing()
    console.print("SQL over Delta tables; end a statement with a semicolon. help, tables, quit.", style="dim")
    pending = ""
    while True:
        try:
            line = read_line(_CONTINUED if pending else _PROMPT)
        except EOFError:
            console.print()
            return
        except KeyboardInterrupt:
            console.print()
            pending = ""
            continue
        command = line.strip().rstrip(";").strip()
        if not pending and command.lower() in _QUIT:
            return
        if not pending and command.lower() in ("help", "\\?"):
            console.print(_HELP, markup=False, highlight=False)
            continue
        if not pending and _is_command(command):
            answer(command)
            continue
        statements, pending = split_statements(f"{pending}\n{line}" if pending else line, session.engine)
        for statement in statements:
            answer(statement)


def _is_command(line: str) -> bool:
    """Commands need no semicolon, as they take one line at most."""
    return line.startswith("\\d") or line.lower().split(maxsplit=1)[:1] in (["tables"], ["describe"])


def _answer(
    session: SqlSession, statement: str, *, console: "Console", max_rows: int, raw: bool, null: str
) -> None:
    started = perf_counter()
    try:
        print_table(session.run(statement), console, max_rows=max_rows, raw=raw, null=null)
    except UserError as error:
        console.print(str(error), style="red", markup=False, highlight=False)
    except KeyboardInterrupt:
        console.print("interrupted", style="red")
    else:
        console.print(f"{perf_counter() - started:.2f} s", style="dim", highlight=False)


def _enable_line_editing() -> None:
    if sys.stdin.isatty():
        import readline  # noqa: F401  # importing it gives input() its editing and history
