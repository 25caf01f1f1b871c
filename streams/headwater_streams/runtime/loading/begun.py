"""What a load has begun: `checkpoints/load-TABLE/load.json`, written before each chunk.

    {"table": "<Delta's id of the table>", "code": "9f2c0011aabbccdd", "topics": {"clicks": "<KIP-516>"}, "batch": 3,
     "ranges": {"clicks": {"0": [10, 15]}}}

A chunk that was begun is read again as it was, and not cut anew: its rejected rows may be committed already, and they
are committed once. Code that was changed, and a topic that was made again, would be mixed with what the table has. Once
the table was removed, nothing of this counts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headwater_streams.base.ledger_entry import Ranges
from headwater_streams.base.record import Record
from headwater_streams.storage.files import exists
from headwater_streams.storage.home import Home
from headwater_streams.storage.records import read_record, write_record

_FILE = "load.json"


@dataclass(frozen=True, kw_only=True)
class BegunLoad(Record):
    """See the module.

    Attributes:
        table: Delta's id of the table.
        code: A digest of the job's function and declaration, whatever topic it reads.
        topics: The topics that were loaded, each with its id; None where that is not known.
        batch: The batch that was begun last.
        ranges: What it reads.
    """

    WHAT = "what a load has begun"

    table: str
    code: str
    topics: Mapping[str, str | None]
    batch: int
    ranges: Ranges

    def to_json(self) -> dict[str, Any]:
        """It as it is stored."""
        ranges = {
            topic: {str(partition): list(pair) for partition, pair in partitions.items()}
            for topic, partitions in self.ranges.items()
        }
        return self.version_key() | {
            "table": self.table,
            "code": self.code,
            "topics": dict(self.topics),
            "batch": self.batch,
            "ranges": ranges,
        }

    @classmethod
    def from_json(cls, value: Any) -> "BegunLoad":
        """It as it was stored."""
        stored = dict(cls.checked(value))
        stored.pop(cls.FORMAT_KEY, None)
        stored["ranges"] = {
            topic: {int(partition): (int(start), int(end)) for partition, (start, end) in partitions.items()}
            for topic, partitions in stored["ranges"].items()
        }
        return cls(**stored)


def begun_load(home: Home, job: str) -> BegunLoad | None:
    """What a load has begun; None where it has not.

    Raises:
        DamagedFileError: The file is not what was written.
        NewerFileError: A newer Headwater wrote it.
    """
    path = home.job(job) / _FILE
    return read_record(path, BegunLoad) if exists(path) else None


def remember_begun(home: Home, job: str, begun: BegunLoad) -> None:
    """Stores what a load begins now."""
    write_record(home.job(job) / _FILE, begun)
