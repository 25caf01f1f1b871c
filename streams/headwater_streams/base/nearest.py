"""The names that somebody may have meant."""

from collections.abc import Collection
from difflib import SequenceMatcher

_SHOWN = 5


def unknown_table(name: str, existing: Collection[str]) -> str:
    """What to say of a table that there is not.

    Example:
        >>> unknown_table("gold.delay", ["silver.clicks", "gold.delays"])
        'there is no table gold.delay; the tables are silver.clicks, gold.delays'
        >>> unknown_table("gold.delay", [])
        'there is no table gold.delay: there are no tables yet'
    """
    if not existing:
        return f"there is no table {name}: there are no tables yet"
    return f"there is no table {name}; the tables are {nearest(name, existing)}"


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
    more = len(existing) - _SHOWN
    return f"{', '.join(by_likeness[:_SHOWN])} and {more:,} {'other' if more == 1 else 'others'}"
