"""Rules that measure aggregates and judge them in Python: against the clock, and against earlier batches."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from math import inf, log
from statistics import median

from headwater_streams.base.check import InvalidCheckError
from headwater_streams.base.durations import in_micros, parse_duration
from headwater_streams.base.names import quoted
from headwater_streams.base.plural import quantity
from headwater_streams.base.rule import Judgement, MeasuredRule, Past, Values
from headwater_streams.quality.rules.literals import compared, literal

_ENOUGH = 5
"""Of fewer earlier batches the median is no measure: Soda asks for as many before it judges an anomaly."""
_HOUR_MS, _DAY_MS = 3_600_000, 86_400_000
_SMALLEST_SHARE = 0.0001  # in a drift an empty bin would be infinitely far from one with a row


@dataclass(frozen=True, slots=True)
class Fresh(MeasuredRule):
    """The newest time of a column is not longer ago than `within`, nor as far ahead of the clock: a record with a wrong
    year would make a table fresh for ever."""

    within: timedelta

    @property
    def measures(self) -> Mapping[str, str]:
        """The newest time, in microseconds."""
        return {"newest_us": f"unix_micros(max({quoted(self.columns[0])}))"}

    @property
    def goes_by_clock(self) -> bool:
        """They grow old."""
        return True

    def judge(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """Compares the newest time with the clock. A batch without rows, or without times, has nothing to judge."""
        newest = values.get("newest_us")
        if newest is None:
            return Judgement(True, "no time to judge")
        age = timedelta(microseconds=now_ms * 1000 - int(newest))
        ago = (
            f"the newest is {_plain(age)} old"
            if age >= timedelta(0)
            else f"the newest is {_plain(-age)} ahead"
        )
        return Judgement(-self.within <= age <= self.within, ago)

    def judge_table(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """A table without times is not fresh: it was emptied, or nothing has ever come."""
        if values.get("newest_us") is None:
            return Judgement(False, "no row has a time")
        return self.judge(values, before, now_ms)


class _RowCount(MeasuredRule):
    """Judges how many rows a batch has."""

    __slots__ = ()

    @property
    def measures(self) -> Mapping[str, str]:
        """The number of rows."""
        return {"rows": "count(1)"}

    @property
    def is_of_batches(self) -> bool:
        """It counts the rows of one."""
        return True


@dataclass(frozen=True, slots=True)
class Volume(_RowCount):
    """The number of rows is near that of the last batches."""

    within: float
    last: int

    @property
    def remembers(self) -> int:
        """The last batches."""
        return self.last

    def judge(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """Compares the rows with the median of the last batches."""
        rows = int(values.get("rows") or 0)
        usual = [each.values["rows"] or 0 for each in before[-self.last :] if "rows" in each.values]
        if len(usual) < min(_ENOUGH, self.last):
            return Judgement(True, f"{quantity(rows, 'row')}; too few batches before it to compare with")
        middle = median(usual)
        return _near(
            rows, middle, self.within, f"the median of the last {quantity(len(usual), 'batch', 'batches')}"
        )


@dataclass(frozen=True, slots=True)
class HourlyVolume(_RowCount):
    """The rows of a second are about as many as in the same hour of earlier days."""

    within: float
    days: int

    @property
    def remembers(self) -> int:
        """All of those days, the first of which begins before this hour."""
        return (self.days + 1) * _DAY_MS // self.apart_ms

    @property
    def apart_ms(self) -> int:
        """Batches may come every second; the rate of several is that of their sum."""
        return 10_000

    def judge(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """Compares the rows since the batch before with those of a second in the same hour of earlier days.

        Batches of another size would not be comparable: the rate is that of the time since the batch before.
        """
        rows = int(values.get("rows") or 0)
        rates = [
            of_day for ago in range(1, self.days + 1) if (of_day := _rates(before, now_ms - ago * _DAY_MS))
        ]
        if not rates or not before or now_ms <= before[-1].at_ms:
            return Judgement(True, f"{quantity(rows, 'row')}; no day before with this hour to compare with")
        rate = rows * 1000 / (now_ms - before[-1].at_ms)
        usual = median(map(median, rates))
        days = quantity(len(rates), "day")
        return _near(rate, usual, self.within, f"the same hour of {days} before", "rows a second")


@dataclass(frozen=True, slots=True)
class Drift(MeasuredRule):
    """The shares of a column's values in some bins are near those of the last batches, by the population stability
    index: below 0.1 nothing has moved, above 0.25 much has."""

    bins: tuple[tuple[str, str], ...]
    """Each bin's condition in SQL, by its name."""
    at_most: float
    last: int

    @property
    def measures(self) -> Mapping[str, str]:
        """The rows of each bin."""
        return {name: f"count_if({condition})" for name, condition in self.bins}

    @property
    def remembers(self) -> int:
        """The last batches."""
        return self.last

    def judge(self, values: Values, before: Sequence[Past], now_ms: int) -> Judgement:
        """Compares the shares with those of the last batches together."""
        earlier = [
            each for each in before[-self.last :] if any(each.values.get(name) for name, _ in self.bins)
        ]
        now = [values.get(name) or 0 for name, _ in self.bins]
        if not sum(now) or len(earlier) < min(_ENOUGH, self.last):
            return Judgement(True, "too few rows or batches to compare with")
        then = [sum(each.values.get(name) or 0 for each in earlier) for name, _ in self.bins]
        moved = [
            (_share(n, now) - _share(t, then)) * log(_share(n, now) / _share(t, then))
            for n, t in zip(now, then, strict=True)
        ]
        index, most = sum(moved), max(range(len(moved)), key=moved.__getitem__)
        observed = f"index {index:.3f}, at most {self.at_most:g}"
        if index > self.at_most:
            name = self.bins[most][0]
            observed += f"; {name} went from {_percent(then[most], then)} to {_percent(now[most], now)}"
        return Judgement(index <= self.at_most, observed)


def fresh(column: str, within: str) -> Fresh:
    """The newest time of a batch, or of a table, is not longer ago than this.

    Example:
        >>> fresh("departed_at", "10 minutes").text
        'the newest departed_at is at most 10 minutes old'
    """
    return Fresh(f"the newest {column} is at most {within} old", (column,), parse_duration(within))


def volume(*, within: float = 0.5, last: int = 20, same_hour_of_days: int | None = None) -> MeasuredRule:
    """A batch has about as many rows as usual.

    Args:
        within: How far it may be from the usual, as a share: 0.5 allows half as many to half as many more.
        last: The usual is the median of so many batches before it.
        same_hour_of_days: The usual is that of the same hour (UTC) of so many days before, by rows a second, in place
            of the last batches.

    Raises:
        InvalidCheckError: A number is not above zero.
    """
    if not within > 0 or last < 1 or (same_hour_of_days is not None and same_hour_of_days < 1):
        raise InvalidCheckError("volume: within=, last= and same_hour_of_days= are above zero")
    if same_hour_of_days is not None:
        text = f"the rows are within {within:.0%} of the same hour of {same_hour_of_days} days before"
        return HourlyVolume(text, (), within, same_hour_of_days)
    return Volume(f"the rows are within {within:.0%} of the last {last} batches", (), within, last)


def drift(
    column: str,
    *,
    edges: Sequence[float] | None = None,
    values: Iterable[object] | None = None,
    at_most: float = 0.2,
    last: int = 20,
) -> Drift:
    """The column's values are spread as in the last batches.

    Args:
        column: The column.
        edges: Of a number: where one bin ends and the next begins, in order.
        values: Of any other: the values that are a bin each; the rest is one more.
        at_most: The population stability index that is allowed.
        last: How many batches before it are compared with.

    Raises:
        InvalidCheckError: There are no bins, or both kinds, or a number is not above zero.
    """
    name, bins = quoted(column), list[tuple[str, str]]()
    if not at_most > 0 or last < 1:
        raise InvalidCheckError("drift: at_most= and last= are above zero")
    if (edges is None) == (values is None):
        raise InvalidCheckError("drift: give edges= of a column of numbers, or values= of any other")
    if edges is not None:
        if not edges or any(not low < high for low, high in pairwise([-inf, *edges])):
            raise InvalidCheckError(f"drift: edges={list(edges)!r} are not in order, or none")
        bins.append((f"below {edges[0]}", compared(name, lambda of: f"{name} < {of(edges[0])}")))
        bins += [(f"{low} to {high}", _from(name, low, high)) for low, high in pairwise(edges)]
        bins.append((f"{edges[-1]} or more", compared(name, lambda of: f"{name} >= {of(edges[-1])}")))
    else:
        known = {literal(value): value for value in values or ()}
        if not known:
            raise InvalidCheckError("drift: values= has none")
        # By their literals: a text may be "others" itself.
        bins += [(text, _equals(name, value)) for text, value in known.items()]
        none = compared(name, lambda of: f"{name} NOT IN ({', '.join(map(of, known.values()))})")
        bins.append(("others", none))
    bins.append(("NULL", f"{name} IS NULL"))
    text = f"{column} is spread as in the last {last} batches"
    return Drift(text, (column,), tuple(bins), at_most, last)


def _from(name: str, low: float, high: float) -> str:
    return compared(name, lambda of: f"{name} >= {of(low)} AND {name} < {of(high)}")


def _equals(name: str, value: object) -> str:
    return compared(name, lambda of: f"{name} = {of(value)}")


def _rates(before: Sequence[Past], at_ms: int) -> list[float]:
    """The rows of a second in each batch of the hour of a time, by the time since the batch before."""
    begin_ms = at_ms // _HOUR_MS * _HOUR_MS
    first, end = (
        bisect_left(before, ms, key=lambda past: past.at_ms) for ms in (begin_ms, begin_ms + _HOUR_MS)
    )
    return [
        (later.values.get("rows") or 0) * 1000 / (later.at_ms - earlier.at_ms)
        for earlier, later in pairwise(before[max(0, first - 1) : end])
        if later.at_ms > earlier.at_ms
    ]


def _near(now: float, usual: float, within: float, what: str, unit: str = "rows") -> Judgement:
    low, high = usual * (1 - within), usual * (1 + within)
    return Judgement(low <= now <= high, f"{_number(now)} {unit}, and {what} has {_number(usual)}")


def _share(count: float, of: Sequence[float]) -> float:
    return max(count / sum(of), _SMALLEST_SHARE)


def _percent(count: float, of: Sequence[float]) -> str:
    return f"{100 * count / sum(of):.1f} %"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2f}"


def _plain(age: timedelta) -> str:
    seconds = in_micros(age) / 1e6
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
