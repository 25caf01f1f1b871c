"""Watches the jobs from outside, through their commits: how far they read, in how many batches."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.demo.events import ARRIVALS, DEPARTURES, WEATHER
from headwater.demo.journal import TopicPartition
from headwater.demo.reconcile import LogRecord
from headwater_streams.ledger.log import commits
from headwater_streams.storage.home import Home

TOPIC_OF = {"silver.departures": DEPARTURES, "silver.arrivals": ARRIVALS, "silver.weather": WEATHER}
"""The tables that are made from a topic."""

TABLES_OF = {
    "gold.delay_by_carrier": ("silver.departures",),
    "gold.flights": ("silver.departures", "silver.arrivals"),
    "gold.departures_weather": ("silver.departures", "silver.weather"),
}
"""The tables that are made from tables."""


@dataclass
class TableHistory:
    """What the commits of one table say up to now.

    Attributes:
        next_version: The first version that was not looked at.
        last_with_rows: The last version that added rows; those after it have nothing for the jobs behind.
        read_versions: The end of the versions that the job read, by the table read.
        batches: (generation, batch) of each commit of a job that read something.
        ends: How far the job read each partition, to the first offset not read.
        starts: The first offset of each batch, by partition, with the batch's number, in order.
        totals: The sums of the accounting's terms over all inputs.
        imbalances: Batches whose terms do not add up, each as a sentence.
    """

    next_version: int = 0
    last_with_rows: int = -1
    read_versions: dict[str, int] = field(default_factory=dict)
    batches: set[tuple[int, int]] = field(default_factory=set)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: defaultdict[TopicPartition, list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    totals: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    imbalances: list[str] = field(default_factory=list)


class Watch:
    """Follows the Delta logs of the demo's tables."""

    def __init__(self, home: Home) -> None:
        """Start with nothing read; the tables need not exist yet."""
        self._home = home
        self.tables = {name: TableHistory() for name in (*TOPIC_OF, *TABLES_OF)}

    def look(self) -> None:
        """Read the commits that are new."""
        for name, history in self.tables.items():
            for commit in commits(self._home.table(name), since=history.next_version):
                history.next_version = commit.version + 1
                if commit.rows_added:
                    history.last_with_rows = commit.version
                entry = commit.entry
                if entry is None or not entry.is_batch:
                    continue
                history.imbalances += entry.imbalances()
                for terms in entry.accounting.values():
                    for term, value in terms.items():
                        history.totals[term] += value
                    if terms.get("read"):
                        history.batches.add((entry.generation, entry.batch))
                for source in entry.sources:
                    if source.table is not None and source.versions is not None:
                        history.read_versions[source.table] = source.versions[1]
                    for topic, partitions in source.ranges.items():
                        for partition, (start, end) in partitions.items():
                            place = topic, partition
                            history.ends[place] = max(end, history.ends.get(place, 0))
                            if start < end:
                                history.starts[place].append((start, entry.batch))

    def rows_until(self) -> dict[str, int]:
        """The last version that added rows of each table that is made from a topic, as of the last look."""
        return {name: self.tables[name].last_with_rows for name in TOPIC_OF}

    def records_read(self) -> int:
        """How many records of their topics the jobs have read, as of the last look."""
        return sum(sum(self.tables[name].ends.values()) for name in TOPIC_OF)

    def behind(
        self, produced: Mapping[TopicPartition, int], rows_until: Mapping[str, int] | None = None
    ) -> list[str]:
        """The tables whose jobs have not read all that was produced.

        Args:
            produced: The end of each partition, to the first offset not produced.
            rows_until: The versions that the jobs behind tables must have read; the newest, if not given.
        """
        self.look()
        late = [name for name in TOPIC_OF if self._lacks_records(name, produced)]
        until = self.rows_until() if rows_until is None else rows_until
        return late + [name for name in TABLES_OF if self._lacks_rows(name, until)]

    def _lacks_records(self, name: str, produced: Mapping[TopicPartition, int]) -> bool:
        ends = self.tables[name].ends
        return any(ends.get(place, 0) < end for place, end in produced.items() if place[0] == TOPIC_OF[name])

    def _lacks_rows(self, name: str, until: Mapping[str, int]) -> bool:
        read = self.tables[name].read_versions
        return any(read.get(table, 0) <= until[table] for table in TABLES_OF[name])

    def batch_that_read(self, record: LogRecord) -> int:
        """The batch of the silver job that read a record of its topic.

        Raises:
            KeyError: None has read it.
        """
        history = self.tables[f"silver.{record.topic}"]
        place = record.topic, record.partition
        starts = history.starts[place]
        index = bisect_right(starts, record.offset, key=lambda start: start[0]) - 1
        if index < 0 or record.offset >= history.ends[place]:
            raise KeyError(f"{record.topic}-{record.partition} offset {record.offset} is in no batch")
        return starts[index][1]
