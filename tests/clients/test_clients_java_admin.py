"""Every call of Java's Admin client, through SASL, with the coordinator in memory and with ZooKeeper."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater_broker.coordination import Coordinator, MemoryCoordinator, ZooKeeperCoordinator
from headwater_broker.testing import broker

JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="admin-secret";'
PROPERTIES = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
    "super.users": "User:admin",
    "delegation.token.secret.key": "the brokers' secret",
}
FOUND = """\
create: 2 1 1000 2
create again: TopicExistsException
create colliding: InvalidTopicException
create misnamed: InvalidTopicException
create without partitions: InvalidPartitionsException
create replicated: InvalidReplicationFactorException
create misconfigured: InvalidConfigurationException
create with a gap: InvalidReplicaAssignmentException
validate: 3
list: [a.b, assigned, orders]
describe: 2 1
describe by id: orders
describe nothing: UnknownTopicOrPartitionException
operations: [READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS]
partitions: 3
fewer partitions: InvalidPartitionsException
delete nothing: UnknownTopicOrPartitionException
delete by id: false
alter config: -1
broker config: User:admin 1
log dirs: 1
offsets: 10
delete records: 4
alter group: 7
groups: [g]
group: 3
delete offsets: null
delete group: GroupIdNotFoundException
producers: 1
transactions: 0
create acl: null
create bad acl: InvalidRequestException
acls: true
delete acls: 1
alter quota: null
quotas: {producer_byte_rate=1000.0}
bad quota: InvalidRequestException
set password: null
users: 2
weak password: UnacceptableCredentialException
drop nobody: ResourceNotFoundException
alice: true
token: alice
tokens: 1
renew: true
by token: true
token by token: UnsupportedByAuthenticationException
expire another's: DelegationTokenOwnerMismatchException
expire: true
by expired token: SaslAuthenticationException
drop password: null
without password: SaslAuthenticationException
elect: ElectionNotNeededException
elect all: {}
reassign as is: null
reassign away: InvalidReplicaAssignmentException
cancel: NoReassignmentInProgressException
reassignments: {}
cluster: 1 1 7
features: {}
update feature: InvalidRequestException
"""


@pytest.mark.parametrize("kind", ["memory", "zookeeper"])
def test_java_admin_every_call_finds_what_kafka_would_tell(
    kind: str, request: pytest.FixtureRequest, java_program: Callable[..., list[str]], tmp_path: Path
) -> None:
    coordinator: Coordinator = MemoryCoordinator()
    if kind == "zookeeper":
        server: Any = request.getfixturevalue("zookeeper")
        coordinator = ZooKeeperCoordinator(f"{server.hosts}/{tmp_path.name}-{os.getpid()}")
    with broker(tmp_path / "log", properties=PROPERTIES, coordinator=coordinator) as running:
        command = java_program("AdminCalls", running.bootstrap)
        ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    found, wanted = ended.stdout.splitlines(), FOUND.splitlines()
    assert [each for each in zip(found, wanted, strict=False) if each[0] != each[1]] == [], ended.stderr[
        -3000:
    ]
    assert len(found) == len(wanted), ended.stderr[-3000:]
