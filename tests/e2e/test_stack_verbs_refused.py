"""`headwater topics`, `produce` and `consume` where brokers do not answer or refuse, once their time has passed."""

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from headwater.config import load_settings
from headwater.stack.local import data_dir, running_stack
from headwater.stack.spec import stack_spec
from headwater_broker.testing import broker

TIMEOUT_S = 60


def test_verbs_with_a_dead_bootstrap_say_so(headwater: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "2")
    done = headwater("topics", "list", "--bootstrap", "127.0.0.1:1", "--home", "empty")
    assert done.returncode == 1
    assert done.stderr == (
        "headwater: no broker answers at 127.0.0.1:1: is it running, is the address right, and does it speak PLAINTEXT "
        "there (client.security_protocol)?\n"
    )


def test_partition_without_a_leader_is_told_and_the_others_can_be_read(
    headwater: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "3")
    flags = {"stack.port": 0, "stack.coordinator": "memory"}
    spec = stack_spec(
        load_settings({}, flags).settings, data_dir(tmp_path), ("auto.create.topics.enable=false",)
    )

    def verb(*arguments: str, stdin: str = "") -> Any:
        return headwater(*arguments, "--home", str(tmp_path), stdin=stdin)

    with running_stack(spec):
        assert verb("topics", "create", "torn", "--partitions", "2").returncode == 0
        for partition in ("0", "1", "1"):  # damage in front of what is whole is no torn end
            assert verb("produce", "torn", "--partition", partition, stdin="hello\n" * 500).returncode == 0
        missing = verb("produce", "nosuch", stdin="hello\n")
        assert missing.stderr == "headwater: there is no topic nosuch: see headwater topics list\n"
    (log,) = spec.data.glob("broker-1/log/torn-1/*.log")
    content = bytearray(log.read_bytes())
    content[100:140] = b"\xff" * 40
    log.write_bytes(content)
    (spec.data / "broker-1/log/.kafka_cleanshutdown").unlink()  # all is looked at after a crash
    with running_stack(spec):
        described = json.loads(verb("topics", "describe", "torn", "--json").stdout)["partitions"]
        assert [each["leader"] for each in described] == [1, -1]
        assert [each["latest"] for each in described] == [500, None]
        assert "none" in verb("topics", "describe", "torn").stdout
        refused = verb("consume", "torn")
        assert refused.returncode == 1
        assert (
            "topic torn: partition 1 has no leader, as broker 1 is away or its log is offline"
            in refused.stderr
        )
        assert verb("consume", "torn", "--partition", "0").stdout == "hello\n" * 500
        sent = verb("produce", "torn", "--partition", "1", stdin="hello\n")
        assert "partition 1 has no leader" in sent.stderr


def test_produce_to_a_broker_that_takes_nothing_is_told_from_one_that_does_not_answer(
    headwater: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "2")
    with broker(tmp_path / "log") as running:
        address = ("--bootstrap", running.bootstrap)
        assert headwater("produce", "t", *address, stdin="hello\n").returncode == 0
        shutil.rmtree(tmp_path / "log" / "t-0")
        deadline = time.monotonic() + TIMEOUT_S
        while (sent := headwater("produce", "t", *address, stdin="hello\n")).returncode == 0:
            assert time.monotonic() < deadline, "the broker did not see that its log is gone"
    assert sent.stderr == (
        "headwater: topic t (0 records were sent): the broker answers, but took no record in 2 s: its disk may be "
        "full, or a file of its log gone: headwater status and its broker.log say more\n"
    )


def test_topics_describe_shows_what_the_other_brokers_know_while_one_was_just_killed(
    headwater: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "6")
    spec = stack_spec(load_settings({}, {"stack.port": 0, "stack.brokers": 2}).settings, data_dir(tmp_path))
    home = ("--home", str(tmp_path))
    with running_stack(spec) as state:
        assert headwater("topics", "create", "t", "--partitions", "2", *home).returncode == 0
        os.kill(state.brokers[1].pid, signal.SIGKILL)
        done = headwater("topics", "describe", "t", "--json", *home)
    assert done.returncode == 0, done.stderr
    latest = {each["replicas"][0]: each["latest"] for each in json.loads(done.stdout)["partitions"]}
    assert latest == {1: 0, 2: None}


def test_broker_that_refuses_a_password_is_told_from_one_that_does_not_answer(
    headwater: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaas = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_admin="secret";'
    told = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
    }
    with broker(properties=told) as running:
        address = running.bootstrap
        monkeypatch.setenv("HEADWATER_CLIENT_SECURITY_PROTOCOL", "SASL_PLAINTEXT")
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_MECHANISM", "PLAIN")
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_USERNAME", "admin")
        monkeypatch.setenv("HEADWATER_CLIENT_TIMEOUT_S", "3")
        for password, mechanism, sentence in (
            ("bad", "PLAIN", "refuses 'admin' with this password (PLAIN)"),
            (
                "secret",
                "SCRAM-SHA-256",
                "does not take SCRAM-SHA-256 (client.sasl_mechanism): it takes PLAIN",
            ),
        ):
            monkeypatch.setenv("HEADWATER_CLIENT_SASL_PASSWORD", password)
            monkeypatch.setenv("HEADWATER_CLIENT_SASL_MECHANISM", mechanism)
            for verb, stdin in ((("topics", "list"), ""), (("produce", "orders"), "hello\n")):
                refused = headwater(*verb, "--bootstrap", address, stdin=stdin)
                assert refused.returncode == 1
                assert f"the broker at {address} {sentence}" in refused.stderr
        monkeypatch.setenv("HEADWATER_CLIENT_SASL_MECHANISM", "PLAIN")
        assert headwater("topics", "list", "--bootstrap", address).returncode == 0
