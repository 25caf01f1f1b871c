"""What the producer delivered, kept across a kill: an append-only file of JSON lines under `<home>/demo`.

One line for each slice of the plan, written after the broker acknowledged every record of it:

    {"slice": 12, "delivered": {"departures": {"0": 4, "2": 1}, "arrivals": {"1": 3}}}

and one for records that reached the log though their delivery reports were lost with a killed process:

    {"found": {"departures": {"0": 2}}}

A last line without its newline was being written when the process died, and does not count. The demo is the
only writer of its topics, so a partition's next offset is the number of records delivered and unreported.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TopicPartition = tuple[str, int]


class Journal:
    """The delivery reports so far.

    Attributes:
        delivered: Records acknowledged to this producer, by topic and partition.
        unreported: Records in the log without a delivery report, by topic and partition.
        next_slice: The first slice of the plan that is not wholly delivered.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.delivered: Counter[TopicPartition] = Counter()
        self.unreported: Counter[TopicPartition] = Counter()
        self.next_slice = 0
        text = path.read_text() if path.exists() else ""
        whole, _, torn = text.rpartition("\n")
        if torn:
            path.write_text(whole + "\n" if whole else "")
        for line in whole.splitlines():
            self._apply(json.loads(line))

    def next_offset(self, topic: str, partition: int) -> int:
        """The offset that the partition's next record will get."""
        return self.delivered[topic, partition] + self.unreported[topic, partition]

    def produced(self, topic: str) -> int:
        """Records of `topic` in the log: delivered and unreported."""
        return sum((self.delivered + self.unreported)[key] for key in self.partitions(topic))

    def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions of `topic` that hold something."""
        return sorted(key for key in self.delivered + self.unreported if key[0] == topic)

    def record_slice(self, index: int, delivered: Mapping[TopicPartition, int]) -> None:
        """Notes that slice `index` was delivered: so many records for each partition."""
        self._append({"slice": index, "delivered": _nested(delivered)})

    def record_unreported(self, counts: Mapping[TopicPartition, int]) -> None:
        """Notes records that the log holds, but whose reports were lost."""
        self._append({"found": _nested(counts)})

    def _append(self, entry: dict[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(entry, separators=(",", ":")) + "\n")
        self._apply(entry)

    def _apply(self, entry: dict[str, Any]) -> None:
        self.delivered.update(_flat(entry.get("delivered", {})))
        self.unreported.update(_flat(entry.get("found", {})))
        if "slice" in entry:
            self.next_slice = entry["slice"] + 1


def _nested(counts: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), count in sorted(counts.items()):
        nested.setdefault(topic, {})[str(partition)] = count
    return nested


def _flat(nested: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {(topic, int(p)): count for topic, counts in nested.items() for p, count in counts.items()}
