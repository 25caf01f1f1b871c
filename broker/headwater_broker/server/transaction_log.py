"""`__transaction_state`: the internal topic in which this broker's transaction coordinator keeps its state."""

from headwater_broker.log import PartitionLog
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.internal_topics import batch_of, records_of
from headwater_broker.transactions import (
    Transaction,
    Transition,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)


class TransactionLog:
    """One partition of the topic."""

    def __init__(self, log: PartitionLog, writes: DurableWrites) -> None:
        self.log = log
        self._writes = writes

    async def append(self, transition: Transition, now_ms: int) -> None:
        """Stores a transition; returns once it is decided by that.

        Raises:
            LogError: The disk refused, or the state is larger than a record may be.
        """
        value = None if transition.after is None else encode_value(transition.after)
        batch = batch_of([(encode_key(transition.transactional_id), value)], now_ms)
        appended = self.log.append(memoryview(batch), now_ms=now_ms)
        await self._writes.wait(self.log, appended.last_offset + 1)

    def read(self) -> list[Transaction]:
        """The last state of each id.

        Raises:
            LogError: The disk refused, or the log is damaged.
            UnreadableTransactionError: A record is no transaction's.
            UnreadableBatchError: A batch is no records.
        """
        transactions: dict[str, Transaction] = {}
        for key, value in records_of(self.log):
            transactional_id = decode_key(key)
            if value is None:
                transactions.pop(transactional_id, None)
            else:
                transactions[transactional_id] = decode_value(transactional_id, value)
        return list(transactions.values())
