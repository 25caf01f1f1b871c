"""Compaction: a log keeps the last record of each key.

`PartitionLog.start_cleaning` plans one; `Cleaning` does it. The rules are Apache Kafka 3.9's (`LogCleaner`):

- Only sealed segments are touched, and of those only what is stable, flushed and older than `min.compaction.lag.ms`.
- The dirty part's keys are put into a map, as many as its memory holds; then every segment from the log's start up to
  where the map reaches is copied without the records that a later one supersedes. Small neighbours become one.
- A tombstone stays for `delete.retention.ms` after the first compaction that met it: its batch is given that time as
  its base timestamp, and bit 6 of the attributes (KIP-534).
- Records of aborted transactions go. A marker stays as long as data of its transaction do, and then as a tombstone.
- The last batch of a producer that is still remembered stays, if need be without records.
- Offsets never change: batches keep their base and last offset, and gaps are left between them.

Each group of segments is written under `.cleaned` names and synced, renamed to `.swap`, its sources renamed to
`.deleted`, and `.swap` taken away. A start that finds `.cleaned` removes it, and `.swap` files at or after it; one that
finds `.swap` alone finishes the exchange.
"""

from headwater_broker.log.cleaner.cleaning import CleanerConfig, Cleaning
from headwater_broker.log.cleaner.plan import Dirt, measure_dirt

__all__ = ["CleanerConfig", "Cleaning", "Dirt", "measure_dirt"]
