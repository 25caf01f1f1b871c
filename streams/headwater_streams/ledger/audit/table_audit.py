"""What an audit finds: of a table, and of each partition of the topics that it came from."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PartitionAudit:
    """One partition of one input topic, as a table's ledger accounts for it.

    Attributes:
        table: The table.
        topic: The topic that the rows come from.
        partition: Its partition.
        start: The first offset read.
        end: One past the last offset read.
        terms: `read` and what became of the rows, summed over the batches.
        ok: Whether nothing was found wrong with this partition.
    """

    table: str
    topic: str
    partition: int
    start: int
    end: int
    terms: dict[str, int]
    ok: bool


@dataclass
class TableAudit:
    """What was found in a table.

    Attributes:
        table: The table.
        job: The job that writes it.
        kind: Its kind of stage.
        totals: The terms of the identity, summed over the batches, by input.
        partitions: The account of each partition.
        findings: What is wrong, a sentence each; empty if all is well.
        notes: What backfills moved since the batches that `partitions` accounts for, and what the live job has written
            again of it, a sentence each.
    """

    table: str
    job: str
    kind: str
    totals: dict[str, dict[str, int]] = field(default_factory=dict)
    partitions: list[PartitionAudit] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings
