"""Figures in the project's pages: a benchmark with `--write` puts them between two marks that name it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
BROKER_PAGE = ROOT / "docs" / "reference" / "broker-figures.md"
FIGURES = ROOT / "docs" / "reference" / "figures"
_WIDTH = 126


class NoSectionError(Exception):
    """A page has no place for what is to be written."""


def with_section(page: str, name: str, text: str) -> str:
    """A page with another text between `<!-- name: begin -->` and `<!-- name: end -->`.

    Raises:
        NoSectionError: The page has not exactly one such place.
    """
    begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise NoSectionError(f"there is no one section between {begin.strip()} and {end.strip()}")
    before, _, rest = page.partition(begin)
    after = rest.partition(end)[2]
    return f"{before}{begin}{text.strip()}\n{end}{after}"


def write_section(path: Path, name: str, text: str) -> None:
    """The same for a file.

    Raises:
        NoSectionError: See `with_section`; nothing is written.
    """
    try:
        changed = with_section(path.read_text(encoding="utf-8"), name, text)
    except NoSectionError as error:
        raise NoSectionError(f"{path}: {error}") from None
    path.write_text(changed, encoding="utf-8")


def paragraph(text: str) -> str:
    """Sentences as lines of a page."""
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def rounds_of(figures: Mapping[str, Any]) -> str:
    """How many rounds a run had, in words of a sentence."""
    return "one round" if figures["rounds"] == 1 else f"{figures['rounds']} rounds"


def java_version(said: str) -> str:
    """Of the first line that `java -version` prints."""
    found = re.search(r'"([^"]+)"', said)
    return found.group(1) if found else said
