"""`headwater up`: what scripts rely on, tried on real processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from damaged_files import DAMAGES
from headwater.stack.processes import start_ticks
from support.processes import free_port

_DEADLINE_S = 60


def _produce(address: str, topic: str, *values: str) -> None:
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": address, "message.timeout.ms": 30_000, "log_level": 0})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(_DEADLINE_S) == 0
    assert failures == []


def _consume(address: str, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "e2e", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: list[str] = []
        deadline = time.monotonic() + _DEADLINE_S
        while len(values) < count:
            assert time.monotonic() < deadline, f"only {values} after {_DEADLINE_S} s"
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                values.append(message.value().decode())
        return values
    finally:
        consumer.close()


def _brokers(address: str) -> dict[int, str]:
    metadata = AdminClient({"bootstrap.servers": address, "log_level": 0}).list_topics(timeout=_DEADLINE_S)
    return {each.id: f"{each.host}:{each.port}" for each in metadata.brokers.values()}


def _members(data: Path) -> list[dict[str, Any]]:
    members: list[dict[str, Any]] = json.loads((data / "stack.json").read_text())["members"]
    return members


def _free_pair() -> int:
    """A port that stays free until it is bound, as the one after it does."""
    while True:
        port = free_port()
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port + 1))
            return port


def _bind(taker: socket.socket, port: int) -> None:
    """Takes the port of a broker that was killed; its threads let go of it a moment after it is seen to have ended."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return taker.bind(("127.0.0.1", port))
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _keep_zookeeper_on(home: Path, port: int) -> None:
    """Has a home's ZooKeeper come back to a port that nobody takes meanwhile: its own choice is one of the kernel's."""
    folder = home / "stack" / "zookeeper"
    folder.mkdir(parents=True)
    (folder / "port").write_text(f"{port}\n")


def _await_end(pids: list[int]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while any(start_ticks(pid) is not None for pid in pids):
        assert time.monotonic() < deadline, f"of {pids} some still run"
        time.sleep(0.02)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


@pytest.mark.story
def test_up_with_the_memory_coordinator_serves_clients_and_ends_clean(
    foreground: Callable[..., Any], tmp_path: Path
) -> None:
    stack = foreground("--home", "home", "--coordinator", "memory", "--port", "0")
    _produce(stack.address, "flights", "a", "b")
    assert _consume(stack.address, "flights", 2) == ["a", "b"]
    data = tmp_path / "home" / "stack"
    pids = [member["pid"] for member in _members(data)]
    assert stack.end() == (0, "")
    assert stack.stderr == ""
    assert all(start_ticks(pid) is None for pid in pids)
    assert (data / "broker-1" / "log" / "flights-0" / f"{0:020}.log").exists()
    assert not (data / "stack.json").exists()


@pytest.mark.story
def test_up_with_zookeeper_starts_brokers_on_following_ports_and_keeps_its_data(
    foreground: Callable[..., Any], tmp_path: Path
) -> None:
    port, zookeeper_port = _free_pair(), free_port()
    _keep_zookeeper_on(tmp_path / "home", zookeeper_port)
    arguments = ("--home", "home", "--brokers", "2", "--port", str(port), "--set", "broker.id=5")
    stack = foreground(*arguments)
    assert stack.address == f"127.0.0.1:{port}"
    assert _brokers(stack.address) == {5: f"127.0.0.1:{port}", 6: f"127.0.0.1:{port + 1}"}
    _produce(stack.address, "flights", "a")
    data = tmp_path / "home" / "stack"
    zookeeper = next(member["address"] for member in _members(data) if member["role"] == "zookeeper")
    assert (data / "zookeeper" / "port").read_text().strip() == zookeeper.rpartition(":")[2]
    assert zookeeper == f"127.0.0.1:{zookeeper_port}"
    (data / "somebody-elses-file").write_text("kept")
    assert stack.end() == (0, "")
    again = foreground(*arguments)
    assert _consume(again.address, "flights", 1) == ["a"]
    assert (data / "somebody-elses-file").read_text() == "kept"
    assert next(member["address"] for member in _members(data) if member["role"] == "zookeeper") == zookeeper


@pytest.mark.parametrize("whom", ["parent", "group"])
def test_up_after_kill_9_works_at_once_with_the_same_command(
    foreground: Callable[..., Any], tmp_path: Path, whom: str
) -> None:
    port = free_port()
    arguments = ("--home", "home", "--port", str(port))
    stack = foreground(*arguments)
    _produce(stack.address, "flights", "a", "b", "c")
    pids = [member["pid"] for member in _members(tmp_path / "home" / "stack")]
    assert {os.getpgid(pid) for pid in pids} == {stack.process.pid}, "children leave the parent's group"
    if whom == "parent":
        stack.process.kill()
    else:
        os.killpg(stack.process.pid, signal.SIGKILL)
    stack.process.wait()
    again = foreground(*arguments)
    assert _consume(again.address, "flights", 3) == ["a", "b", "c"]
    assert again.stderr == ""
    _await_end(pids)


def test_up_ctrl_c_in_a_terminal_ends_the_whole_group_clean(foreground: Callable[..., Any]) -> None:
    stack = foreground("--home", "home", "--port", "0")
    os.killpg(stack.process.pid, signal.SIGINT)
    rest, _ = stack.process.communicate(timeout=_DEADLINE_S)
    assert (stack.process.returncode, rest, stack.stderr) == (0, "", "")


def test_up_starts_a_killed_zookeeper_again(
    foreground: Callable[..., Any], headwater: Any, headwater_process: Any, tmp_path: Path
) -> None:
    _keep_zookeeper_on(tmp_path / "home", free_port())
    stack = foreground("--home", "home", "--port", "0")
    data = tmp_path / "home" / "stack"
    first = next(member for member in _members(data) if member["role"] == "zookeeper")
    os.kill(first["pid"], signal.SIGKILL)
    deadline = time.monotonic() + _DEADLINE_S
    while (second := next(m for m in _members(data) if m["role"] == "zookeeper"))["pid"] == first["pid"]:
        assert time.monotonic() < deadline, "ZooKeeper was not started again"
        time.sleep(0.05)
    assert second["address"] == first["address"]
    again = headwater_process("up", "--home", "home")
    assert (again.returncode, again.stdout) == (0, f"already running {stack.address}\n")
    assert headwater("status", "--home", "home").returncode == 0
    _produce(stack.address, "made-after-zookeeper-came-back", "a")
    assert "ZooKeeper ended with status -9; it is started again" in stack.stderr
    assert stack.end() == (0, "")


def test_up_goes_on_while_the_disk_of_zookeeper_is_full(
    foreground: Callable[..., Any], tmp_path: Path
) -> None:
    folder = tmp_path / "home" / "stack" / "zookeeper"
    _keep_zookeeper_on(tmp_path / "home", free_port())
    port = (folder / "port").read_text()
    mount = 'mount -t tmpfs -o size=4m tmpfs "$0" && echo "$1" > "$0/port" && shift && exec "$@"'
    within = ["unshare", "-m", "sh", "-c", mount, str(folder), port.strip()]
    if subprocess.run([*within, "true"], capture_output=True).returncode:
        pytest.skip("this machine does not let a test mount a small disk of its own")
    stack = foreground("--home", "home", "--port", "0", within=within)
    _produce(stack.address, "before", "a")
    filler = Path(f"/proc/{stack.process.pid}/root{folder}/filler")
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    admin = AdminClient({"bootstrap.servers": stack.address, "log_level": 0})
    deadline = time.monotonic() + _DEADLINE_S
    number = 0
    while "is full" not in stack.stderr:
        assert time.monotonic() < deadline, "ZooKeeper goes on without room"
        number += 1
        settings = {"retention.ms": str(number)}
        with suppress(Exception):
            topic = NewTopic(f"no-room-{number}", 20, 1, config=settings)
            admin.create_topics([topic], request_timeout=1)[topic.topic].result(2)
    _produce(stack.address, "before", "b", "c")
    assert _consume(stack.address, "before", 3) == ["a", "b", "c"]
    assert stack.process.poll() is None
    filler.unlink()
    while "ZooKeeper runs again" not in stack.stderr:
        assert time.monotonic() < deadline + _DEADLINE_S, "ZooKeeper was not started again"
        time.sleep(0.05)
    _produce(stack.address, "made-when-there-is-room", "a")
    assert stack.end() == (0, "")
    assert "Traceback" not in stack.stderr
    assert "Traceback" not in (tmp_path / "home" / "stack" / "broker-1" / "broker.log").read_text()


def test_up_whose_only_broker_is_killed_says_so_and_ends(
    foreground: Callable[..., Any], headwater: Any, tmp_path: Path
) -> None:
    stack = foreground("--home", "home", "--coordinator", "memory", "--port", "0")
    os.kill(_members(tmp_path / "home" / "stack")[0]["pid"], signal.SIGKILL)
    assert stack.process.wait(_DEADLINE_S) == 1
    assert stack.stderr.startswith("headwater: broker 1 was killed by SIGKILL: see ")
    status = headwater("status", "--home", "home")
    assert status.returncode == 1
    assert "/stack: the last one ended, as broker 1 was killed by SIGKILL: see " in status.stdout


def test_up_goes_on_without_a_killed_broker_and_says_which(
    foreground: Callable[..., Any], headwater: Any, headwater_process: Any
) -> None:
    stack = foreground("--home", "home", "--brokers", "2", "--port", "0")
    told = json.loads(headwater("status", "--home", "home", "--json").stdout)
    (killed,) = [each for each in told["processes"] if each["id"] == 2]
    os.kill(killed["pid"], signal.SIGKILL)
    deadline = time.monotonic() + _DEADLINE_S
    while (status := headwater("status", "--home", "home")).returncode == 0:
        assert time.monotonic() < deadline
    assert status.returncode == 1
    assert f"broker 2 at {killed['address']} has ended" in status.stderr
    now = json.loads(headwater("status", "--home", "home", "--json").stdout)
    assert now["bootstrap"] == stack.address
    assert [each["alive"] for each in now["processes"] if each["role"] == "broker"] == [True, False]
    assert _stack_finding(headwater) == (
        "wrong",
        f"runs on {stack.address} without broker 2 (ended): run headwater up, which starts it again",
    )
    again = headwater_process("up", "--home", "home", "--json")
    assert (again.returncode, again.stderr) == (0, "headwater: broker 2 had ended, and runs again\n")
    told = json.loads(again.stdout)
    assert (told["already_running"], told["started_again"]) == (True, ["broker 2"])
    assert [each["alive"] for each in told["processes"]] == [True, True, True]
    assert len(_brokers(told["bootstrap"])) == 2
    more = headwater_process("up", "--home", "home", "--brokers", "3")
    assert (more.returncode, more.stdout) == (0, f"already running {told['bootstrap']}\n")
    assert more.stderr == (
        "headwater: --brokers 3 is for a stack that starts, and this one has 2 brokers: run headwater down first\n"
    )
    assert headwater("status", "--home", "home").returncode == 0
    assert _stack_finding(headwater) == ("ok", f"runs on {told['bootstrap']}")
    assert stack.end()[0] == 0


def test_up_beside_a_dead_broker_whose_port_is_taken_exits_3(
    foreground: Callable[..., Any], headwater: Any, headwater_process: Any, tmp_path: Path
) -> None:
    port = _free_pair()
    stack = foreground("--home", "home", "--brokers", "2", "--port", str(port))
    (second,) = [each for each in _members(tmp_path / "home" / "stack") if each["id"] == 2]
    os.kill(second["pid"], signal.SIGKILL)
    _await_end([second["pid"]])
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _bind(taker, port + 1)
        taker.listen()
        done = headwater_process("up", "--home", "home")
    assert done.returncode == 3
    assert done.stderr == (
        f"headwater: broker 2 has ended, and another process listens on 127.0.0.1:{port + 1}: stop that one first\n"
    )
    assert headwater_process("up", "--home", "home").returncode == 0
    assert headwater("status", "--home", "home").returncode == 0
    assert stack.end()[0] == 0


def test_up_beside_a_dead_broker_that_does_not_come_up_exits_1(
    foreground: Callable[..., Any], headwater_process: Any, tmp_path: Path
) -> None:
    stack = foreground("--home", "home", "--brokers", "2", "--port", "0")
    data = tmp_path / "home" / "stack"
    (second,) = [each for each in _members(data) if each["id"] == 2]
    os.kill(second["pid"], signal.SIGKILL)
    _await_end([second["pid"]])
    properties = data / "broker-2" / "log" / "meta.properties"
    before = properties.read_text()
    properties.write_text(before.replace("broker.id=2", "broker.id=7"))
    done = headwater_process("up", "--home", "home")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"headwater: broker 2 was started again, and ended again: see {data}/broker-2/broker.log\n"
    )
    assert stack.process.poll() is None
    properties.write_text(before)
    assert headwater_process("up", "--home", "home").returncode == 0
    assert stack.end()[0] == 0


def test_stack_whose_up_was_killed_is_told_by_every_verb_and_started_again(
    headwater: Any, headwater_process: Any, tmp_path: Path
) -> None:
    up = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "0", "--json")
    try:
        assert up.returncode == 0, up.stderr
        told = json.loads(up.stdout)
        assert _stack_finding(headwater) == ("ok", f"runs on {told['bootstrap']}")
        os.kill(told["pid"], signal.SIGKILL)
        _await_end([told["pid"], *(each["pid"] for each in told["processes"])])
        status = headwater("status", "--home", "home")
        assert (status.returncode, status.stdout) == (
            1,
            f"no stack runs over {tmp_path}/home/stack: the last one was killed, and headwater up starts it again\n",
        )
        assert _stack_finding(headwater) == ("wrong", "was killed: run headwater up, which starts it again")
        again = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "0")
        assert again.returncode == 0
        assert again.stderr == (
            f"headwater: the stack over {tmp_path}/home/stack had been killed, and runs again\n"
        )
    finally:
        down = headwater_process("down", "--home", "home")
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    assert _stack_finding(headwater)[1].startswith("not running")


def _stack_finding(headwater: Any) -> tuple[str, str]:
    """State and detail of what doctor says of the stack; its exit status must follow."""
    done = headwater("doctor", "--home", "home", "--json")
    findings = json.loads(done.stdout)
    assert done.returncode == any(each["state"] == "wrong" for each in findings)
    (finding,) = [each for each in findings if each["subject"] == "stack"]
    return finding["state"], finding["detail"]


_UP = ("up", "--port", "0", "--coordinator", "memory")


def test_stack_whose_state_is_damaged_is_told_by_every_verb_and_listed_again(
    headwater_process: Any, tmp_path: Path
) -> None:
    data = tmp_path / ".headwater/stack"
    assert headwater_process(*_UP).returncode == 0
    try:
        assert headwater_process("topics", "create", "kept").returncode == 0
        pid = json.loads((data / "stack.json").read_text())["pid"]
        for name in ("gone", "empty", "garbage", "one bit", "cut"):
            DAMAGES[name](data / "stack.json")
            told = f"as process {pid}, but {data}/stack.json is gone or damaged: headwater up writes it again"
            status = headwater_process("status")
            assert (status.returncode, status.stderr) == (1, "")
            assert told in status.stdout
            listed = headwater_process("topics", "list")
            assert listed.returncode == 1
            assert "stack.json is gone or damaged: headwater up writes it again" in listed.stderr
            again = headwater_process(*_UP)
            assert (again.returncode, again.stderr) == (0, "")
            assert again.stdout.startswith("already running 127.0.0.1:")
            assert "kept" in headwater_process("topics", "list").stdout
        DAMAGES["garbage"](data / "stack.json")
    finally:
        assert headwater_process("down").stdout == "stopped\n"
    assert start_ticks(pid) is None


def test_up_with_fewer_brokers_than_there_is_data_of_says_so(headwater_process: Any, tmp_path: Path) -> None:
    data = tmp_path / ".headwater/stack"
    assert headwater_process("up", "--port", "0", "--brokers", "2").returncode == 0
    assert headwater_process("down").returncode == 0
    started = headwater_process("up", "--port", "0")
    try:
        told = (
            f"headwater: {data} has data of broker 2, too, and partitions that are there cannot be read: headwater "
            "down, then headwater up --brokers 2, starts all of them\n"
        )
        assert (started.returncode, started.stderr) == (0, told)
        status = headwater_process("status")
        assert (status.returncode, status.stderr) == (0, told)
        found = headwater_process("doctor")
        assert found.returncode == 1
        assert "headwater up --brokers 2" in " ".join(found.stdout.split())
    finally:
        assert headwater_process("down").returncode == 0


@pytest.mark.parametrize("form", [[], ["--foreground"]], ids=["detached", "foreground"])
def test_up_that_cannot_listen_there_gives_the_reason(headwater_process: Any, form: list[str]) -> None:
    for host in ("192.0.2.1", "nosuch.invalid"):
        done = headwater_process("up", *form, "--coordinator", "memory", "--host", host, "--port", "9092")
        assert done.returncode == 1
        assert done.stderr.startswith(f"headwater: cannot listen on {host}:9092 (")


def test_up_over_a_folder_that_cannot_be_written_to_is_told(headwater_process: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "stack" / "up.log").mkdir(parents=True)  # as root may write to folders of any mode
    done = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "0")
    assert (done.returncode, done.stderr) == (
        1,
        f"headwater: cannot write to {home / 'stack'}: is a directory\n",
    )
    (home / "stack" / "up.log").rmdir()
    (home / "stack" / "broker-1").write_text("")
    done = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "0")
    assert done.returncode == 1
    assert done.stderr == f"headwater: cannot write to {home / 'stack' / 'broker-1'}: not a directory\n"


@pytest.mark.parametrize(("first", "then"), [("memory", "zookeeper"), ("zookeeper", "memory")])
def test_up_with_another_coordinator_than_at_first_says_which(
    foreground: Callable[..., Any], headwater_process: Any, first: str, then: str
) -> None:
    assert foreground("--home", "home", "--port", "0", "--coordinator", first).end()[0] == 0
    done = headwater_process("up", "--home", "home", "--port", "0", "--coordinator", then)
    assert done.returncode == 2
    assert "was begun with" in done.stderr


def test_up_two_stacks_run_side_by_side(foreground: Callable[..., Any]) -> None:
    stacks = [foreground("--home", name, "--coordinator", "memory", "--port", "0") for name in ("one", "two")]
    for number, stack in enumerate(stacks):
        _produce(stack.address, "flights", str(number))
    assert [_consume(stack.address, "flights", 1) for stack in stacks] == [["0"], ["1"]]


def test_up_over_a_home_in_use_names_the_stack(
    foreground: Callable[..., Any], headwater_process: Any
) -> None:
    stack = foreground("--home", "home", "--coordinator", "memory", "--port", "0")
    done = headwater_process("up", "--foreground", "--home", "home", "--coordinator", "memory", "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "a stack already runs over" in done.stderr
    assert stack.address in done.stderr


@pytest.mark.story
@pytest.mark.parametrize("form", [["--foreground"], []])
def test_up_on_a_port_in_use_exits_3(headwater_process: Any, taken_port: int, form: list[str]) -> None:
    done = headwater_process(
        "up", *form, "--home", "home", "--coordinator", "memory", "--port", str(taken_port)
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"headwater: another process listens on 127.0.0.1:{taken_port}: stop it, or choose another port with "
        "--port\n"
    )


@pytest.mark.parametrize("form", [["--foreground"], []])
def test_up_with_an_unknown_property_exits_2_and_names_the_nearest(
    headwater_process: Any, form: list[str]
) -> None:
    done = headwater_process(
        *("up", *form, "--home", "home", "--coordinator", "memory", "--port", "0", "--set", "num.partition=3")
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "num.partition;" in done.stderr
    assert "num.partitions" in done.stderr


@pytest.mark.parametrize("form", [["--foreground"], []])
def test_up_with_a_dead_zookeeper_exits_4(headwater_process: Any, form: list[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    done = headwater_process("up", *form, "--home", "home", "--port", "0", "--zookeeper", address)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == (
        f"headwater: ZooKeeper at {address} does not answer: start it, correct --zookeeper, or leave it out to "
        "use the embedded one\n"
    )


def test_up_where_another_server_poses_as_zookeeper_exits_4(headwater_process: Any, taken_port: int) -> None:
    done = headwater_process(
        *("up", "--foreground", "--home", "home", "--port", "0", "--zookeeper", f"127.0.0.1:{taken_port}"),
        *("--set", "zookeeper.connection.timeout.ms=2000"),
    )
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.count("\n") == 1


def test_up_with_an_external_ensemble_and_chroot_starts_no_zookeeper(
    foreground: Callable[..., Any], zookeeper: Any, tmp_path: Path
) -> None:
    stack = foreground("--home", "home", "--port", "0", "--zookeeper", f"{zookeeper.hosts}/{tmp_path.name}")
    _produce(stack.address, "flights", "a")
    assert [member["role"] for member in _members(tmp_path / "home" / "stack")] == ["broker"]
    assert stack.end() == (0, "")


@pytest.mark.story
def test_up_detached_then_status_then_down(headwater: Any, headwater_process: Any, tmp_path: Path) -> None:
    up = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "0", "--json")
    try:
        assert up.returncode == 0, up.stderr
        told = json.loads(up.stdout)
        assert told["already_running"] is False
        second = headwater_process("up", "--home", "home", "--coordinator", "memory")
        assert (second.returncode, second.stdout) == (0, f"already running {told['bootstrap']}\n")
        assert second.stderr == ""
        other = headwater_process("up", "--home", "home", "--coordinator", "memory", "--port", "1")
        assert (other.returncode, other.stdout) == (0, second.stdout)
        assert other.stderr == (
            "headwater: --port 1 is for a stack that starts, and this one has its first broker at "
            f"{told['bootstrap']}: run headwater down first\n"
        )
        status = json.loads(headwater("status", "--home", "home", "--json").stdout)
        assert (status["running"], status["bootstrap"]) == (True, told["bootstrap"])
        assert [member["role"] for member in status["processes"]] == ["broker"]
        assert status["processes"][0]["resident_bytes"] > 1_000_000
    finally:
        down = headwater_process("down", "--home", "home")
    assert (down.returncode, down.stdout) == (0, "stopped\n")
    again = headwater_process("down", "--home", "home")
    assert (again.returncode, again.stdout) == (0, f"no stack runs over {tmp_path}/home/stack\n")
    assert headwater("status", "--home", "home").returncode == 1


def test_running_stack_ends_with_a_killed_caller(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from headwater.config import load_settings\n"
        "from headwater.stack.local import running_stack\n"
        "from headwater.stack.spec import stack_spec\n"
        "flags = {'stack.port': 0, 'stack.coordinator': 'memory'}\n"
        "spec = stack_spec(load_settings({}, flags).settings, Path('data').absolute())\n"
        "with running_stack(spec) as state:\n"
        "    print(state.pid, *(member.pid for member in state.members), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    _await_end([int(pid) for pid in done.stdout.split()])
