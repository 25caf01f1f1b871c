"""The names that somebody may have meant."""

from collections.abc import Collection
from difflib import SequenceMatcher

_SHOWN = 5


def nearest(name: str, known: Collection[str]) -> str:
    """Names that are there, in a sentence about one that is not: all where they are few, else those most like it.

    Example:
        >>> nearest("gold.delay", ["silver.clicks", "gold.delays"])
        'silver.clicks, gold.delays'
        >>> nearest("t15", [f"t{n}" for n in range(100)])
        't15, t1, t5, t10, t11 and 95 others'
    """
    if len(known) <= _SHOWN:
        return ", ".join(known)
    wanted = name.lower()
    by_likeness = sorted(known, key=lambda each: -SequenceMatcher(None, wanted, each.lower()).ratio())
    return f"{', '.join(by_likeness[:_SHOWN])} and {len(known) - _SHOWN:,} others"
