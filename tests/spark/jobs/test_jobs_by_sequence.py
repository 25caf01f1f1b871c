"""Deduplication by the numbers that a producer gives its own records."""

import random
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from amount import drawn_seed
from headwater_streams.base.errors import JobDefinitionError
from headwater_streams.ledger.audit import audit_home
from headwater_streams.plan.job import bind
from headwater_streams.runtime.planning import plan_jobs
from headwater_streams.testing import JobDriver

events = hw.topic("events", schema="n INT")
copied = hw.table("silver.events")
AT = "2013-01-01T13:00:00+00:00"


@hw.job(target=hw.delta("silver.events"), dedup=hw.by_sequence(max_jump=1000))
def clean(events: DataFrame) -> DataFrame:
    return events


def send(driver: JobDriver, n: int, *sent: object, partition: int = 0) -> None:
    names = ("id", "epoch", "sequence")
    values = [value if isinstance(value, bytes) else str(value).encode() for value in sent]
    headers = {f"headwater-producer-{k}": value for k, value in zip(names, values, strict=False)}
    driver.send("events", {"n": n}, partition=partition, timestamp=AT, headers=headers)


@pytest.mark.story
def test_by_sequence_any_order_and_any_resends_give_each_record_once(drive: Callable[..., JobDriver]) -> None:
    seed = drawn_seed()
    rng = random.Random(seed)
    driver = drive(clean)
    numbered = [(who, epoch, sequence) for who in ("p", "q") for epoch in (0, 1) for sequence in range(4)]
    deliveries = [*numbered, *rng.choices(numbered, k=6)]
    rng.shuffle(deliveries)
    for half in (deliveries[:11], deliveries[11:]):
        for sent in half:
            send(driver, numbered.index(sent), *sent, partition=rng.randrange(2))
        driver.run()
    assert driver.rows("silver.events", "n") == sorted([(n,) for n in range(len(numbered))], key=repr)
    assert sum(entry.totals["duplicate"] for entry in driver.ledger("silver.events")) == 6

    send(driver, 100)  # no headers: by its own offset
    send(driver, 101, "p", 0)
    send(driver, 102, "p", "x", 1)
    send(driver, 103, "p", 1, 5000)
    send(driver, 104, b"\xff", 0, 0)
    send(driver, 105, "p\tq", 0, 0)
    driver.run()
    assert (100,) in driver.rows("silver.events", "n")
    reasons = [reason for (reason,) in driver.rows("silver.events__quarantine", "_reason")]
    malformed = "the headwater-producer headers are incomplete, not decimal numbers or not text"
    assert reasons == [*[malformed] * 4, "the sequence is far beyond all that was seen of its producer"]
    assert [finding for audit in audit_home(driver.home) for finding in audit.findings] == []


@pytest.mark.story
def test_by_sequence_over_a_table_is_refused(drive: Callable[..., JobDriver]) -> None:
    @hw.job(target=hw.delta("silver.twice"), dedup=hw.by_sequence())
    def twice(copied: DataFrame) -> DataFrame:
        return copied

    with pytest.raises(
        JobDefinitionError, match="'twice': by_sequence reads the headers of records, and a table's"
    ):
        plan_jobs(drive().context, [bind(clean), bind(twice)])
