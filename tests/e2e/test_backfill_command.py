"""A job with several tables as a person at a terminal meets it: its accounts, a rewind, and the way back."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headwater_broker.testing import broker

JOBS = """
import headwater as hw
from pyspark.sql import functions as F

requests = hw.topic("requests", schema="path STRING, agent STRING")


@hw.job(targets={"people": hw.delta("silver.people"), "bots": hw.delta("silver.bots")}, dedup=hw.by_offset())
def split(requests):
    is_bot = F.col("agent").contains("bot")
    return {"people": requests.filter(~is_bot), "bots": requests.filter(is_bot)}
"""
AtTerminal = Callable[..., tuple[int, str, str]]

pytestmark = [pytest.mark.story, pytest.mark.timeout(1500)]


@pytest.fixture
def at_terminal(headwater: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> AtTerminal:
    """Runs a command whose standard error is a terminal and whose standard output is a file."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        ours, its = os.openpty()
        said: list[bytes] = []

        def listen() -> None:
            try:
                while part := os.read(ours, 65_536):
                    said.append(part)
            except OSError:  # Linux says so when the last one has closed the terminal
                pass

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            done = headwater(*arguments, terminal=os.ttyname(its))
        finally:
            os.close(its)
            listener.join()
            os.close(ours)
        assert done.stderr == "", "something else than the command has written to standard error"
        return done.returncode, done.stdout, b"".join(said).decode()

    return run


@pytest.fixture
def send(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Sends nine requests of people, three of bots and a bad one; gives the broker's address."""
    (tmp_path / "requests.py").write_text(JOBS)
    with broker(tmp_path / "data") as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("requests", 1, 1)])["requests"].result(10)

        def sent() -> str:
            producer = Producer({"bootstrap.servers": running.bootstrap})
            for n in range(12):
                value = {"path": f"/{n}", "agent": "a bot" if n % 4 == 0 else "firefox"}
                producer.produce("requests", json.dumps(value).encode())
            producer.produce("requests", b"bad")
            assert producer.flush(10) == 0
            return running.bootstrap

        yield sent


def test_rewind_of_two_tables_at_a_terminal_says_what_is_done_and_what_is_not_shown(
    at_terminal: AtTerminal, send: Callable[[], str]
) -> None:
    for _ in range(2):
        where = ("--bootstrap", send())
        status, _, said = at_terminal("jobs", "run", "requests.py", "--once", *where)
        assert status == 0, said
        assert "split: 1 batch: 13 read, 1 quarantined" in said
        assert "  silver.people: 9 written, 3 filtered or of other tables" in said
        assert "  silver.bots: 3 written, 9 filtered or of other tables" in said

    plan = ("backfill", "plan", "requests.py", "--rewind", "1", "--json")
    status, out, said = at_terminal(*plan, *where)
    assert status == 0, said
    name = json.loads(out)["id"]
    status, out, said = at_terminal("backfill", "preview", name, "--limit", "8")
    assert (status, f"comparing {name}" in said) == (0, True), said
    assert "silver.people: 0 rows added, 9 removed, 0 changed, 9 unchanged\n" in out
    assert "silver.bots: 0 rows added, 3 removed, 0 changed, 3 unchanged\n" in out
    assert out.endswith("more: --limit N\n")
    assert out.count("shown: ") == out.count("shown: 8 of 9 removed\n") == 1

    status, out, said = at_terminal("backfill", "run", name)
    assert (status, said) == (0, "")
    assert out.endswith(f"next: headwater backfill verify {name}\n")

    status, out, said = at_terminal("backfill", "verify", name)
    assert (status, f"verifying {name}" in said) == (0, True), said
    assert "shown: 5 of 9 removed\n" in out
    assert f"more: headwater backfill preview {name} --limit N\npassed; next: " in out
    for verb, told in (("swap", f"swapping {name} in"), ("rollback", f"rolling {name} back")):
        status, out, said = at_terminal("backfill", verb, name)
        assert (status, told in said) == (0, True), said
        assert told not in out
    status, out, said = at_terminal("quarantine", "silver.bots", "--json")
    assert (status, len(json.loads(out))) == (0, 2)
    assert "silver.bots shares silver.people__quarantine with silver.people" in said
