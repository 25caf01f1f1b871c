"""What a job with `by_offset` has seen, when its origins are without number: each file that was ever shipped is one.

Three bounds, none of which forgets anything:

- a commit carries all that is at hand (`seen`) while that is little; then what its batch touched (`seen_changed`), and
  every fiftieth all, so that a start reads at most fifty commits back;
- at hand are the thousand origins that were touched last, all that the last batch touched, and the broker's own
  partitions;
- the others are in the table `headwater.seen`, written there before the commit that lets go of them, and read by the
  newest row. A batch that meets an origin that is not at hand looks there. Since no batch lets go of what it touched
  itself, a driver that dies between the two leaves rows that say what earlier commits say, and what a start takes up
  from the commits is never older than what the table has.

Where an origin was let go, the entries' `extra` has `cold`, the generation whose rows of the table count.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from headwater_streams.base.extra import Extra, ExtraValues
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.operators.dedup.intervals import IntervalSet
from headwater_streams.operators.dedup.verdicts import Seen
from headwater_streams.storage.delta_files import reading
from headwater_streams.storage.delta_log import has_versions
from headwater_streams.storage.delta_rows import dataset_of, remove_rows

SEEN_TABLE = "headwater.seen"

LITTLE = 100
WHOLE_EVERY = 50
AT_HAND = 1000
_LET_GO = 250  # at a time: a commit of the table for each origin would cost more than the origins do

Pairs = dict[str, list[tuple[int, int]]]
SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("origin", pa.string()),
        ("since", pa.int32()),
        ("generation", pa.int32()),
        ("batch", pa.int64()),
        ("intervals", pa.list_(pa.struct([("start", pa.int64()), ("end", pa.int64())]))),
    ]
)


@dataclass(frozen=True)
class Account:
    """How a commit's entry tells what was seen: one of the two is None."""

    seen: Pairs | None
    seen_changed: Pairs | None


def account(before: Seen, after: Seen, batch: int, *, little: int = LITTLE) -> Account:
    """What a batch's entry carries.

    Args:
        before: What was at hand before the batch.
        after: What is after it; what was not touched is the same object.
        batch: The batch's number.
        little: How many origins are told whole each time.
    """
    if len(after) <= little or batch % WHOLE_EVERY == 0 or not before:
        return Account({key: intervals.pairs() for key, intervals in after.items()}, None)
    return Account(
        None, {key: intervals.pairs() for key, intervals in after.items() if intervals is not before.get(key)}
    )


def carried(entry: LedgerEntry) -> ExtraValues:
    """What of an entry's `extra` the next one must carry on."""
    return {Extra.COLD: Extra.COLD.of(entry)} if Extra.COLD.is_in(entry) else {}


class ColdOrigins:
    """The origins of one job that are not at hand."""

    def __init__(self, table: Path, job: str, at_hand: int = AT_HAND) -> None:
        """Args: the folder of `headwater.seen`, the job's name, how many origins are at hand."""
        self._table, self._job, self._at_hand = table, job, at_hand
        self.since: int | None = None

    def ledger_extra(self) -> ExtraValues:
        """What an entry's `extra` says of it."""
        return {} if self.since is None else {Extra.COLD: self.since}

    def with_those_of(self, names: Iterable[str], seen: Seen) -> Seen:
        """What is at hand, and of the origins named those that were let go."""
        missing = [] if self.since is None else [name for name in names if name not in seen]
        if not missing:
            return seen
        condition = (
            (pc.field("job") == self._job)
            & (pc.field("since") == self.since)
            & pc.field("origin").isin(missing)
        )
        with reading(self._table):
            rows = dataset_of(self._table).to_table(filter=condition)
        newest = rows.sort_by([("generation", "ascending"), ("batch", "ascending")])
        cold = {
            row["origin"]: IntervalSet((each["start"], each["end"]) for each in row["intervals"])
            for row in newest.to_pylist()
        }
        return {**cold, **seen}

    def let_go(self, before: Seen, seen: Seen, generation: int, batch: int) -> Seen:
        """What stays at hand; the origins touched longest ago are written to the table once they are too many.

        Args:
            before: What was at hand before the batch.
            seen: What is after it; what was not touched is the same object.
            generation: The job's generation.
            batch: The batch's number.
        """
        foreign = [key for key in seen if not key.startswith("\t")]
        if len(foreign) <= self._at_hand:
            return seen
        gone = [key for key in foreign if seen[key] is before.get(key)]
        gone = gone[: len(foreign) - self._at_hand + min(_LET_GO, self._at_hand // 4)]
        if not gone:
            return seen
        self.since = generation if self.since is None else self.since
        rows = [
            {
                "job": self._job,
                "origin": key,
                "since": self.since,
                "generation": generation,
                "batch": batch,
                "intervals": [{"start": start, "end": end} for start, end in seen[key]],
            }
            for key in gone
        ]
        write_deltalake(str(self._table), pa.Table.from_pylist(rows, schema=SCHEMA), mode="append")
        moved = set(gone)
        return {key: intervals for key, intervals in seen.items() if key not in moved}


def take_over(table: Path, origin: Path, job: str, since: int) -> None:
    """Adds what a job's generation let go of elsewhere, in the place of what was left by one of its number.

    Args:
        table: The folder of `headwater.seen`.
        origin: That of the table of the same kind that the generation wrote; it need not be there.
        job: The job's name.
        since: The generation.
    """
    if not has_versions(origin):
        return
    with reading(origin):
        rows = dataset_of(origin).to_table()
    if has_versions(table):
        replaced = (pc.field("job") == job) & (pc.field("since") >= since)
        name = job.replace("'", "''")
        remove_rows(table, replaced, f"job = '{name}' AND since >= {since}")
    write_deltalake(str(table), rows, mode="append")
