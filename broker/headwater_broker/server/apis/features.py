"""UpdateFeatures: as a broker answers whose cluster has no versioned features, as Kafka's with ZooKeeper."""

from typing import Any

from kio.schema.errors import ErrorCode

from headwater_broker.server.core import Request, Response
from headwater_broker.server.node import Node
from headwater_broker.wire.apis import UPDATE_FEATURES

_UPGRADE = 1


class FeatureApis:
    """Each update is refused: there is no feature that it could be about."""

    def __init__(self, node: Node) -> None:
        node.core.register(UPDATE_FEATURES, self.update_features)

    def update_features(self, request: Request) -> Response:
        """Says of each feature why it is not updated."""
        updates = request.body.feature_updates
        names = [each.feature for each in updates]
        if not updates or len(set(names)) < len(names):
            message = "Name the features to update, each once."
            return {"error_code": ErrorCode.invalid_request, "error_message": message, "results": []}
        return {
            "error_code": ErrorCode.none,
            "error_message": None,
            "results": [
                {
                    "feature": each.feature,
                    "error_code": ErrorCode.invalid_request,
                    "error_message": _why(each),
                }
                for each in updates
            ],
        }


def _why(update: Any) -> str:
    if not update.feature:
        return "Can not provide empty feature name."
    may_downgrade = (
        getattr(update, "allow_downgrade", False) or getattr(update, "upgrade_type", 1) != _UPGRADE
    )
    if update.max_version_level < 1:
        if not may_downgrade:
            return (
                f"Can not provide maxVersionLevel: {update.max_version_level} less than 1"
                " without setting the allowDowngrade flag to true in the request."
            )
        return "Can not delete non-existing finalized feature."
    return "Could not apply finalized feature update because the provided feature is not supported."
