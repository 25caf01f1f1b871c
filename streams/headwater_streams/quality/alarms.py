"""When a check's breaking is news: once when it breaks, and once when it is well again. Decides only; nothing is sent.

Of a check that is judged by its job and by a suite, each is news of its own: bad rows that stay in a table keep the
suite broken while new batches are well, and one state of both would change with whichever was judged last.

What was said last of each check is a record for each way of delivery, `<home>/quality/alarms-WAY.json`. It is written
after an alarm was delivered, so that one which could not be is tried again, and a command that starts anew does not
repeat the others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_streams.base.record import Part, Record
from headwater_streams.quality.results import place_of

State = Literal["broken", "well"]
By = Literal["batch", "suite"]
"""What judged a check."""
Due = Literal["suite", "clock"]
"""What is to be judged of a table: a version by all checks, or one that was judged by those that go by the clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Broken(Part):
    """A check that somebody was told is broken.

    Attributes:
        table: The table.
        check: The check.
        by: What judged it.
        since: When it broke, ISO 8601.
    """

    WHAT = "a broken check"

    table: str
    check: str
    by: By
    since: str

    def to_json(self) -> dict[str, Any]:
        """The check as the record has it."""
        return {"table": self.table, "check": self.check, "by": self.by, "since": self.since}

    @classmethod
    def from_json(cls, value: Any) -> "Broken":
        """The check that stands in the record."""
        return cls(**cls.checked(value))


@dataclass(frozen=True, kw_only=True, slots=True)
class AlarmState(Record):
    """What was said last.

    Attributes:
        broken: The checks that are broken, and were said to be.
    """

    WHAT = "the state of the alarms"

    broken: tuple[Broken, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The state as it is stored."""
        return self.version_key() | {"broken": [each.to_json() for each in self.broken]}

    @classmethod
    def from_json(cls, value: Any) -> "AlarmState":
        """The state as it was stored."""
        stored = cls.checked(value)
        return cls(broken=tuple(Broken.from_json(each) for each in stored["broken"]))

    def after(self, alarm: "Alarm") -> "AlarmState":
        """The state once an alarm was delivered."""
        mine = alarm.table, alarm.check, alarm.by
        others = tuple(each for each in self.broken if (each.table, each.check, each.by) != mine)
        if alarm.state == "well":
            return AlarmState(broken=others)
        new = Broken(table=alarm.table, check=alarm.check, by=alarm.by, since=alarm.at)
        return AlarmState(broken=(*others, new))


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """A piece of news.

    Attributes:
        table: The table.
        check: The check.
        state: What the check is now.
        by: What judged it.
        at: When it became so, ISO 8601.
        job: The job that writes the table; None where a suite found it.
        observed: What was seen.
        where: The batch or version that was judged.
        sample: Some of the rows at fault.
        since: Of one that is well again: since when it was broken.
    """

    table: str
    check: str
    state: State
    by: By
    at: str
    job: str | None = None
    observed: str = ""
    where: str = ""
    sample: Sequence[str] = field(default=())
    since: str | None = None

    @property
    def sentence(self) -> str:
        """The news in a sentence."""
        if self.state == "well":
            return f"{self.table}: the check {self.check!r} is well again in {self.where}, broken since {self.since}"
        return f"{self.table}: the check {self.check!r} is broken in {self.where}: {self.observed}"

    def to_json(self) -> dict[str, Any]:
        """The news as a command or a webhook gets it."""
        value: dict[str, Any] = {
            "state": self.state,
            "table": self.table,
            "check": self.check,
            "by": self.by,
            "job": self.job,
            "at": self.at,
            "where": self.where,
            "observed": self.observed,
            "sample": list(self.sample),
            "text": self.sentence,
        }
        return value if self.since is None else {**value, "since": self.since}


def turns(found: pa.Table) -> pa.Table:
    """Of results in order those that can be news: the newest of each check, and the one in which it became what it is.
    Those of backfills and of suites that a person ran are none, as whoever runs one is told."""
    found = found.filter(pc.invert(pc.is_in(found["kind"], pa.array(["backfill", "manual"]))))
    if not found.num_rows:
        return found
    by_suite = pc.cast(pc.equal(found["kind"], "suite"), pa.string())
    keys = pc.binary_join_element_wise(found["table"], found["check"], by_suite, "\n")
    groups = np.asarray(keys.combine_chunks().dictionary_encode().indices)
    order = np.argsort(groups, kind="stable")
    grouped, broken = groups[order], np.asarray(pc.equal(found["outcome"], "broken"))[order]
    begins = np.concatenate([[True], grouped[1:] != grouped[:-1]])
    changes = begins | np.concatenate([[True], broken[1:] != broken[:-1]])
    ends = np.flatnonzero(np.concatenate([begins[1:], [True]]))
    became = np.maximum.accumulate(np.where(changes, np.arange(len(order)), 0))[ends]
    return found.take(np.unique(order[np.concatenate([became, ends])]))


def alarms(state: AlarmState, rows: Iterable[Mapping[str, Any]]) -> list[Alarm]:
    """The news in results, in the order in which it came.

    A check that broke and was well again between two looks was nobody's news yet, and is none now.

    Args:
        state: What was said last.
        rows: Rows of `quality.results` in order, those since the last look at least, or the `turns` of these.
    """
    said = {(each.table, each.check, each.by): each.since for each in state.broken}
    newest: dict[tuple[str, str, By], Mapping[str, Any]] = {}
    began: dict[tuple[str, str, By], Mapping[str, Any]] = {}
    for row in rows:
        key = (row["table"], row["check"], _by(row))
        newest[key] = row
        if row["outcome"] != "broken":
            began.pop(key, None)
        elif key not in began:
            began[key] = row
    news = []
    for key, row in newest.items():
        if row["outcome"] == "broken" and key not in said:
            news.append(_alarm(began[key], "broken", None))
        elif row["outcome"] != "broken" and key in said:
            news.append(_alarm(row, "well", said[key]))
    return sorted(news, key=lambda each: each.at)


def _by(row: Mapping[str, Any]) -> By:
    return "suite" if row["kind"] == "suite" else "batch"


def _alarm(row: Mapping[str, Any], state: State, since: str | None) -> Alarm:
    at = row["at"]
    failed, judged = row.get("failed") or 0, row.get("judged") or 0
    return Alarm(
        table=row["table"],
        check=row["check"],
        state=state,
        by=_by(row),
        at=at.isoformat() if isinstance(at, datetime) else str(at),
        job=row.get("job"),
        observed=row.get("observed") or f"{failed:,} of {judged:,} rows failed",
        where=place_of(row),
        sample=tuple(row.get("sample") or ()),
        since=since,
    )


@dataclass(frozen=True)
class Schedule:
    """When the suite of a table is due: every so often, or after so many commits, whichever comes first.

    Attributes:
        every_s: The time between two; None for none.
        commits: The commits between two; None for none.
    """

    every_s: float | None = None
    commits: int | None = None

    def due(
        self, *, waited_s: float, version: int, judged_version: int, by_clock: bool = False
    ) -> Due | None:
        """What is to be judged now, if anything.

        A version that was judged is not judged again, but by the checks that go by the clock: of a table into which
        nothing comes any more, freshness is what breaks.

        Args:
            waited_s: How long ago the last suite began, or the command.
            version: The table's newest version; -1 where there is none.
            judged_version: The version that was judged last, -1 before the first.
            by_clock: Whether some check goes by the clock.
        """
        is_time = self.every_s is not None and waited_s >= self.every_s
        if version > judged_version:
            is_enough = self.commits is not None and version - judged_version >= self.commits
            return "suite" if is_time or is_enough else None
        return "clock" if is_time and by_clock and version >= 0 else None
