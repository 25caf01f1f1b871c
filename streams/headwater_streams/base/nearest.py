"""The names that somebody may have meant."""

from collections.abc import Collection
from difflib import SequenceMatcher

_SHOWN = 5


def nearest(name: str, existing: Collection[str]) -> str:
    """The existing names, for a message about one that does not exist: all of a few, else those most like it.

    Example:
        >>> nearest("gold.delay", ["silver.clicks", "gold.delays"])
        'silver.clicks, gold.delays'
        >>> nearest("t15", [f"t{n}" for n in range(100)])
        't15, t1, t5, t10, t11 and 95 others'
    """
    if len(existing) <= _SHOWN:
        return ", ".join(existing)
    lowered = name.lower()
    by_likeness = sorted(existing, key=lambda each: -SequenceMatcher(None, lowered, each.lower()).ratio())
    return f"{', '.join(by_likeness[:_SHOWN])} and {len(existing) - _SHOWN:,} others"
