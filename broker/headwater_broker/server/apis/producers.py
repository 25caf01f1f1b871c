"""InitProducerId: ids by which producers are told apart, and epochs by which they are fenced."""

from kio.schema.errors import ErrorCode

from headwater_broker.coordination import CoordinationError
from headwater_broker.server.core import Request, Response
from headwater_broker.server.errors import ApiError, error_code
from headwater_broker.server.node import Node
from headwater_broker.server.producer_ids import ProducerIds
from headwater_broker.server.transaction_runner import TransactionRunner
from headwater_broker.transactions import NO_PRODUCER, Producer, TransactionRefused
from headwater_broker.wire.apis import INIT_PRODUCER_ID
from headwater_broker.wire.codec import LEGACY_STRING_BYTES, milliseconds

_FENCED_FROM = 4


class ProducerApis:
    """Gives producers their ids."""

    def __init__(self, node: Node, ids: ProducerIds, transactions: TransactionRunner) -> None:
        self._ids = ids
        self._transactions = transactions
        node.core.register(INIT_PRODUCER_ID, self.init_producer_id)

    async def init_producer_id(self, request: Request) -> Response:
        """A new id for an idempotent producer; for a transactional one its id, under a new epoch."""
        body = request.body
        expected = Producer(request.get("producer_id", -1), request.get("producer_epoch", -1))
        if (expected.producer_id == -1) != (expected.epoch == -1):
            return _refused(ErrorCode.invalid_request)
        # Kafka accepts it and fails to write its record, with an error that makes clients ask for ever.
        if len((body.transactional_id or "").encode()) > LEGACY_STRING_BYTES:
            return _refused(ErrorCode.invalid_request)
        try:
            if body.transactional_id is None:
                # One that goes on after an error (KIP-360) gets a new id as well, as Kafka does it.
                return _granted(Producer(await self._ids.next(), 0))
            return _granted(
                await self._transactions.init_producer(
                    body.transactional_id,
                    milliseconds(body.transaction_timeout),
                    None if expected == NO_PRODUCER else expected,
                )
            )
        except CoordinationError:
            return _refused(ErrorCode.coordinator_load_in_progress)
        except (TransactionRefused, ApiError) as error:
            code = error_code(error)
            if code is ErrorCode.producer_fenced and request.version < _FENCED_FROM:
                code = ErrorCode.invalid_producer_epoch
            return _refused(code)


def _granted(producer: Producer) -> Response:
    return {
        "error_code": ErrorCode.none,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.epoch,
    }


def _refused(code: ErrorCode) -> Response:
    return {"error_code": code, "producer_id": -1, "producer_epoch": -1}
