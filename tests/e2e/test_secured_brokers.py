"""Commands and jobs by the settings of `[client]`, over our broker with TLS, SCRAM and ACLs and over Apache Kafka's
newest: everything that connects does so by them, and no secret is left."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclOperation,
    ResourceType,
)

from secured import PASSWORD, WAIT_S, certificates, files_with, secured_broker
from secured_kafka import secured_kafka, token_server

JOBS = """
import headwater as hw

orders = hw.topic("orders", schema="who STRING, cents INT", format=hw.csv(sep=";"){cluster})


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
def all_orders(orders):
    return orders.filter("cents < 100")
"""
SQL = """
CREATE STREAMING TABLE silver.paid WITH (dedup = by_offset()) AS
SELECT who, cents FROM topic('orders', schema => 'who STRING, cents INT', format => csv(sep => ';'){cluster})
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("certificates"))


def _exercise(headwater: Any, folder: Path, bootstrap: str, topic: str = "orders") -> str:
    """Every command that connects, in the folder of the test; returns all that they printed."""
    cluster = ', cluster="pay"' if ":" in topic else ""
    (folder / "orders.py").write_text(JOBS.replace("{cluster}", cluster))
    (folder / "paid.sql").write_text(SQL.replace("{cluster}", ", cluster => 'pay'" if cluster else ""))
    printed = []

    def run(*arguments: str, stdin: str = "") -> str:
        done = headwater(*arguments, stdin=stdin)
        printed.extend((done.stdout, done.stderr))
        assert done.returncode == 0, (arguments, done.stderr[-3000:])
        return str(done.stdout)

    address, at = (
        ("--bootstrap", bootstrap),
        ("--bootstrap", "pay") if cluster else ("--bootstrap", bootstrap),
    )
    # Jobs over a named cluster need no other one.
    of_jobs = () if cluster else address
    assert "orders" in run("topics", "list", *at)
    run("produce", "orders", *at, stdin="a;1\nb;200\nbroken\n")
    assert run("consume", "orders", *at).splitlines() == ["a;1", "b;200", "broken"]
    (folder / "lines.txt").write_text("c;3\n")
    run("ship", "lines.txt", "--topic", "orders", "--once", *at)
    run("jobs", "check", "orders.py", "paid.sql")
    run("jobs", "run", "orders.py", "paid.sql", "--once", *of_jobs)
    statuses = json.loads(run("jobs", "status", "--json", *of_jobs))
    assert {(each["job"], each["lag"]) for each in statuses} == {("all_orders", 0), ("paid", 0)}
    explained = json.loads(run("jobs", "explain", "all_orders", "--json", *of_jobs))
    assert [each["behind"] for each in explained["inputs"]] == [0]
    deadline_s = time.monotonic() + WAIT_S
    while "all_orders" not in run("groups", "list", *at):
        assert time.monotonic() < deadline_s
    planned = json.loads(run("backfill", "plan", "orders.py:all_orders", "--all", "--json", *of_jobs))
    run("backfill", "run", planned["id"], *of_jobs)
    run("backfill", "verify", planned["id"], *of_jobs)
    run("backfill", "swap", planned["id"], *of_jobs)
    run("audit")
    rows = run("sql", "--csv", "SELECT who, _topic FROM silver.orders ORDER BY who")
    assert rows.splitlines()[1:] == [f"a,{topic}", f"c,{topic}"]
    # A job of SQL does as well; its rejected record is the third.
    run("load", topic, "--job", "paid.sql:paid", "--into", "history.paid", "--to", "3", *of_jobs)
    assert run("sql", "--csv", "SELECT count(*) AS n FROM history.paid").split() == ["n", "2"]
    run("replay", "silver.orders", "--topic", "orders", *at)
    assert "a;1" in run("trace", f"{topic}:0:0", *at)
    run("config", "show")
    return "".join(printed)


@pytest.mark.story
@pytest.mark.parametrize("named", [False, True], ids=["client", "cluster"])
def test_every_command_reaches_our_broker_with_tls_scram_and_acls(
    headwater: Any, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    with secured_broker(folder) as secured:
        secured.create("orders", "__headwater_ship")
        for topic in ("orders", "__headwater_ship"):
            for operation in (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE_CONFIGS):
                secured.allow("alice", operation, topic)
        for group in ("all_orders", "paid"):
            secured.allow("alice", AclOperation.READ, group, ResourceType.GROUP)
        for name, value in secured.environ("CLUSTER_PAY" if named else "CLIENT").items():
            monkeypatch.setenv(name, value)
        if named:
            monkeypatch.setenv("HEADWATER_CLUSTER_PAY_BOOTSTRAP", secured.bootstrap)
        printed = _exercise(headwater, tmp_path, secured.bootstrap, "pay:orders" if named else "orders")
    assert "correct horse" not in printed
    assert files_with("correct horse", tmp_path) == []


def test_a_job_over_a_broker_that_refuses_it_ends_in_a_sentence_and_status_1(
    headwater: Any, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.py").write_text(JOBS.replace("{cluster}", ""))
    with secured_broker(folder) as secured:
        for name, value in secured.environ().items():
            monkeypatch.setenv(name, value)
        for variable, value, sentence in (
            ("SASL_PASSWORD", "another", "refuses 'alice' with this password (SCRAM-SHA-512)"),
            ("SSL_CA_LOCATION", str(folder / "other-ca.pem"), "of an authority that is not trusted here"),
            ("SECURITY_PROTOCOL", "PLAINTEXT", "speaks TLS, and client.security_protocol is PLAINTEXT"),
        ):
            with monkeypatch.context() as changed:
                changed.setenv(f"HEADWATER_CLIENT_{variable}", value)
                done = headwater("jobs", "run", "orders.py", "--once", "--bootstrap", secured.bootstrap)
            assert done.returncode == 1
            assert sentence in done.stderr.splitlines()[-1]
            assert "Traceback" not in done.stderr
            assert "\tat " not in done.stderr


def test_a_wrong_client_section_ends_the_jobs_that_need_it_and_no_others(
    headwater: Any, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders.py").write_text(JOBS.replace("{cluster}", ', cluster="pay"'))
    (tmp_path / "ours.py").write_text(
        JOBS.replace("{cluster}", "").replace("all_orders", "ours").replace("silver.orders", "silver.ours")
    )
    monkeypatch.setenv("HEADWATER_CLIENT_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("HEADWATER_CLIENT_SECURITY_PROTOCOL", "SASL_SSL")
    sentence = "client.security_protocol is SASL_SSL, which needs client.sasl_mechanism"
    with secured_broker(folder) as secured:
        secured.create("orders")
        secured.allow("alice", AclOperation.READ, "orders")
        secured.send("orders", "a;1")
        for name, value in secured.environ("CLUSTER_PAY").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HEADWATER_CLUSTER_PAY_BOOTSTRAP", secured.bootstrap)
        checked = headwater("jobs", "check", "orders.py", "ours.py")
        done = headwater("jobs", "run", "orders.py", "ours.py", "--once")
        alone = headwater("jobs", "run", "ours.py", "--once")
        status = headwater("jobs", "status", "--json")
    assert (checked.returncode, done.returncode, alone.returncode) == (2, 2, 2)
    assert f"job 'ours': {sentence}" in checked.stderr
    assert f"job 'ours': {sentence}" in done.stderr.splitlines()[-1]
    assert alone.stderr.startswith(f"headwater: {sentence}"), "at once, as no job can run"
    assert {each["job"]: (each["state"], each["lag"]) for each in json.loads(status.stdout)} == {
        "all_orders": ("stopped", 0),
        "ours": ("refused", None),
    }


# -- Apache Kafka's newest -------------------------------------------------------------------------------


def test_every_command_reaches_apache_kafka_by_scram(
    headwater: Any, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, directory = tmp_path, tmp_path / "kafka"
    directory.mkdir()
    with secured_kafka(folder, directory) as bootstrap:
        for name, value in _environ(folder, "SCRAM-SHA-512").items():
            monkeypatch.setenv(name, value)
        printed = _exercise(headwater, home, bootstrap)
    assert "correct horse" not in printed
    assert files_with("correct horse", home / ".headwater") == []


def test_every_command_reaches_apache_kafka_by_oauth(
    headwater: Any, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "kafka"
    directory.mkdir()
    with (
        token_server(folder / "alice.key") as url,
        secured_kafka(folder, directory, f"{url}/keys") as bootstrap,
    ):
        for name, value in _environ(folder, "OAUTHBEARER").items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HEADWATER_CLIENT_OAUTH_URL", f"{url}/token")
        monkeypatch.setenv("HEADWATER_CLIENT_OAUTH_CLIENT_ID", "alice")
        monkeypatch.setenv("HEADWATER_CLIENT_OAUTH_CLIENT_SECRET", PASSWORD)
        printed = _exercise(headwater, tmp_path, bootstrap)
    assert "correct horse" not in printed
    assert files_with("correct horse", tmp_path / ".headwater") == []


def _environ(folder: Path, mechanism: str) -> dict[str, str]:
    values = {
        "SECURITY_PROTOCOL": "SASL_SSL",
        "SASL_MECHANISM": mechanism,
        "SSL_CA_LOCATION": str(folder / "ca.pem"),
    }
    if mechanism != "OAUTHBEARER":
        values |= {"SASL_USERNAME": "alice", "SASL_PASSWORD": PASSWORD}
    return {f"HEADWATER_CLIENT_{name}": value for name, value in values.items()}
