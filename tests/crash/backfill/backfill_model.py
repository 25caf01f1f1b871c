"""What the tables must hold, in plain Python: each row by the code that made it, up to what the live job has read.

Record n stands in partition n % 2 at offset n // 2, and its time follows from n, so a table's rows tell how far it was
read in each partition. Codes change hands by backfills: a table is looked at under the codes of before or of after.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP_S = 3
NOT_JSON = 19  # each so-manieth record is none
_VISIT, _GAP, _WAITED = (
    40,
    timedelta(seconds=30),
    timedelta(minutes=2),
)  # records from visit to visit; of `visits`
Row = tuple[Any, ...]
Rows = list[Row]
COLUMNS = {
    "silver.clicks": ["n", "who", "code", "_partition", "_offset"],
    "gold.per_minute": ["who", "window_start", "clicks", "total", "even", "odd", "code"],
    "gold.onward": ["n", "who", "code", "fed", "_partition", "_offset"],
    "gold.replied": ["n", "who", "code", "_partition", "_offset"],
    "gold.visits": ["who", "window_start", "first", "last", "total", "code"],
}
_DIGESTED: dict[str, Callable[[Row], Row]] = {
    "silver.clicks": lambda r: (r[0], r[2], r[0] * r[2]),
    "gold.per_minute": lambda r: (r[2], r[3], r[6], r[3] * r[6]),
    "gold.onward": lambda r: (r[0], r[2], r[3], r[0] * r[2]),
    "gold.replied": lambda r: (r[0], r[2], r[0] * r[2]),
    "gold.visits": lambda r: (r[2], r[3], r[4], r[5], r[4] * r[5]),
}
# The same in SQL: what is summed up, behind the number of rows.
SUMS = {
    "silver.clicks": ("n", "code", "n * code"),
    "gold.per_minute": ("clicks", "total", "code", "total * code"),
    "gold.onward": ("n", "code", "fed", "n * code"),
    "gold.replied": ("n", "code", "n * code"),
    "gold.visits": ("first", "last", "total", "code", "total * code"),
}


def value_of(n: int) -> bytes:
    """What is sent as record n."""
    if n % NOT_JSON == 0:
        return b"not JSON"
    return json.dumps({"who": who_of(n), "n": n, "at": at_of(n).isoformat()}).encode()


def reply_to(n: int) -> bytes:
    """What is sent, on another topic, as the reply to record n."""
    return json.dumps({"n": n, "replied_at": (at_of(n) + timedelta(seconds=7)).isoformat()}).encode()


def who_of(n: int) -> str:
    """Whose record it is."""
    return "abc"[n * 7 // 3 % 3]


def at_of(n: int) -> datetime:
    """Its time."""
    return BEGIN + timedelta(seconds=n * STEP_S)


def window_of(n: int) -> datetime:
    """The minute it is in."""
    return at_of(n).replace(second=0)


def is_kept(n: int, code: int) -> bool:
    """Whether a code keeps it."""
    return n % NOT_JSON != 0 and n % (7 + code % 5) != 0


def is_of_a_visit(n: int, code: int) -> bool:
    """Whether a code keeps it in a session; between two of a person there is more than the gap."""
    return is_kept(n, code) and n % _VISIT < 25 + code % 5


@dataclass(frozen=True)
class Codes:
    """Which code made which rows of a table.

    Attributes:
        base: The live job's.
        repaired: In a table of rows the codes of single records; in a window table of the windows' starts.
    """

    base: int
    repaired: Mapping[Any, int] = field(default_factory=dict)

    def repaired_by(self, code: int, places: Sequence[Any]) -> "Codes":
        """The same after a repair."""
        return replace(self, repaired={**self.repaired, **dict.fromkeys(places, code)})

    def of(self, place: Any) -> int:
        """The code of a row's place."""
        return self.repaired.get(place, self.base)


def expected(table: str, codes: Codes, until: Sequence[int]) -> Rows:
    """The rows made of the records up to one of each partition, sorted."""
    records = [n for n in range(max(until) + 1) if n <= until[n % 2]]
    if table in ("silver.clicks", "gold.replied"):  # a reply to each comes within seconds
        return [(n, who_of(n), codes.of(n), n % 2, n // 2) for n in records if is_kept(n, codes.of(n))]
    if table == "gold.onward":  # of one code with the rows that it has read
        kept = [n for n in records if is_kept(n, codes.base)]
        return [(n, who_of(n), codes.base, codes.base, n % 2, n // 2) for n in kept]
    if table == "gold.visits":
        last = max(until)
        made = [v for code in {codes.base, *codes.repaired.values()} for v in _visits(code, last + _VISIT)]
        return sorted((v for v in made if v[-1] == codes.of(v[1]) and v[3] <= last), key=lambda row: row[:2])
    windows: dict[tuple[str, datetime], list[int]] = {}
    for n in records:
        if is_kept(n, codes.of(window_of(n))):
            windows.setdefault((who_of(n), window_of(n)), []).append(n)
    return sorted(
        (
            who,
            start,
            len(found),
            sum(found),
            max((n for n in found if n % 2 == 0), default=None),
            max((n for n in found if n % 2), default=None),
            codes.of(start),
        )
        for (who, start), found in windows.items()
    )


def _visits(code: int, until: int) -> Rows:
    """The sessions of a code in the records up to one: those of each person in each run of records that it keeps."""
    found: dict[tuple[str, int], list[int]] = {}
    for n in range(until + 1):
        if is_of_a_visit(n, code):
            found.setdefault((who_of(n), n // _VISIT), []).append(n)
    return [(who, at_of(of[0]), of[0], of[-1], sum(of), code) for (who, _), of in found.items()]


def closed(codes: Codes, last: int) -> tuple[int, int]:
    """What `reach` says of `gold.visits` once the records up to one, all of them kept, have been read."""
    watermark = at_of(last) - _WAITED
    ends = (v[3] for v in _visits(codes.base, last) if at_of(v[3]) + _GAP <= watermark)
    return (max(ends, default=-1),) * 2


def rejected(codes: Codes, until: Sequence[int]) -> list[int]:
    """The records up to one of each partition that the row job's quarantine holds."""
    return [n for n in range(max(until) + 1) if n <= until[n % 2] and not is_kept(n, codes.of(n))]


def opened(path: Path, version: int | None = None) -> ds.Dataset:
    """A version of a table, read by Arrow's own file system as `headwater_streams.storage.delta_rows` does."""
    files = SubTreeFileSystem(str(path), LocalFileSystem())
    return DeltaTable(str(path), version=version).to_pyarrow_dataset(filesystem=files)


def read(path: Path, table: str, version: int | None = None) -> Rows:
    """A table's rows, sorted."""
    found: pa.Table = opened(path, version).to_table(columns=COLUMNS[table])
    rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
    return sorted(rows, key=lambda row: row[:2])


def reach(table: str, rows: Rows) -> tuple[int, int]:
    """The last record of each partition that rows know of, -1 for none; of sessions the last that is in one."""
    if table == "gold.visits":
        return (max((r[3] for r in rows), default=-1),) * 2
    if table != "gold.per_minute":
        return tuple(max((r[0] for r in rows if r[-2] == p), default=-1) for p in (0, 1))  # type: ignore[return-value]
    return tuple(max((r[i] for r in rows if r[i] is not None), default=-1) for i in (4, 5))  # type: ignore[return-value]


def digest(table: str, rows: Rows) -> Row:
    """A few numbers that differ wherever rows do not come of the same codes and records."""
    sums = [0] * len(SUMS[table])
    for row in rows:
        sums = [known + more for known, more in zip(sums, _DIGESTED[table](row), strict=True)]
    return (len(rows), *sums)
