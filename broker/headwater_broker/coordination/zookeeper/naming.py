"""Names as parts of znode paths, reversibly.

ZooKeeper refuses `/`, control characters, surrogates, the private use area and U+FFF0 to U+FFFF in a path
(`PathUtils.validatePath`), and `.` and `..` as whole components. A group's name may be any UTF-8, so what is
refused, and `%`, is percent-encoded; every other name stays as it is, and Kafka's own tools read it.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_REFUSED = re.compile(r"[%/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]|[^\u0000-\uffff]")
_EMPTY = "%"  # the encoding of no other name: a per cent sign is always followed by two digits


def escape(name: str) -> str:
    """One path component for a name.

    >>> escape("clicks"), escape("a/b"), escape("100%"), escape("..")
    ('clicks', 'a%2Fb', '100%25', '%2E%2E')
    """
    if not name:
        return _EMPTY
    if name in {".", ".."}:
        return "%2E" * len(name)
    return _REFUSED.sub(_percent, name)


def unescape(component: str) -> str:
    """The name that `escape` made the component of."""
    return "" if component == _EMPTY else unquote(component, errors="surrogatepass")


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match.group().encode("utf-8", errors="surrogatepass"))
