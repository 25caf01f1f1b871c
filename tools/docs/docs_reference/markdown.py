"""Small pieces of Markdown."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a cell's line breaks and bars are made harmless."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """A text as code, whatever characters it has."""
    fence = "``" if "`" in text else "`"
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}" if text else ""


def plain(text: str) -> str:
    """A sentence in which only what is in backticks is markup."""
    parts = re.split(r"(`[^`]+`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return re.sub(r"([\\*_\[\]])", r"\\\1", text).replace("<", "&lt;")


def docstring(text: str | None) -> str:
    """A docstring as Markdown: what is indented is code, what begins with a dash a list."""
    lines = inspect.cleandoc(text or "").splitlines()
    return "\n".join(_with_room_before_lists(lines)) + "\n"


def _with_room_before_lists(lines: Sequence[str]) -> Iterator[str]:
    before = ""
    for line in lines:
        if line.startswith("- ") and before and not before.startswith(("- ", " ")):
            yield ""
        yield line
        before = line
