"""Text from outside, made safe to show to a person: in one line, without terminal control, and of limited length.

A client chooses its client id, its group, its transactional id, its SASL mechanism; whoever writes to a topic chooses
the records. Shown as it is, a line break in them forges a line of the log, and an escape sequence changes the
terminal of whoever reads it.
"""

import json
import re

NAME_CHARS = 100
MESSAGE_CHARS = 500

# The C0 and C1 controls (a terminal takes U+009B for ESC [), what separates lines, what turns the direction of the
# text, marks that are not seen, and halves of surrogate pairs, which cannot be printed. U+200C and U+200D stay, for
# words of several languages and many emoji need them.
_BEYOND_ASCII = (
    "\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
_UNSAFE = re.compile(f"[\x00-\x1f{_BEYOND_ASCII}]")
_UNSAFE_IN_TEXT = re.compile(f"[\x00-\x08\x0b-\x1f{_BEYOND_ASCII}]")
_PERHAPS_UNSAFE = re.compile(rb"[^\t\n -~]")


def escaped(text: str) -> str:
    r"""The text with escapes for what would steer a terminal or begin a line; all else stays as it is.

    >>> print(escaped("clicks\n2026-01-01 INFO \x1b[2Jforged"))
    clicks\n2026-01-01 INFO \x1b[2Jforged
    """
    return _UNSAFE.sub(_escape, text)


def escaped_text(text: str) -> str:
    """As `escaped`, but tabs and line breaks stay: for data that may have several lines."""
    return _UNSAFE_IN_TEXT.sub(_escape, text)


def escaped_data(data: bytes) -> bytes:
    r"""As `escaped_text`, for UTF-8; bytes that are none become escapes, too.

    >>> escaped_data(b"a\x1b[2J\xff\tb")
    b'a\\x1b[2J\\xff\tb'
    """
    if _PERHAPS_UNSAFE.search(data) is None:
        return data
    return escaped_text(data.decode("utf-8", "backslashreplace")).encode()


def escaped_json(document: str) -> str:
    r"""JSON on one line without what would steer a terminal; it means the same.

    >>> print(escaped_json('"\x9b31m"'))
    "\u009b31m"
    """
    return _UNSAFE.sub(lambda match: json.dumps(match.group())[1:-1], document)


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
