"""Where a record stands, and where the rows of a table say that they come from."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

TOPIC, PARTITION, OFFSET, SOURCES = "_topic", "_partition", "_offset", "_sources"
"""As in `sources.coordinates`, which needs PySpark."""


@dataclass(frozen=True, order=True)
class Place:
    """A record's place: a topic, as the ledger calls it, a partition and an offset."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"

    @property
    def span(self) -> "Span":
        """The range that holds this record only."""
        return Span(self.topic, self.partition, self.offset, self.offset + 1)

    @classmethod
    def parse(cls, text: str) -> "Place | None":
        """The place that a text names; None where it names none.

        Example:
            >>> Place.parse("clicks:0:17"), Place.parse("eu:clicks:0:17").topic, Place.parse("gold.hourly")
            (Place(topic='clicks', partition=0, offset=17), 'eu:clicks', None)
        """
        topic, *numbers = text.rsplit(":", 2)
        if not topic or len(numbers) != 2 or not all(n.isdecimal() and n.isascii() for n in numbers):
            return None
        place = cls(topic, *map(int, numbers))
        return place if place.partition < 2**31 and place.offset < 2**63 - 1 else None


@dataclass(frozen=True, order=True)
class Span:
    """Offsets of a partition, half-open."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        if self.end == self.start + 1:
            return f"{self.topic}:{self.partition}:{self.start}"
        return f"{self.topic}:{self.partition}:[{self.start}, {self.end})"

    def __len__(self) -> int:
        return self.end - self.start

    def holds(self, place: Place) -> bool:
        """Whether a record is among them."""
        return (place.topic, place.partition) == (self.topic, self.partition) and (
            self.start <= place.offset < self.end
        )

    def places(self, most: int) -> Iterator[Place]:
        """The first records of it."""
        for offset in range(self.start, min(self.end, self.start + most)):
            yield Place(self.topic, self.partition, offset)


def spans_of(row: Mapping[str, Any]) -> tuple[Span | None, ...]:
    """What a row was made of: the ranges of its `_sources`, in their order and None for a missing one, or the one
    record of its coordinates; nothing for a row that has neither.

    Example:
        >>> [str(each) for each in spans_of({"_topic": "clicks", "_partition": 0, "_offset": 7})]
        ['clicks:0:7']
    """
    sources = row.get(SOURCES)
    if sources is not None:
        return tuple(
            None if each is None else Span(each["topic"], each["partition"], each["start"], each["end"])
            for each in sources
        )
    place = place_of(row)
    return () if place is None else (place.span,)


def place_of(row: Mapping[str, Any]) -> Place | None:
    """A row's own place, by which another table's rows name it: its coordinates, or its first record."""
    if row.get(OFFSET) is not None:
        return Place(row[TOPIC], row[PARTITION], row[OFFSET])
    first = next((each for each in row.get(SOURCES) or () if each is not None), None)
    return None if first is None else Place(first["topic"], first["partition"], first["start"])


def joined(spans: Iterable[Span]) -> list[Span]:
    """Ranges without overlaps and without neighbours that touch, in order."""
    result: list[Span] = []
    for each in sorted(spans):
        last = result[-1] if result else None
        of_one = last is not None and (last.topic, last.partition) == (each.topic, each.partition)
        if last is not None and of_one and each.start <= last.end:
            result[-1] = Span(last.topic, last.partition, last.start, max(last.end, each.end))
            continue
        result.append(each)
    return result
