"""Text from outside as a person may be shown it: in one line, without what steers a terminal, and not without end.

A client chooses its client id, its group, its transactional id, its SASL mechanism; whoever writes to a topic chooses
the records. Shown as it is, a line break in them forges a line of the log, and an escape sequence changes the
terminal of whoever reads it.
"""

import re

NAME_CHARS = 100
MESSAGE_CHARS = 500

# The C0 and C1 controls (a terminal takes U+009B for ESC [), what separates lines, what turns the direction of the
# text, marks that are not seen, and halves of surrogate pairs, which cannot be printed. U+200C and U+200D stay, for
# words of several languages and many emoji need them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def escaped(text: str) -> str:
    r"""The text with escapes for what would steer a terminal or begin a line; all else stays as it is.

    >>> print(escaped("clicks\n2026-01-01 INFO \x1b[2Jforged"))
    clicks\n2026-01-01 INFO \x1b[2Jforged
    """
    return _UNSAFE.sub(_escape, text)


def shown(value: object, most: int = NAME_CHARS) -> str:
    r"""A value for a line of the log: escaped, and cut behind `most` characters.

    >>> shown("a\nb"), shown("a" * 101) == "a" * 100 + "...", shown("")
    ('a\\nb', True, "''")

    Args:
        value: A name, an error whose message may hold names, or bytes.
        most: Of how many characters; `MESSAGE_CHARS` for whole messages.
    """
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return (escaped(text[:most]) or "''") + ("..." if len(text) > most else "")


def _escape(match: re.Match[str]) -> str:
    return match.group().encode("unicode_escape").decode("ascii")
