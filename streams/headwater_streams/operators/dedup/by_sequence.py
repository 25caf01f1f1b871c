"""`by_sequence()`: removes records that a producer sent again, by the sequence numbers that the producer gave them.

headers of a record        headwater-producer-id        who sends, any text
                           headwater-producer-epoch     decimal, greater each time that it starts anew
                           headwater-producer-sequence  decimal, one more with each record of an epoch

id  epoch  sequence
p   0      0, 1, 2         new
p   0      1               sent again: a duplicate, under whatever partition and offset it comes
p   1      0, 1            the producer started anew: new
"""

from dataclasses import dataclass

from headwater_streams.base.errors import JobDefinitionError


@dataclass(frozen=True)
class BySequence:
    """Each (producer id, epoch, sequence) counts once, in whatever order records come.

    The headers are `headwater-producer-id` (any text), `headwater-producer-epoch` and `headwater-producer-sequence`
    (decimal numbers; a producer begins a greater epoch each time that it starts anew, and numbers each epoch's records
    one by one). A record without these three counts by its own topic, partition and offset; one with only some of them,
    or with something else than numbers, goes to quarantine. The state is in the ledger: the seen sequences of each id
    and epoch, as intervals (a single one while no sequence is missing). It grows with the number of producers and of
    their starts.

    Attributes:
        max_jump: A sequence further than this beyond all seen sequences of its producer is not believed: the record
            goes to quarantine, and its sequence is not remembered.
    """

    max_jump: int = 10_000_000

    def __post_init__(self) -> None:
        if self.max_jump < 1:
            raise JobDefinitionError("by_sequence(max_jump=...) must be 1 or more")

    @property
    def by_headers(self) -> bool:
        """Whether headers say which records are the same."""
        return True


def by_sequence(*, max_jump: int = 10_000_000) -> BySequence:
    """Declares deduplication by the producer's own sequence; see `BySequence` for the arguments."""
    return BySequence(max_jump)
