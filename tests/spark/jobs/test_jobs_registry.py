"""Jobs whose topics have their schemas in a registry: what they read, and what they do while it is away."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

import headwater as hw
from headwater.running.checking import check_jobs
from headwater_streams.plan.job import Job, bind
from headwater_streams.runtime.restarts import BackOff, Restarts
from headwater_streams.runtime.runner import JobRunner
from headwater_streams.sources.registered import Registered
from headwater_streams.sources.registry_client import NoRegistryError, RefusedByRegistryError
from headwater_streams.sources.registry_memory import RememberedRegistry
from headwater_streams.testing import JobDriver
from support.watching import watch_until

orders = hw.topic("orders", registry=True)


@hw.job(target=hw.delta("silver.orders"), dedup=hw.by_offset())
def clean(orders: DataFrame) -> DataFrame:
    return orders


def order(*more: dict[str, Any]) -> str:
    fields = [{"name": "id", "type": "long"}, *more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


ONE = order()
TWO = order({"name": "currency", "type": "string", "default": "EUR"})
OF_ONE, OF_TWO = b"\0\0\0\0\x01\x02", b"\0\0\0\0\x02\x04\x06USD"


class Registry:
    """A registry with the versions that it is given, ids and numbers alike, which may be away."""

    def __init__(self, folder: Path) -> None:
        self.versions, self.is_away, self.asked = [ONE], False, 0
        self._folder = folder

    def ask(self, _method: str, *path: str, **_query: object) -> Any:
        self.asked += 1
        if self.is_away:
            raise NoRegistryError("no registry answers at http://r:8081 (refused)")
        number = len(self.versions) if path[-1] == "latest" else int(path[-1])
        if number > len(self.versions):
            raise RefusedByRegistryError(f"Schema {number} not found")
        return {"version": number, "id": number, "schema": self.versions[number - 1]}

    def job(self) -> Job:
        """The job as a process finds it that starts now."""
        ask = RememberedRegistry(self.ask, "http://r:8081", self._folder).ask
        return replace(
            bind(clean), inputs={"orders": replace(orders, format=Registered("orders-value", ask=ask))}
        )


def test_a_job_goes_on_while_its_registry_is_away_and_waits_at_a_schema_that_it_does_not_know(
    drive: Callable[..., JobDriver], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(tmp_path / "registry")
    driver = drive(registry.job())
    driver.send("orders", OF_ONE)
    driver.run()
    registry.is_away = True
    driver.send("orders", OF_ONE)
    driver.run()  # this one, and one that starts now
    restarted = drive(registry.job())
    restarted.send("orders", OF_ONE)
    restarted.run()
    assert restarted.rows("silver.orders", "_offset", "id") == [(0, 1), (1, 1), (2, 1)]
    assert "no registry answers at http://r:8081 (refused): the answer of " in caplog.text
    restarted.send("orders", OF_ONE, OF_TWO)
    with pytest.raises(Exception, match="could not say the one of id 2: no registry answers"):
        restarted.run()
    assert len(restarted.rows("silver.orders", "id")) == 3
    registry.is_away = False
    registry.versions.append(TWO)
    restarted.run()
    assert restarted.rows("silver.orders", "_offset", "id")[3:] == [(3, 1), (4, 2)]
    assert restarted.quarantined("silver.orders") == []
    assert restarted.audit() == []


def test_a_running_job_waits_for_its_registry_and_goes_on_by_itself(
    drive: Callable[..., JobDriver], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = Registry(tmp_path / "registry")
    job = registry.job()
    driver = drive(job)
    driver.send("orders", OF_ONE)
    runner = JobRunner(driver.context, [job], restarts=Restarts(BackOff(0.1, 0.3)), goes_on=True)

    def rows() -> int:
        return len(driver.rows("silver.orders", "id"))

    runner.start(interval_s=0.1)
    try:
        watch_until(runner, lambda: runner.batches["clean"] >= 1)
        registry.is_away = True
        driver.send("orders", OF_ONE)
        watch_until(runner, lambda: rows() == 2)
        asked = registry.asked
        driver.send("orders", OF_TWO)
        watch_until(runner, lambda: registry.asked >= asked + 5)  # it asks again and again
        assert rows() == 2
        registry.versions.append(TWO)
        registry.is_away = False
        watch_until(runner, lambda: rows() == 3)
    finally:
        runner.stop()
    assert [each.state for each in runner.outcomes] == []
    assert "could not say the one of id 2: no registry answers at http://r:8081 (refused)" in caplog.text
    assert driver.rows("silver.orders", "_offset", "id") == [(0, 1), (1, 1), (2, 2)]
    assert driver.audit() == []


def test_what_a_newer_schema_changes_is_said_before_its_values_arrive_and_taken_at_the_next_start(
    drive: Callable[..., JobDriver], tmp_path: Path
) -> None:
    registry = Registry(tmp_path / "registry")
    before = drive(registry.job())
    before.send("orders", OF_ONE)
    before.run()
    assert [each.differences for each in check_jobs(before.context, [registry.job()])] == [[]]
    registry.versions.append(TWO)
    (checked,) = check_jobs(before.context, [registry.job()])
    assert checked.problems == []
    found = {each.what: (each.before, each.now, each.remedy) for each in checked.differences}
    assert found["schema orders-value"] == ("no currency", "currency string", "keep")
    assert found["columns"] == ("without currency", "with", "keep")
    after = drive(registry.job())
    after.send("orders", OF_TWO, OF_ONE)
    after.run()
    assert after.rows("silver.orders", "_offset", "id", "currency") == [
        (0, 1, None),
        (1, 2, "USD"),
        (2, 1, "EUR"),
    ]
    codes = [each.fingerprint for each in after.ledger("silver.orders") if each.is_batch]
    assert len(set(codes)) == 2
    assert after.audit() == []
