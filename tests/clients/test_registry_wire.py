"""The registry as clients of other languages speak to it: requests as bytes, and what comes back on the connection."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from headwater.registry.serving import running_registry
from headwater_broker.testing import RunningBroker, broker


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningBroker]:
    with broker() as running:
        yield running


@pytest.fixture(scope="module")
def address(shared: RunningBroker) -> Iterator[tuple[str, int]]:
    with running_registry({"bootstrap.servers": shared.bootstrap, "log_level": 0}) as url:
        parts = urlsplit(url)
        yield str(parts.hostname), int(parts.port or 0)


def test_a_connection_that_is_kept_is_as_fast_as_a_new_one(address: tuple[str, int]) -> None:
    """Nagle's algorithm and a delayed acknowledgement made each answer but the first of one take 44 ms."""

    def seconds(connection: http.client.HTTPConnection) -> float:
        begin = time.perf_counter()
        connection.request("GET", "/subjects")
        connection.getresponse().read()
        return time.perf_counter() - begin

    new = []
    for _ in range(30):
        with closing(http.client.HTTPConnection(*address)) as connection:
            new.append(seconds(connection))
    with closing(http.client.HTTPConnection(*address)) as connection:
        kept = [seconds(connection) for _ in range(30)]
    # The first answers of a connection are acknowledged at once. The least is what the machine's load adds least to.
    assert min(kept[15:]) < 5 * min(new)


def test_a_connection_outlives_the_five_seconds_that_clients_keep_one(address: tuple[str, int]) -> None:
    """Node's, httpx's and Java's: one that the registry closes at that moment is a request that fails."""
    with closing(http.client.HTTPConnection(*address, timeout=20)) as connection:
        connection.auto_open = 0
        connection.connect()
        for pause_s in (6, 0):
            connection.request("GET", "/subjects")
            assert connection.getresponse().read().startswith(b"[")
            time.sleep(pause_s)
