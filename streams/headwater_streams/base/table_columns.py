"""What the columns that the library adds to tables hold, one sentence each; the reference's page of tables shows it.

The types stand where the columns are made. `tests/docs/test_docs_reference.py` holds the names here against those.
"""

from collections.abc import Mapping

ROW_DESCRIPTIONS: Mapping[str, str] = {
    "_topic": "Topic of the record that the row was made of.",
    "_partition": "Partition of that record.",
    "_offset": "Offset of that record.",
    "_timestamp": "Timestamp of that record in its topic.",
    "_origin": "Where the record was written first, as its `headwater-origin-...` headers say; NULL without them.",
}
"""Of a row that was made of one record; of a join's row, of its left record."""

EXPLODED_DESCRIPTIONS: Mapping[str, str] = {
    "_row": "Place of the row in its record, from 0 on, where the job's function makes several rows of a record.",
}
"""Of a row whose record may have become others, too."""

RECORD_DESCRIPTIONS: Mapping[str, str] = {
    "_key": "The record's key, where the job uses it.",
    "_headers": "The record's headers by their names, where the job uses them.",
}
"""Of a row of an ingest table."""

COMMIT_DESCRIPTIONS: Mapping[str, str] = {
    "_batch": "Number of the batch that wrote the row.",
    "_generation": "Generation of the job that wrote the row.",
}

RESULT_DESCRIPTIONS: Mapping[str, str] = {
    "_sources": "Offsets that the row was made of, by topic and partition; the end is exclusive.",
    "_rows": "How many rows the window counts.",
    "_seen_until": "Greatest event time that the job had seen before the row's batch, by which the row is late or not.",
    "_changes": "How many change events the row stands for.",
    "valid_from": "Where the version begins to hold, in the values of `sequence_by`.",
    "valid_to": "Where the next version begins or the key was deleted; NULL for the version that holds.",
    "is_current": "Whether the version holds now.",
}
"""Of a job's own table, beside the columns of its function."""

SIDE_DESCRIPTIONS: Mapping[str, str] = {
    "_input": "The job's input that the row came by.",
    "_missed": "The windows that lack the row, where windows overlap.",
    "_reason": "Why the record was rejected; several reasons are separated by semicolons.",
    "_check": "The checks or columns that the reasons are about.",
    "_key": "The record's key, as it was sent.",
    "_raw": "The record's value, as it was sent.",
    "_headers": "The record's headers.",
    "_deleted": "Whether the change event deletes its key's row.",
}
"""Of the tables beside a job's own: late rows, quarantine, changes."""

PROGRESS_DESCRIPTIONS: Mapping[str, str] = {
    "happened_at": "When the event happened; of a batch, when it began.",
    "job": "Name of the job, or of one of its parts.",
    "table": "The table that it writes.",
    "generation": "The job's generation.",
    "event": "`started`, `batch`, `stopped`, `waiting`, `failed`, `refused` or `blocked`.",
    "batch": "Number of the batch.",
    "rows": "Records and rows that the batch read, from all inputs.",
    "duration_ms": "How long the batch took.",
    "watermark": "The watermark that the batch ran with.",
    "behind": "Records that the topics had and the batch did not read; NULL for a job that reads tables only.",
    "sources": "For each input: rows read, records behind, where the batch ended and where the input ended.",
    "operators": "For each stateful operator: rows and bytes of state, rows updated and dropped, and the time it took.",
    "durations_ms": "How long the batch's steps took, by Spark's names of them.",
    "message": "Why the job failed, was refused, waits or is blocked, or what it reads again before it goes on.",
}
"""Of `headwater.progress`."""

LEDGER_DESCRIPTIONS: Mapping[str, str] = {
    "table": "The table of the commit.",
    "generation": "Generation of the job that committed.",
    "version": "Version of the table that the commit made.",
    "committed_at": "When.",
    "job": "The job that committed.",
    "batch": "Its batch.",
    "kind": "The kind of commit.",
    "rows_added": "Rows in the files that the commit added.",
    "ranges": "Offsets that the commit is about, by topic and partition; the end is exclusive.",
    "accounting": "What became of the rows that were read: the terms of each input.",
    "entry": "The whole ledger entry, as JSON.",
}
"""Of `headwater.ledger`."""

COUNTS_DESCRIPTIONS: Mapping[str, str] = {
    "topic": "The topic.",
    "bucket": "When the bucket begins.",
    "bucket_ms": "How wide it is, in milliseconds.",
    "tier": "`producer`, `appended`, `broker`, `mirror`, `input`, `table`, `quarantine`, `late` or `duplicate`.",
    "place": "The producer, table or cluster; empty for the brokers.",
    "records": "How many records of the bucket the tier saw.",
    "open": "How many it may still see.",
    "status": "Of the bucket: the worst of `complete`, `open`, `unknown`, `stray`, `uncounted`, `doubled`, `missing`.",
    "missing": "Of the bucket: how many records are missing at some tier.",
    "doubled": "Of the bucket: how many stand somewhere more than once.",
    "uncounted": "Of the bucket: how many no producer counted.",
    "offsets": "Of the tier `broker`: the offsets of the bucket's records; the end is exclusive.",
    "unknown": "Of the bucket: of how many nobody can say whether they stood there.",
    "said": "Of the tiers `producer` and `appended`: what was said of the bucket, as JSON, for the next audit.",
}
"""Of `audit.counts`."""

RESULTS_DESCRIPTIONS: Mapping[str, str] = {
    "at": "When.",
    "job": "The job; NULL where a suite judged a version of a table.",
    "table": "The table.",
    "check": "The check, or the expectation of a suite.",
    "outcome": "`held`, `within` or `broken`.",
    "action": "What the check does: `quarantine`, `drop`, `fail` or `warn`.",
    "kind": "What was judged: a `batch` that was committed, one that a check `stopped`, a version by a `suite`, one "
    "by `manual`, which is `headwater quality run`, or the rows of a `backfill`.",
    "generation": "The job's generation.",
    "batch": "The batch.",
    "version": "The version of the table that has the batch, or that was judged.",
    "judged": "How many rows were judged.",
    "failed": "How many of them failed.",
    "observed": "What was seen, in a few words; empty where the numbers say it all.",
    "values": "What a rule measured, for later batches to be compared with.",
    "sample": "Some of the rows that failed: `TOPIC:PARTITION:OFFSET`, a key, or in a suite the row as JSON.",
    "ranges": "The offsets that the batch read; the end is exclusive.",
    "recorded": "Grows in the order in which results were recorded, whatever the clock said.",
}
"""Of `quality.results`."""

DISCARDED_DESCRIPTIONS: Mapping[str, str] = {
    "table": "The table whose quarantine has the record.",
    "topic": "The record's topic.",
    "partition": "Its partition.",
    "offset": "Its offset.",
    "checks": "What rejected it.",
    "why": "What `--because` said.",
    "at": "When it was discarded.",
}
"""Of `quality.discarded`."""

SEEN_DESCRIPTIONS: Mapping[str, str] = {
    "job": "The job.",
    "origin": "Cluster, topic and partition that records were first written to.",
    "since": "Generation of the job since which the row counts.",
    "generation": "Generation that wrote the row.",
    "batch": "Batch that wrote the row.",
    "intervals": "Offsets of the origin that the job has seen; the ends are exclusive.",
}
"""Of `headwater.seen`."""
