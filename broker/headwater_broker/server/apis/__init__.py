"""The APIs off the hot path, a module for each family; `register_apis` is the whole of it."""

import asyncio
from functools import partial

from headwater_broker.server.apis.acls import AclApis
from headwater_broker.server.apis.client_quotas import ClientQuotaApis
from headwater_broker.server.apis.configs import ConfigApis
from headwater_broker.server.apis.features import FeatureApis
from headwater_broker.server.apis.group_admin import GroupAdminApis
from headwater_broker.server.apis.group_offsets import GroupOffsetApis
from headwater_broker.server.apis.log_dirs import LogDirApis
from headwater_broker.server.apis.membership import MembershipApis
from headwater_broker.server.apis.metadata import MetadataApis
from headwater_broker.server.apis.offsets import OffsetApis
from headwater_broker.server.apis.producers import ProducerApis
from headwater_broker.server.apis.replicas import ReplicaApis
from headwater_broker.server.apis.tokens import TokenApis
from headwater_broker.server.apis.topics import TopicAdmin
from headwater_broker.server.apis.transaction_admin import TransactionAdminApis
from headwater_broker.server.apis.transaction_markers import TransactionMarkerApis
from headwater_broker.server.apis.transactions import TransactionApis
from headwater_broker.server.apis.users import UserApis
from headwater_broker.server.durable import DurableWrites
from headwater_broker.server.group_offsets import GroupOffsets
from headwater_broker.server.group_runner import GroupRunner
from headwater_broker.server.guards import guard_apis
from headwater_broker.server.internal_topics import OFFSETS_TOPIC
from headwater_broker.server.node import Node
from headwater_broker.server.offset_retention import OffsetRetention
from headwater_broker.server.producer_ids import ProducerIds
from headwater_broker.server.sasl import SaslApis
from headwater_broker.server.transaction_runner import TransactionRunner


def register_apis(node: Node, writes: DurableWrites) -> tuple[GroupRunner, TransactionRunner, TopicAdmin]:
    """Makes this broker answer everything but Produce and Fetch.

    Returns:
        What runs the groups and the transactions, to be stopped with the broker, and what makes topics.
    """
    runner = GroupRunner(node)
    offsets = GroupOffsets(node, runner)
    producer_ids = ProducerIds(node)
    transactions = TransactionRunner(node, writes, producer_ids, offsets)
    topics = TopicAdmin(node)
    runner.records.set_creator(partial(topics.create_internal, OFFSETS_TOPIC))
    MetadataApis(node, topics, transactions)
    ConfigApis(node)
    OffsetApis(node)
    ProducerApis(node, producer_ids, transactions)
    TransactionApis(node, transactions, offsets)
    TransactionAdminApis(node, transactions)
    TransactionMarkerApis(node, writes)
    LogDirApis(node)
    MembershipApis(node, runner)
    GroupOffsetApis(node, runner, offsets, transactions)
    runner.run(OffsetRetention(node, runner, transactions).run())
    GroupAdminApis(node, runner, offsets, transactions)
    AclApis(node)
    writing = asyncio.Lock()
    UserApis(node, writing)
    ClientQuotaApis(node, writing)
    tokens = TokenApis(node)
    if node.security.token_key is not None:
        runner.run(tokens.run())
    ReplicaApis(node)
    FeatureApis(node)
    SaslApis(node.core)
    guard_apis(node)
    return runner, transactions, topics


__all__ = ["GroupRunner", "TransactionRunner", "register_apis"]
