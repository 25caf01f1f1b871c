"""Numbers as text from outside, as a properties file and Kafka's tools write them.

Python's own `int` takes more: `1_000`, digits of other scripts, and spaces that Java does not strip. What two readers
read differently is no number here.
"""

import math
import re

_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_MOST_CHARS = 400  # Python refuses to read an integer of thousands of digits, in a sentence about itself


def trimmed(text: str) -> str:
    """The text without the blanks around it that Java's `trim` removes."""
    return text.strip(_BLANKS)


def is_natural(text: str) -> bool:
    """Whether the text is a whole number from 0 up, in the digits 0 to 9 and nothing else.

    >>> is_natural("12"), is_natural("1_2"), is_natural("\u0661"), is_natural("\u00b2")
    (True, False, False, False)
    """
    return text.isascii() and text.isdecimal() and len(text) <= _MOST_CHARS


def parse_integer(text: str) -> int:
    """A whole number, perhaps with a sign.

    >>> parse_integer(" +5 "), parse_integer("-1")
    (5, -1)

    Raises:
        ValueError: It is none.
    """
    digits = trimmed(text)
    if _INTEGER.fullmatch(digits) is None or len(digits) > _MOST_CHARS:
        raise ValueError("not a whole number")
    return int(digits)


def parse_decimal(text: str) -> float:
    """A finite number, written as Java's `Double.parseDouble` takes it.

    >>> parse_decimal("0.5"), parse_decimal("1e3"), parse_decimal("2.5d")
    (0.5, 1000.0, 2.5)

    Raises:
        ValueError: It is none, or too large, or infinite. Java takes `NaN` as well, which passes every limit.
    """
    match = _DECIMAL.fullmatch(trimmed(text))
    number = math.nan if match is None else float(match[1])
    if not math.isfinite(number):
        raise ValueError("not a number")
    return number
