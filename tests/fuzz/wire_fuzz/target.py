"""The broker that is fuzzed: a process of its own, looked at from outside, and put in order by an operator."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from kio.schema.errors import ErrorCode

from broker_process import BrokerProcess
from headwater_broker.security.quotas import QUOTAS
from headwater_broker.testing import WireClient
from headwater_broker.wire import apis
from support.processes import free_port
from wire_fuzz.answers import MAX_REQUEST_BYTES
from wire_fuzz.sessions import PLAIN, SASL
from wire_fuzz.values import PASSWORD, TOPICS, USER

CONTROL = "control"
_CONTROL_PASSWORD = "control-secret"
_JAAS = (
    'plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_{}="{}";'
)
_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) ([\w.]+): (.*)")
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NOT_OURS = ("asyncio", "py.warnings", "forged")
"""Loggers that speak where something was forgotten, or where a name from outside forged a line."""

_TOPIC, _BROKER, _LOGGER = 2, 4, 8
_DELETE, _SET = 1, 0
_DYNAMIC = (2, 3)
_ANY = 1


class Line(NamedTuple):
    """One record of the broker's log."""

    level: str
    logger: str
    text: str


class Target:
    """The broker.

    Attributes:
        ports: By listener.
        process: Its process.
    """

    def __init__(self, directory: Path, shared_state: list[str]) -> None:
        self.ports = {each: free_port() for each in (PLAIN, SASL, CONTROL)}
        self.process = BrokerProcess(directory, shared_state)
        self._read_bytes = 0
        self._half_line = ""

    def start(self) -> None:
        """Starts it and makes the topics."""
        address = "://127.0.0.1:"
        self.process.start(
            f"listeners=PLAINTEXT{address}{self.ports[PLAIN]},SASL_PLAINTEXT{address}{self.ports[SASL]},"
            f"CONTROL{address}{self.ports[CONTROL]}",
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROL:SASL_PLAINTEXT",
            f"listener.name.sasl_plaintext.{_JAAS.format(USER, PASSWORD)}",
            f"listener.name.control.{_JAAS.format(CONTROL, _CONTROL_PASSWORD)}",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
            f"super.users=User:ANONYMOUS;User:{CONTROL}",
            "allow.everyone.if.no.acl.found=true",
            "connection.failed.authentication.delay.ms=0",
            "delegation.token.secret.key=a secret",
            "group.initial.rebalance.delay.ms=0",
            f"socket.request.max.bytes={MAX_REQUEST_BYTES}",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms=200",
            "offsets.topic.num.partitions=2",
            "transaction.state.log.num.partitions=2",
        )
        self.put_in_order()

    def restart(self) -> None:
        """Stops it, which it does in good order, and starts it again with what it has stored."""
        status = self.process.stop()
        assert status == 0, f"exit status {status}"
        self.start()

    def client(self) -> WireClient:
        """A client that may do everything, on a listener that is not fuzzed."""
        client = WireClient(f"127.0.0.1:{self.ports[CONTROL]}", CONTROL)
        client.ask(apis.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        token = f"\0{CONTROL}\0{_CONTROL_PASSWORD}".encode()
        assert client.ask(apis.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code is ErrorCode.none
        return client

    # -- from outside ----------------------------------------------------------------------------------

    def new_lines(self) -> tuple[list[Line], list[str]]:
        """What was logged since the last call: the records, and what must not be in a log."""
        with self.process.stderr.open("rb") as stderr:
            stderr.seek(self._read_bytes)
            data = stderr.read()
        self._read_bytes += len(data)
        *texts, self._half_line = (self._half_line + data.decode(errors="surrogateescape")).split("\n")
        lines: list[Line] = []
        wrong: list[str] = []
        for text in texts:
            found = _LINE.fullmatch(text)
            if found is None and text.startswith("    ") and lines:
                before = wrong.pop() if wrong and "\n" in wrong[-1] else lines[-1].text
                wrong.append(f"{before}\n{text}")
                continue
            if found is not None:
                lines.append(Line(*found.groups()))
            if found is None or found[2] in _NOT_OURS or _UNSAFE.search(text):
                wrong.append(f"log: {text}")
        return lines, wrong

    def is_alive(self) -> bool:
        """Whether the process still runs."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii")
        return stat.rpartition(")")[2].split()[0] != "Z"

    def resident_mb(self) -> float:
        """Its memory."""
        return self.process.resident_kb() / 1024

    def descriptors(self) -> list[str]:
        """What it holds open."""
        found = []
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):
                found.append(str(each.readlink()))
        return found

    # -- as an operator --------------------------------------------------------------------------------

    def put_in_order(self) -> None:
        """Takes back what requests may well do: quotas, rules, settings, and topics that are gone or too many."""
        with self.client() as client:
            _remove_quotas(client)
            _remove_settings(client)
            rules = {"resource_type_filter": _ANY, "pattern_type_filter": _ANY, "operation": _ANY}
            rules |= {"resource_name_filter": None, "principal_filter": None, "host_filter": None}
            client.ask(apis.DELETE_ACLS, 3, filters=[{**rules, "permission_type": _ANY}])
            groups = client.ask(apis.LIST_GROUPS, 4, states_filter=["Empty"]).groups
            client.ask(apis.DELETE_GROUPS, 2, groups_names=[each.group_id for each in groups])
            _make_topics_anew(client)


def _remove_quotas(client: WireClient) -> None:
    """All but that of the operator, whom the quotas of everybody would limit else."""
    entries = client.ask(apis.DESCRIBE_CLIENT_QUOTAS, 1, components=[], strict=False).entries
    changes = [
        {
            "entity": [
                {"entity_type": part.entity_type, "entity_name": part.entity_name} for part in entry.entity
            ],
            "ops": [{"key": each.key, "value": 0.0, "remove": True} for each in entry.values],
        }
        for entry in entries or ()
        if entry.entity[0].entity_name != CONTROL
    ]
    unlimited = [{"key": key, "value": 1e15, "remove": False} for key in QUOTAS]
    changes.append({"entity": [{"entity_type": "user", "entity_name": CONTROL}], "ops": unlimited})
    client.ask(apis.ALTER_CLIENT_QUOTAS, 1, entries=changes, validate_only=False)


def _remove_settings(client: WireClient) -> None:
    for kind, name in ((_BROKER, "1"), (_BROKER, ""), (_LOGGER, "1")):
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        described = client.ask(
            apis.DESCRIBE_CONFIGS,
            4,
            resources=[resource],
            include_synonyms=False,
            include_documentation=False,
        )
        changes: list[dict[str, Any]] = []
        for each in described.results[0].configs:
            if each.name == "root":
                changes.append({"name": each.name, "config_operation": _SET, "value": "INFO"})
            elif kind == _LOGGER or each.config_source in _DYNAMIC:
                changes.append({"name": each.name, "config_operation": _DELETE, "value": None})
        alteration = {"resource_type": kind, "resource_name": name, "configs": changes}
        client.ask(apis.INCREMENTAL_ALTER_CONFIGS, 1, resources=[alteration], validate_only=False)


def _make_topics_anew(client: WireClient) -> None:
    everything = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    names = [
        each.name
        for each in client.ask(
            apis.METADATA, 9, topics=None, **everything, include_cluster_authorized_operations=False
        ).topics
    ]
    doomed = [name for name in names if not name.startswith(("__", CONTROL))]
    client.ask(apis.DELETE_TOPICS, 5, topic_names=doomed, timeout=20_000)
    topics = [
        {
            "name": name,
            "num_partitions": 3 if name == "wide" else 1,
            "replication_factor": 1,
            "assignments": [],
            "configs": [{"name": "cleanup.policy", "value": "compact"}] if name == "compacted" else [],
        }
        for name in TOPICS
    ]
    made = client.ask(apis.CREATE_TOPICS, 5, topics=topics, timeout=20_000, validate_only=False)
    assert all(each.error_code in (ErrorCode.none, ErrorCode.topic_already_exists) for each in made.topics), (
        made
    )
