"""A line of the broker's log is one line, whatever stands in it."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from headwater_broker.server.loggers import LineFormatter
from headwater_broker.shown import MESSAGE_CHARS, escaped, shown

FORGED = "\n2026-01-01 00:00:00,000 ERROR forged: \x1b[2J"


def formatted(message: str, *arguments: object, exc_info: bool = False) -> str:
    record = logging.LogRecord(
        "headwater_broker",
        logging.INFO,
        __file__,
        1,
        message,
        arguments,
        sys.exc_info() if exc_info else None,
    )
    return LineFormatter().format(record)


@pytest.mark.parametrize(
    "char", "\x00\a\b\t\n\r\x1b\x7f\x85\x9b\u061c\u200e\u2028\u2029\u202e\u2069\ufeff\ud800"
)
def test_escaped_control_character_becomes_its_escape(char: str) -> None:
    assert escaped(f"a{char}b") == f"a{char.encode('unicode_escape').decode()}b"


@pytest.mark.parametrize(
    "text", ["", "clicks", "日本 語", "naïve\u00a0é", "👩\u200d👧", "\\n [bold]", "می\u200cخواهم"]
)
def test_escaped_other_text_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text


def test_shown_long_name_is_cut_and_bytes_are_text() -> None:
    assert shown("a" * 1000) == "a" * 100 + "..."
    assert shown("\n" * 1000, MESSAGE_CHARS) == "\\n" * MESSAGE_CHARS + "..."
    assert shown(b"a\xff\x1b") == "a\\xff\\x1b"
    assert shown(ValueError("a\nb")) == "a\\nb"


def test_line_with_a_forged_argument_is_one_line() -> None:
    assert formatted("closing %s", FORGED).endswith(
        ": closing \\n2026-01-01 00:00:00,000 ERROR forged: \\x1b[2J"
    )


def test_traceback_with_a_forged_message_has_no_line_that_looks_like_a_record() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        first, *others = formatted("a failure", exc_info=True).split("\n")
    assert first.endswith("INFO headwater_broker: a failure")
    assert len(others) > 3
    assert all(re.match("    ", line) and "\x1b" not in line for line in others)
    assert others[-1] == "    2026-01-01 00:00:00,000 ERROR forged: \\x1b[2J"
