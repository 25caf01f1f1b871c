"""What the commands print of names and records from outside: nothing that a terminal obeys, and no markup."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kio.schema.errors import ErrorCode

from headwater.cli import main
from headwater.cli._console import PlainConsole
from headwater.ship.mark import Mark
from headwater.ship.progress import PROGRESS_TOPIC, Entry, entry_key
from headwater_broker.testing import RunningBroker, WireClient, broker
from headwater_broker.wire import apis

LIBRDKAFKA = re.compile(r"%\d\|")
STEERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
HOSTILE = "a\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\u2028[bold]b[/bold]"
ESCAPED = r"a\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\u2028[bold]b[/bold]"
RECORDS = [
    HOSTILE.encode(),
    b"\xff\x00\tplain",
    "h\u00e9 \u6771 \U0001f469\u200d\U0001f467".encode(),
    b"two\nlines",
]


@pytest.fixture(scope="module")
def running() -> Iterator[RunningBroker]:
    with broker() as started:
        producer = Producer({"bootstrap.servers": started.bootstrap})
        for record in RECORDS:
            producer.produce("lines", record, key=HOSTILE.encode())
        assert producer.flush(30) == 0
        with WireClient(started.bootstrap, HOSTILE) as client:
            fields = {
                "group_id": HOSTILE + "\nforged stable 7",
                "session_timeout": 60_000,
                "rebalance_timeout": 60_000,
                "member_id": "",
                "group_instance_id": HOSTILE,
                "protocol_type": "consumer",
                "protocols": [{"name": "range", "metadata": b""}],
            }
            assert client.ask(apis.JOIN_GROUP, 5, **fields).error_code is ErrorCode.none
            yield started


@pytest.fixture
def run(
    running: RunningBroker, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., tuple[bytes, str]]:
    """Runs a command, which has to succeed; gives what it printed."""

    def command(*arguments: str) -> tuple[bytes, str]:
        assert main([*arguments, "--bootstrap", running.bootstrap, "--home", str(tmp_path)]) == 0
        captured = capfdbinary.readouterr()
        # A producer of an earlier test in this process may still tell of its own broker, which is gone.
        told = [
            line for line in captured.err.decode().splitlines(keepends=True) if not LIBRDKAFKA.match(line)
        ]
        return captured.out, "".join(told)

    return command


def test_consume_shows_control_characters_escaped_and_says_so(run: Callable[..., tuple[bytes, str]]) -> None:
    output, remark = run("consume", "lines")
    assert output.decode() == "".join(
        f"{line}\n" for line in (ESCAPED, "\\xff\\x00\tplain", RECORDS[2].decode(), "two\nlines")
    )
    assert remark.startswith("headwater: 2 records with control characters")
    assert "--raw" in remark
    output, _ = run("consume", "lines", "--key-separator", ": ", "--count", "1")
    assert output.decode() == f"{ESCAPED}: {ESCAPED}\n"


def test_consume_raw_prints_what_was_produced(run: Callable[..., tuple[bytes, str]]) -> None:
    assert run("consume", "lines", "--raw") == (b"".join(record + b"\n" for record in RECORDS), "")


def test_consume_json_is_the_same_json_without_what_steers_a_terminal(
    run: Callable[..., tuple[bytes, str]],
) -> None:
    output, remark = run("consume", "lines", "--json")
    lines = output.decode().removesuffix("\n").split("\n")
    assert [json.loads(line)["value"] for line in lines] == [
        HOSTILE,
        {"base64": "/wAJcGxhaW4="},
        RECORDS[2].decode(),
        "two\nlines",
    ]
    assert not STEERS.search(output.decode())
    assert remark == ""


def test_consume_on_a_terminal_does_not_steer_it(running: RunningBroker) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headwater.cli", "consume", "lines", "--bootstrap", running.bootstrap]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 4096)
            except OSError:  # Linux's way to say that the other end is closed
                break
            if not piece:
                break
            seen += piece
        assert process.wait(60) == 0
    os.close(ours)
    assert ESCAPED in seen.decode()
    assert not STEERS.search(seen.decode().replace("\r\n", "\n"))


def test_groups_show_names_and_clients_escaped(run: Callable[..., tuple[bytes, str]]) -> None:
    group = HOSTILE + "\nforged stable 7"
    for arguments in (("groups", "list"), ("groups", "describe", group)):
        for form in ((), ("--json",)):
            output = run(*arguments, *form)[0].decode()
            assert not STEERS.search(output), arguments
            assert "\nforged" not in output
    assert f"{ESCAPED}\\nforged stable 7" in run("groups", "list")[0].decode()
    assert [each["group"] for each in json.loads(run("groups", "list", "--json")[0])] == [group]


def test_ship_status_shows_names_of_others_escaped(
    running: RunningBroker, run: Callable[..., tuple[bytes, str]]
) -> None:
    entry = Entry(
        file_id=HOSTILE,
        path=HOSTILE,
        place=f"/{HOSTILE}\udc9b",
        pattern=HOSTILE,
        device=1,
        inode=1,
        mark=Mark(0, 0, "", 0, ""),
        ordinal=0,
        cut=None,
        size=0,
        done=False,
        saved_ms=0,
    )
    producer = Producer({"bootstrap.servers": running.bootstrap})
    producer.produce(PROGRESS_TOPIC, entry.to_json(), key=entry_key(HOSTILE, HOSTILE, HOSTILE))
    assert producer.flush(30) == 0
    output = run("ship", "--status")[0].decode()
    assert f"/{ESCAPED}" in output
    assert not STEERS.search(output)
    assert not STEERS.search(run("ship", "--status", "--json")[0].decode())


def test_error_sentence_shows_a_name_escaped(
    running: RunningBroker, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = ["--bootstrap", running.bootstrap, "--home", str(tmp_path)]
    for arguments in (["consume", HOSTILE], ["groups", "describe", HOSTILE], ["topics", "create", HOSTILE]):
        assert main([*arguments, *place]) != 0
        # Clients of earlier tests that are not collected yet say here that their brokers are gone.
        lines = capfd.readouterr().err.splitlines(keepends=True)
        said = "".join(line for line in lines if not line.startswith("%3|"))
        assert said.startswith("headwater: ")
        assert not STEERS.search(said)


def test_console_prints_brackets_and_escapes() -> None:
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=200)
    console.print(f"{HOSTILE} :smile:")
    assert out.getvalue() == f"{ESCAPED} :smile:\n"
