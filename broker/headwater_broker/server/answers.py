"""Answers without content that both handlers and guards give, about one thing that was asked for."""

from kio.schema.errors import ErrorCode

from headwater_broker.server.core import Response


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
