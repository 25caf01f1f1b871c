"""The audit by counts: what each tier saw of a topic, by bucket of the records' timestamps. It needs no Spark.

Tiers stand in the order in which a record passes them: `producer`, `appended` (what brokers counted as they took it),
`broker` (their log), `mirror`, a job's `input`, and where it ends: `table`, `quarantine`, `late`, or as a `duplicate`.
Each is compared with the brokers' log, offset by offset
rather than by sums: a producer says at which offsets it was acknowledged, a commit which offsets it read, and a row
which one it came of. So a record that is lost and another that is doubled do not make up for each other, and what is
wrong is named by its offsets.

`facts` is what is known, `producers`, `mirrors` and `tables` decide, `findings` says it. None of them opens anything.
`judging` chooses the buckets that are decided anew, by what `store` has kept of the others in `audit.counts`.
"""

from headwater_streams.ledger.counts.facts import (
    Batch,
    Claims,
    Earlier,
    Heard,
    Held,
    MirrorFacts,
    TableFacts,
    TopicLog,
)
from headwater_streams.ledger.counts.findings import BucketVerdict, Finding, Findings, TierCount, verdicts
from headwater_streams.ledger.counts.mirrors import check_mirror, mirror_facts
from headwater_streams.ledger.counts.producers import check_producers
from headwater_streams.ledger.counts.tables import check_table, of_this_topic

__all__ = [
    "Batch",
    "BucketVerdict",
    "Claims",
    "Earlier",
    "Finding",
    "Findings",
    "Heard",
    "Held",
    "MirrorFacts",
    "TableFacts",
    "TierCount",
    "TopicLog",
    "check_mirror",
    "check_producers",
    "check_table",
    "mirror_facts",
    "of_this_topic",
    "verdicts",
]
