"""A log file shipped to a topic and from there to tables, as a person does it; what was sent twice is there once."""

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.config import shipped_dir
from headwater_broker.testing import broker

_JOB = f"{shipped_dir('jobs') / 'access_log.py'}:parse_requests"


def _line(number: int) -> str:
    return (
        f"203.0.113.{number % 250} - - [21/Nov/2013:10:{number // 60:02}:{number % 60:02} +0000] "
        f'"GET /p/{number} HTTP/1.1" 200 {number} "-" "Mozilla/5.0" 0.{number:03}'
    )


@pytest.mark.story
def test_ship_lines_sent_twice_are_in_the_table_once(tmp_path: Path, headwater: Any) -> None:
    log = tmp_path / "access.log"

    def run(*arguments: str) -> str:
        done = headwater(*arguments)
        assert done.returncode == 0, done.stderr[-2000:]
        output: str = done.stdout
        return output

    def table(statement: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(run("sql", "--json", statement))
        return rows

    with broker() as running:
        ship = ("ship", str(log), "--topic", "access", "--name", "web-1", "--once")
        ship = (*ship, "--from-beginning", "--bootstrap", running.bootstrap)
        jobs = ("jobs", "run", _JOB, "--once", "--bootstrap", running.bootstrap)
        log.write_text("".join(_line(number) + "\n" for number in range(50)) + "not a request\n")
        run(*ship)
        run(*jobs)
        with log.open("a") as more:
            more.write("".join(_line(number) + "\n" for number in range(50, 80)))
        log.rename(tmp_path / "access.log.1")
        log.write_text(_line(80) + "\n")
        run(*ship[:1], str(tmp_path / "access.log*"), *ship[2:])
        # A second delivery of everything, under the same coordinates, as after a shipper that was killed.
        _send_again(running.bootstrap)
        run(*jobs)

    rows = table("SELECT path, took_s, _origin.cluster AS host, _origin.offset AS line FROM silver.requests")
    assert sorted(int(row["path"].removeprefix("/p/")) for row in rows) == list(range(81))
    assert {row["host"] for row in rows} == {"web-1"}
    assert {row["line"] for row in rows if row["path"] in ("/p/0", "/p/80")} == {0}
    (rejected,) = table("SELECT _reason, _origin.offset AS line FROM silver.requests__quarantine")
    reason = "the line is not of the format 'access': its user is not as it should be: request"
    assert rejected == {"_reason": reason, "line": 50}
    run("audit")


def _send_again(bootstrap: str) -> None:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "again", "enable.partition.eof": True})
    producer = Producer({"bootstrap.servers": bootstrap})
    partitions = consumer.list_topics("access", timeout=10).topics["access"].partitions
    consumer.assign([TopicPartition("access", each, OFFSET_BEGINNING) for each in partitions])
    delivered, ended = [], 0
    while ended < len(partitions):
        (message,) = consumer.consume(1, 10)
        if message.error() is None:
            delivered.append(message)
        else:
            ended += 1
    consumer.close()
    for message in delivered:
        producer.produce("access", message.value(), message.key(), headers=message.headers())
    assert producer.flush(10) == 0
