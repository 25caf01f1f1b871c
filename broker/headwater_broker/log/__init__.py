"""The partition log: Kafka's files on disk, and what may be read from them.

Start with `LogManager`, which opens every partition of a broker, and `PartitionLog`, which appends and reads.

What follows is the one definition of what is on the disk. It is Apache Kafka 3.9's (with ZooKeeper), so that
its tools read our directories and we open its. All integers are big-endian; text is UTF-8, a newline after
each line.

A log directory, of which a broker may have several, on disks of their own::

    <topic>-<partition>/               one directory for each partition
    <topic>-<partition>.<id>-delete/   a partition that was deleted or moved away: removed within a second, or by
                                       the next start
    <topic>-<partition>.<id>-future/   a partition that is being moved here: removed by the next start
    <topic>-<partition>.<id>-stray/    a partition of a topic with another id than the one of that name: as Kafka does,
                                       it is set aside; yours to inspect or remove
    <topic>-<partition>.<id>-moved/    one that is here whole, for the moment in which the old directory gets
                                       its -delete: the next start gives it its name, unless the old one is there
    meta.properties                    text: version=0, broker.id=N, cluster.id=ID; other lines are kept
    recovery-point-offset-checkpoint   offsets: everything before is on the disk for certain
    log-start-offset-checkpoint        offsets: the first that can be read
    replication-offset-checkpoint      offsets: the high watermark
    cleaner-offset-checkpoint          offsets: up to where a log is compacted; a partition is in it from before
                                       its first compaction on, and only then may offsets be missing
    .kafka_cleanshutdown               {"version":0,"brokerEpoch":-1}, from a clean stop to the next start
    .lock                              empty; held with a POSIX lock by the broker that runs
    .headwater-missing-offsets         text: `<topic> <partition> <first offset> <offset after the last> <file>` for
                                       each range that is lost; there only while something is. Offsets that were lost
                                       before the log's first segment come back with their files by what this says
    .headwater-offline                 text: `<topic> <partition> <why>` for each partition that cannot be read, or
                                       whose topic is not known; there only while there is one
    .headwater-checked-timestamps      empty; there once a version has started that looks at every timestamp
    .headwater-probe                   64 KiB of zeros; there for a moment, when something on the disk has failed

An offset checkpoint is text: the version `0`, the number of entries, then `<topic> <partition> <offset>` for
each; Kafka makes it empty, which stands for no entries. Behind the last entry stand 32 blanks, which Kafka passes over
and does not write: the bits of the CRC-32C of the file without them, a tab for each that is set, a space for each that
is not. A leader epoch checkpoint has them, too. A file that does not match is not used: one that says by mistake where
a log starts would cost all records before that. Small files are replaced whole: written as
`<name>.tmp`, synced where a crash would matter, renamed.

A partition's directory, N being an offset with 20 digits::

    N.log                     a segment: batches from offset N on; the one with the greatest N is written to
    N.index                   its offset index; that of the newest segment grows with it, and is written whole when
                              the segment is full or the broker stops
    N.timeindex               its time index, in the same way
    N.txnindex                its aborted transactions, where there are any
    N.txnsum                  text: the CRC-32C of N.txnindex in hexadecimal digits, so that one that is gone or damaged
                              is made again; Kafka writes none
    N.snapshot                idempotent producers as of offset N: where a segment begins, and at a clean stop
    leader-epoch-checkpoint   text: version `0`, number of entries, `<epoch> <start offset>` for each
    partition.metadata        text: `version: 0`, then `topic_id: <16 bytes in URL-safe base64, no padding>`; an id that
                              differs in one character from that of the topic is damaged, and written again
    N.broken, N-<i>.broken    what recovery cut off from offset N on: yours to inspect or remove
    *.deleted                 removed after file.delete.delay.ms, or by the next start
    *.cleaned, *.tmp          unfinished, removed by the next start
    *.swap                    a compacted segment that takes the place of others: see below

A record batch (magic 2)::

    byte  size  field
       0     8  base offset         of the first record
       8     4  batch length        of everything after this field
      12     4  leader epoch        of the leader that appended it; -1 if unknown
      16     1  magic               2
      17     4  checksum            CRC-32C of everything from byte 21 to the end
      21     2  attributes          bits 0-2: codec (0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd); bit 3: all
                                    records have the broker's time, the max timestamp; bit 4: transactional;
                                    bit 5: control batch; bit 6: the base timestamp is a delete horizon
      23     4  last offset delta   last offset - base offset
      27     8  base timestamp      of the first record, in milliseconds since 1970; -1: none; with bit 6 the
                                    time from which compaction may drop the batch's tombstones, or its marker
      35     8  max timestamp       the greatest of all records
      43     8  producer id         -1: not idempotent
      51     2  producer epoch
      53     4  base sequence       of the first record; wraps from 2^31-1 to 0
      57     4  record count
      61        records             compressed together, if they are: gzip, zstd and LZ4 as one frame (Kafka
                                    reads LZ4 frames of independent blocks only); snappy as one raw block, or as
                                    `82 53 4e 41 50 50 59 00`, version 1 (4), compatible version 1 (4), and blocks,
                                    each behind its length (4)

    record: length, attributes (1 byte), timestamp delta, offset delta, key length, key, value length, value,
    header count, and for each header key length, key, value length, value; counts, lengths and deltas are
    zigzag variable-length integers, a length of -1 stands for null

    timestamp of a record = base timestamp + its delta, offset = base offset + its delta

Batches are stored as they were sent, once every record was checked (`inspection`). The broker corrects the greatest
timestamp where a client's is wrong. It writes base offset and leader epoch into them, which the checksum leaves out,
and the time where the topic says so. Where the topic's compression.type names a codec, batches of another codec are
compressed anew. Offsets are consecutive, except where compaction removed records: a batch that it rewrote keeps base
offset and last offset delta, codec and sequence numbers, and may have no records at all, where its producer is still
remembered.

An offset index has entries of 8 bytes: offset - N (4), position (4). The offset is the last one of the batch
that begins at that position of the log. A batch gets an entry when more than index.interval.bytes lie between
it and the last one that has.

A time index has entries of 12 bytes: timestamp (8), offset - N (4). The offset is the last one of the first
batch that reached the timestamp. The greatest timestamp so far gets an entry together with an offset index's,
if it has grown, and when the segment is sealed. Both files are written whole when the segment is sealed or
the broker stops.

A transaction index has entries of 34 bytes: version 0 (2), producer id (8), first offset of the transaction
(8), offset of its marker (8), the partition's last stable offset after it (8). An aborted transaction is in the
index of the segment that holds its marker. The file is written when the segment is sealed or the broker stops,
and made again with the other indexes.

Compaction (see `cleaner`) writes a segment under the name of the first that it replaces: N.index.cleaned,
N.timeindex.cleaned, N.txnindex.cleaned and N.log.cleaned are synced, renamed to `.swap` in this order, the old
files renamed to `.deleted` from the oldest segment on, and `.swap` taken away, from the log first. A start that finds
`.cleaned` files removes them and all `.swap` files at or after the first of them; then a log with `.swap` replaces
what lies within its offsets, and files beside it lose their `.swap`.

A marker ends a transaction in a partition: a control batch of one record. Its key is version 0 (2) and the type
(2; 0 abort, 1 commit), its value version 0 (2) and the leader epoch of the transaction coordinator (4).

A producer snapshot is the version 1 (2 bytes), the CRC-32C of all that follows (4), the number of producers
(4), and for each: producer id (8), epoch (2), last sequence (4), last offset (8), last offset delta of the
last batch (4), its max timestamp (8), epoch of the transaction coordinator (4; -1: none), first offset of the
open transaction (8; -1).

A start after a clean stop scans nothing if the log ends where the recovery point says; what was stored before
is checked when it is first read. Any other start checks every batch of the segment that holds the recovery
point and of all later ones: checksum, offsets, leader epoch. Where offsets may be missing, a batch after a gap
is believed once the next batch or segment comes after it, since no checksum covers a base offset. A file that
ends within its last batch, or in zeros, has a torn tail, which is cut. Anything else that is wrong is
corruption: from the recovery point on, the log is cut before it, and what was cut is kept as `.broken`; before
the recovery point nothing is changed and the partition stays offline. A segment that reaches further than its
indexes can say (2^31 offsets; none that we write) is split, at any start. Indexes that are missing or lead astray
are made again.
"""

from headwater_broker.log.cleaner import CleanerConfig, Cleaning
from headwater_broker.log.clock import Clock, SystemClock
from headwater_broker.log.config import (
    BROKER_DEFAULTS,
    CONFIG_KEYS,
    ConfigKey,
    LogConfig,
    format_value,
    parse_value,
)
from headwater_broker.log.down_conversion import messages_of_batches
from headwater_broker.log.errors import (
    BatchTooLargeError,
    CoordinatorFencedError,
    CorruptBatchError,
    CorruptLogError,
    InconsistentIdentityError,
    InvalidBatchError,
    InvalidConfigError,
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTransactionStateError,
    LogDirError,
    LogDirLockedError,
    LogError,
    MissingOffsetsError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    ProducerStateError,
    RecordTooLargeError,
    SchemasUnavailableError,
    StorageError,
    UnsupportedCodecError,
    UnsupportedMagicError,
)
from headwater_broker.log.flush import Flush
from headwater_broker.log.fs import FileSystem, OsFileSystem
from headwater_broker.log.inspection import Allowance, TooMuchAtOnceError
from headwater_broker.log.lost_folders import LostFolder, lost_folders
from headwater_broker.log.manager import LogManager
from headwater_broker.log.markers import Marker
from headwater_broker.log.message_sets import batch_of_messages, without_zstd
from headwater_broker.log.move import Move
from headwater_broker.log.partition import MayBegin, PartitionLog
from headwater_broker.log.record_stream import Slices, finished
from headwater_broker.log.results import Appended, EpochEnd, FileRange, Isolation, TimestampAndOffset
from headwater_broker.log.tail import LookedInto
from headwater_broker.log.unreadable import Unreadable, find_unreadable

__all__ = [
    "BROKER_DEFAULTS",
    "CONFIG_KEYS",
    "Allowance",
    "Appended",
    "BatchTooLargeError",
    "CleanerConfig",
    "Cleaning",
    "Clock",
    "ConfigKey",
    "CoordinatorFencedError",
    "CorruptBatchError",
    "CorruptLogError",
    "EpochEnd",
    "FileRange",
    "FileSystem",
    "Flush",
    "InconsistentIdentityError",
    "InvalidBatchError",
    "InvalidConfigError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTransactionStateError",
    "Isolation",
    "LogConfig",
    "LogDirError",
    "LogDirLockedError",
    "LogError",
    "LogManager",
    "LookedInto",
    "LostFolder",
    "Marker",
    "MayBegin",
    "MissingOffsetsError",
    "Move",
    "OffsetOutOfRangeError",
    "OsFileSystem",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "PartitionOfflineError",
    "ProducerStateError",
    "RecordTooLargeError",
    "SchemasUnavailableError",
    "Slices",
    "StorageError",
    "SystemClock",
    "TimestampAndOffset",
    "TooMuchAtOnceError",
    "Unreadable",
    "UnsupportedCodecError",
    "UnsupportedMagicError",
    "batch_of_messages",
    "find_unreadable",
    "finished",
    "format_value",
    "lost_folders",
    "messages_of_batches",
    "parse_value",
    "without_zstd",
]
