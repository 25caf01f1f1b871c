"""What the quarantine of a table holds, by check: shown in Data Docs beside what the table holds."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater_streams.base.target import QUARANTINE_SUFFIX
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of
from headwater_streams.storage.home import Home

REASON, CHECK = "_reason", "_check"
_PLACE = ("_topic", "_partition", "_offset")
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class RejectedBy:
    """What a check rejected.

    Attributes:
        check: The check.
        rows: How many rows; a row counts for each of its reasons.
        reason: The reason of one of them.
        record: That one, `TOPIC:PARTITION:OFFSET`.
        value: The beginning of its value.
    """

    check: str
    rows: int
    reason: str
    record: str
    value: str


def names_in(checks: str | None) -> list[str]:
    """The checks that a rejected row names.

    Example:
        >>> names_in("has_carrier, delay_sane")
        ['has_carrier', 'delay_sane']
    """
    return checks.split(", ") if checks else []


def reasons(row: Mapping[str, Any]) -> dict[str, str]:
    """Every check that rejected a row, with its reason.

    Example:
        >>> reasons({"_check": "a, b", "_reason": "x is NULL; y is below 0"})
        {'a': 'x is NULL', 'b': 'y is below 0'}
    """
    checks, why = names_in(row[CHECK]), (row[REASON] or "").split("; ")
    if len(why) != len(checks):  # a reason may have a semicolon of its own
        why = [row[REASON] or ""] * len(checks)
    return dict(zip(checks, why, strict=True))


def rejected_beside(home: Home, table: str) -> list[RejectedBy]:
    """What each check rejected of the rows that were to come into a table, the most first; the row that is shown is the
    last. Nothing where it has no quarantine."""
    path = home.table(table + QUARANTINE_SUFFIX)
    if not has_versions(path):
        return []
    counts, last = Counter[str](), dict[str, tuple[str, Mapping[str, Any]]]()
    with reading(path):
        rows = dataset_of(path)
        texts = rows.to_table(columns=[CHECK])[CHECK].combine_chunks().dictionary_encode().indices
        places = pa.table({"text": texts, "place": np.arange(len(texts))})
        found = places.group_by("text").aggregate([("place", "max"), ("place", "count")]).sort_by("place_max")
        shown = rows.take(
            found["place_max"].combine_chunks(), columns=[REASON, CHECK, "_raw", *_PLACE]
        ).to_pylist()
    for row, count in zip(shown, found["place_count"].to_pylist(), strict=True):
        for check, why in reasons(row).items():
            counts[check] += count
            last[check] = why, row
    return [
        RejectedBy(check, count, last[check][0], _place(last[check][1]), _value(last[check][1]))
        for check, count in counts.most_common()
    ]


def _place(row: Mapping[str, Any]) -> str:
    return ":".join(str(row[name]) for name in _PLACE)


def _value(row: Mapping[str, Any]) -> str:
    raw: bytes = row.get("_raw") or b""
    return raw[:_SHOWN_CHARACTERS].decode(errors="backslashreplace")
