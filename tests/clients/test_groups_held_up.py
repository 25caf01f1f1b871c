"""A broker that gets no CPU for a while: what members sent in time counts, although it is read late."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest
from kio.schema.errors import ErrorCode

from headwater_broker.groups.subscription import encode_subscription
from headwater_broker.testing import WireClient
from headwater_broker.wire.apis import DESCRIBE_GROUPS, HEARTBEAT, JOIN_GROUP, SYNC_GROUP

SESSION_MS = 1000  # the least that these brokers allow
Who = dict[str, Any]


@pytest.fixture(scope="module")
def broker_process(broker_process_class: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One for all: where shared state is kept has no part in this."""
    process = broker_process_class(tmp_path_factory.mktemp("held-up"), ["--coordinator", "memory"]).start()
    try:
        yield process
    finally:
        process.kill()


def new_group() -> str:
    return f"patient-{uuid4().hex[:8]}"


def send_join(client: WireClient, group: str) -> None:
    client.send(
        *(JOIN_GROUP, 3),
        group_id=group,
        session_timeout=SESSION_MS,
        rebalance_timeout=20_000,
        member_id="",
        protocol_type="consumer",
        protocols=[{"name": "range", "metadata": encode_subscription(["t"])}],
    )


def joined_member(client: WireClient) -> Who:
    """Joins as the only member, and has not synced yet; gives what its requests say."""
    group = new_group()
    send_join(client, group)
    answer = client.receive()
    return {"group_id": group, "member_id": answer.member_id, "generation_id": answer.generation_id}


def stable_member(client: WireClient) -> Who:
    """Joins and syncs as the only member."""
    who = joined_member(client)
    alone = [{"member_id": who["member_id"], "assignment": b""}]
    client.ask(SYNC_GROUP, 2, **who, assignments=alone)
    return who


@contextmanager
def held_up(pid: int, prepare: Callable[[], Who]) -> Iterator[Who]:
    """Stops the process after `prepare`, for longer than a session; what is sent meanwhile waits in its sockets.

    Where the machine is so busy that a session may be over before the process stops, all is prepared again.
    """
    while True:
        started_s = time.monotonic()
        who = prepare()
        os.kill(pid, signal.SIGSTOP)
        if time.monotonic() - started_s < SESSION_MS / 1000:
            break
        os.kill(pid, signal.SIGCONT)
    try:
        time.sleep(SESSION_MS / 1000 + 0.3)
        yield who
    finally:
        os.kill(pid, signal.SIGCONT)


def test_heartbeat_sent_while_the_broker_was_held_up_is_in_time(broker_process: Any) -> None:
    with WireClient(broker_process.bootstrap) as client:
        with held_up(broker_process.pid, lambda: stable_member(client)) as who:
            client.send(HEARTBEAT, 2, **who)
        assert client.receive().error_code is ErrorCode.none


def test_sync_sent_while_the_broker_was_held_up_is_in_time(broker_process: Any) -> None:
    with WireClient(broker_process.bootstrap) as client:
        with held_up(broker_process.pid, lambda: joined_member(client)) as who:
            client.send(SYNC_GROUP, 2, **who, assignments=[])
        assert client.receive().error_code is ErrorCode.none


def test_join_of_another_does_not_end_the_session_of_who_is_read_after_it(broker_process: Any) -> None:
    with WireClient(broker_process.bootstrap) as client, WireClient(broker_process.bootstrap) as newcomer:
        newcomer.ask(DESCRIBE_GROUPS, 0, groups=["any"])  # the broker has its socket
        with held_up(broker_process.pid, lambda: stable_member(client)) as who:
            send_join(newcomer, who["group_id"])
            time.sleep(0.1)
            client.send(HEARTBEAT, 2, **who)
        assert client.receive().error_code is ErrorCode.rebalance_in_progress


def test_silent_member_goes_although_the_broker_was_held_up(broker_process: Any) -> None:
    with WireClient(broker_process.bootstrap) as client:
        with held_up(broker_process.pid, lambda: stable_member(client)) as who:
            pass
        deadline_s = time.monotonic() + 60
        while client.ask(DESCRIBE_GROUPS, 0, groups=[who["group_id"]]).groups[0].members:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        assert client.ask(HEARTBEAT, 2, **who).error_code is ErrorCode.unknown_member_id
