"""The APIs off the hot path, a module for each family; `register_apis` is the whole of it."""

from headwater_broker.server.apis.configs import ConfigApis
from headwater_broker.server.apis.group_admin import GroupAdminApis
from headwater_broker.server.apis.group_offsets import GroupOffsetApis
from headwater_broker.server.apis.membership import MembershipApis
from headwater_broker.server.apis.metadata import MetadataApis
from headwater_broker.server.apis.offsets import OffsetApis
from headwater_broker.server.apis.producers import ProducerApis
from headwater_broker.server.apis.topics import TopicAdmin
from headwater_broker.server.group_offsets import GroupOffsets
from headwater_broker.server.group_runner import GroupRunner
from headwater_broker.server.node import Node
from headwater_broker.server.offset_retention import OffsetRetention


def register_apis(node: Node) -> GroupRunner:
    """Makes this broker answer everything but Produce and Fetch.

    Returns:
        What runs the groups, to be stopped with the broker.
    """
    MetadataApis(node, TopicAdmin(node))
    ConfigApis(node)
    OffsetApis(node)
    ProducerApis(node)
    runner = GroupRunner(node)
    MembershipApis(node, runner)
    offsets = GroupOffsets(node, runner)
    GroupOffsetApis(node, runner, offsets)
    runner.run(OffsetRetention(node, runner, offsets).run())
    GroupAdminApis(node, runner)
    return runner


__all__ = ["GroupRunner", "register_apis"]
