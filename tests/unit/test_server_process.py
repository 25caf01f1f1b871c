"""The broker's command line: what it prints and how it exits."""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from headwater_broker.server.arguments import parse_arguments
from headwater_broker.server.live import LiveSettings
from headwater_broker.server.process import main
from headwater_broker.testing import WireClient
from headwater_broker.wire import apis


def exit_of(*arguments: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status and what was printed for people; nothing may be on stdout."""
    status = main(arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    lines = [line for line in captured.err.splitlines() if line.startswith("headwater_broker: ")]
    assert len(lines) == 1, captured.err
    return status, lines[0]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "--data"),
        (("--data", "x"), "--zookeeper"),
        (("--data", "x", "--coordinator", "memory", "--zookeeper", "a:1"), "not allowed with"),
        (("--data", "x", "--coordinator", "memory", "--listen", "nowhere"), "host:port"),
        (("--data", "x", "--coordinator", "memory", "--listen", "a:99999"), "host:port"),
        (("--data", "x", "--coordinator", "memory", "--listen", "a:\u0663\u0663"), "host:port"),
        (("--data", "x", "--coordinator", "memory", "--set", "listeners=PLAINTEXT://h:\u0663"), "host:port"),
        (("--data", "x", "--coordinator", "memory", "--id", "1_0"), "1_0 is not a whole number"),
        (("--data", "x", "--coordinator", "memory", "--set", "num.partitions"), "key=value"),
        (("--data", "x", "--coordinator", "memory", "--set", "num.partitons=3"), "num.partitions"),
        (("--data", "x", "--coordinator", "memory", "--set", "num.partitions=no"), "whole number"),
        (("--data", "x", "--coordinator", "memory", "--properties", "/nowhere/file"), "cannot be read"),
        (("--data", "x", "--coordinator", "memory", "--id", "-5"), "broker.id"),
        (("--data", "x", "--coordinator", "memory", "--frobnicate"), "--frobnicate"),
        (("--coordinator", "memory", "--set", "log.dirs=a,./a"), "different log directories"),
        (("--data", "x", "--coordinator", "memory", "--set", "listeners=SSL:1"), "PLAINTEXT://"),
        (
            (
                *("--data", "x", "--coordinator", "memory", "--listen", "127.0.0.1:0"),
                *("--set", "listeners=SASL_PLAINTEXT://127.0.0.1:0"),
            ),
            "listeners, which has SASL_PLAINTEXT: leave --listen out",
        ),
    ],
)
def test_process_wrong_arguments_exit_2_with_one_sentence(
    arguments: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status, message = exit_of(*arguments, capsys=capsys)
    assert status == 2
    assert reason in message


def test_process_properties_file_is_read_and_flags_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "# of Kafka's kind\n\nnum.partitions = 3\nbroker.id=7\nnum.io.threads=8\n", encoding="ascii"
    )
    arguments = ["--data", "x", "--coordinator", "memory", "--properties", str(file)]
    options = parse_arguments([*arguments, "--set", "num.partitions=4"])
    assert options.broker.broker_id == 7
    assert options.broker.settings.num_partitions == 4
    assert parse_arguments([*arguments, "--id", "9"]).broker.broker_id == 9


def test_process_kafkas_own_properties_say_where_things_are(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "broker.id=3\nlisteners=PLAINTEXT://:9093\nadvertised.listeners=PLAINTEXT://kafka.example:9093\n"
        "log.dirs=/var/kafka\nzookeeper.connect=a:2181,b:2181/kafka\nnum.network.threads=3\n",
        encoding="ascii",
    )
    options = parse_arguments(["--properties", str(file)])
    (listener,) = options.broker.listeners
    assert (listener.host, listener.port) == ("0.0.0.0", 9093)
    assert listener.advertised == ("kafka.example", 9093)
    assert options.broker.data_dir == Path("/var/kafka")
    assert options.zookeeper == "a:2181,b:2181/kafka"
    flags = ["--listen", "127.0.0.1:0", "--data", "here", "--coordinator", "memory"]
    options = parse_arguments(["--properties", str(file), *flags])
    (listener,) = options.broker.listeners
    assert (listener.host, listener.port) == ("127.0.0.1", 0)
    assert options.broker.data_dir == Path("here")
    assert options.zookeeper is None


def test_process_settings_change_while_it_runs_though_a_file_says_where_things_are(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=PLAINTEXT://:9093\nlog.dirs=/var/kafka\nzookeeper.connect=a:2181\nnum.partitions=2\n",
        encoding="ascii",
    )
    live = LiveSettings(parse_arguments(["--properties", str(file)]).broker.settings)
    live.check({"log.retention.ms": "1000"})
    live.take({}, {"log.retention.ms": "1000"})
    assert live.current.log.retention_ms == 1000
    assert live.current.num_partitions == 2
    assert live.static["log.dirs"] == "/var/kafka"


def test_process_port_in_use_exits_3_before_the_logs_are_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        data = tmp_path / "data"
        arguments = ("--listen", address, "--data", str(data), "--coordinator", "memory")
        status, message = exit_of(*arguments, capsys=capsys)
    assert status == 3
    assert "is in use" in message
    assert not (data / "meta.properties").exists()


@pytest.mark.parametrize("content", [b"", b"\xff\x00garbage", b"version=7\n"])
def test_process_with_a_damaged_identity_says_so_while_zookeeper_is_connected_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], zookeeper: Any, content: bytes
) -> None:
    (tmp_path / "meta.properties").write_bytes(content)
    arguments = ("--listen", "127.0.0.1:0", "--data", str(tmp_path))
    status, message = exit_of(*arguments, "--zookeeper", f"{zookeeper.hosts}/{uuid4()}", capsys=capsys)
    assert status == 1
    assert f"{tmp_path}/meta.properties: " in message
    assert "remove it if the directory is this broker's" in message


def test_process_no_zookeeper_exits_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_soon:
        port = closed_soon.getsockname()[1]
    status, message = exit_of(
        *("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--zookeeper", f"127.0.0.1:{port}"),
        *("--set", "zookeeper.connection.timeout.ms=300"),
        capsys=capsys,
    )
    assert status == 4
    assert f"127.0.0.1:{port}" in message


def test_process_zookeepers_port_is_somebody_elses_exits_4_without_waiting_for_a_session(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        started_at = time.monotonic()
        status, message = exit_of(
            *("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--zookeeper", f"127.0.0.1:{port}"),
            *("--set", "zookeeper.connection.timeout.ms=300", "--set", "zookeeper.session.timeout.ms=60000"),
            capsys=capsys,
        )
    assert status == 4
    assert f"127.0.0.1:{port} within 0.3 s" in message
    assert time.monotonic() - started_at < 30


def test_process_data_directory_in_use_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with started(tmp_path):
        arguments = ("--listen", "127.0.0.1:0", "--data", str(tmp_path), "--coordinator", "memory")
        status, message = exit_of(*arguments, capsys=capsys)
    assert status == 1
    assert str(tmp_path) in message


def test_process_takes_all_the_descriptors_that_it_may_have(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with started(tmp_path, "sh", "-c", 'ulimit -Sn 200 && exec "$@"', "sh") as process:
        assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)


@contextlib.contextmanager
def started(data: Path, *under: str) -> Iterator[subprocess.Popen[str]]:
    """A broker process that is ready."""
    command = [sys.executable, "-m", "headwater_broker", "--listen", "127.0.0.1:0", "--data", str(data)]
    process = subprocess.Popen(
        [*under, *command, "--coordinator", "memory"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert re.fullmatch(r"ready 127\.0\.0\.1:\d+\n", line)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_process_signal_exits_0_with_nothing_but_the_ready_line_on_stdout(
    number: signal.Signals, tmp_path: Path
) -> None:
    with started(tmp_path) as process:
        process.send_signal(number)
        assert process.wait(timeout=60) == 0
        assert process.stdout is not None
        assert process.stdout.read() == ""
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "meta.properties").exists()


def test_process_log_has_no_line_that_a_client_wrote(tmp_path: Path) -> None:
    forged = "x\n2026-01-01 00:00:00,000 ERROR headwater_broker.server: forged \x1b[2J"
    with started(tmp_path) as process:
        assert process.stderr is not None
        join = {
            "group_id": forged,
            "session_timeout": 10_000,
            "rebalance_timeout": 10_000,
            "member_id": "",
            "group_instance_id": forged,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
            "reason": forged,
        }
        port = next(line for line in process.stderr if " serves " in line).rpartition(":")[2].strip()
        with WireClient(f"127.0.0.1:{port}", forged) as client:
            client.send(apis.JOIN_GROUP, 9, **join)
            line = next(line for line in process.stderr if "rebalances after generation" in line)
    assert r"group x\n2026-01-01" in line
    assert "\x1b" not in line
