"""What handlers and guards share: answers without content about one requested thing, and a check of Metadata."""

from kio.schema.errors import ErrorCode

from headwater_broker.server.core import Request, Response

_IDS_DECLARED_FROM, _IDS_FROM = 10, 12


def undescribed_group(group_id: str, code: ErrorCode) -> Response:
    """Of DescribeGroups."""
    return {
        "error_code": code,
        "group_id": group_id,
        "group_state": "",
        "protocol_type": "",
        "protocol_data": "",
        "members": [],
    }


def undescribed_transaction(transactional_id: str, code: ErrorCode) -> Response:
    """Of DescribeTransactions."""
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "",
        "transaction_timeout": 0,
        "transaction_start_time": 0,
        "producer_id": 0,
        "producer_epoch": 0,
        "topics": [],
    }


def no_coordinator(code: ErrorCode, message: str | None) -> Response:
    """Of FindCoordinator."""
    return {"error_code": code, "error_message": message, "node_id": -1, "host": "", "port": -1}


def names_topics(request: Request) -> bool:
    """Whether each topic of a Metadata request is named, where the version demands it.

    Versions 10 and 11 have ids and nullable names, but no answers about them: Kafka refuses all of such a request.
    """
    return not _IDS_DECLARED_FROM <= request.version < _IDS_FROM or all(
        each.name is not None and each.topic_id is None for each in request.body.topics
    )
