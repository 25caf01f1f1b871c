"""The operator that the contributors' how-to writes, `docs/contributing/add-an-operator.md`, as the page has it.

days from 06:00       05:59 a |  06:00 b      07:00 c      late, of the day before: 05:58 d
                      1 Jan   |  2 Jan
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import headwater as hw
from headwater_streams import backfill
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

_PAGE = Path(__file__).resolve().parents[3] / "docs/contributing/add-an-operator.md"
_MODULE = "headwater_streams.operators.windows.shifted"
_BLOCK = re.compile(r'^```python title="[^"]+/shifted\.py"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
clicks = hw.topic("clicks", schema="at TIMESTAMP, n INT", event_time="at", watermark="30 minutes")


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The module of the page, in the place where the page puts it."""
    found = _BLOCK.search(_PAGE.read_text(encoding="utf-8"))
    assert found is not None
    file = tmp_path_factory.mktemp("written") / "shifted.py"
    file.write_text(found[1], encoding="utf-8")
    spec = importlib.util.spec_from_file_location(_MODULE, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, _MODULE, module)
        spec.loader.exec_module(module)
        yield module


def test_operator_of_the_page_streams_counts_late_rows_and_is_repaired(
    shifted: ModuleType, drive: Callable[..., JobDriver]
) -> None:
    def of(factor: int) -> Job:
        @hw.job(name="daily", target=hw.delta("gold.daily", keys=["window_start"], mode="update"))
        def daily(clicks: DataFrame) -> DataFrame:
            days: DataFrame = shifted.shifted(clicks, "at", "1 day", "6 hours").agg(
                F.sum(F.col("n") * factor).alias("n")
            )
            return days

        return bind(daily)

    driver = drive(of(1))
    for times in (["02T05:59", "02T06:00"], ["02T07:00"], ["02T05:58"]):
        rows = [{"at": f"2013-01-{time}:00Z", "n": number} for number, time in enumerate(times, 1)]
        driver.send("clicks", *rows, timestamp="2013-01-02T08:00:00+00:00")
        driver.run()

    def days() -> list[tuple[str, int]]:
        rows = driver.table("gold.daily").selectExpr("date_format(window_start, 'dd HH:mm')", "n")
        return sorted(tuple(row) for row in rows.collect())

    assert days() == [("01 06:00", 1), ("02 06:00", 3)]
    assert driver.rows("gold.daily__late", "n") == [(1,)]
    assert driver.audit() == []
    planned = backfill.plan(driver.context, of(10))
    backfill.run(driver.context, planned.id, of(10))
    verdict = backfill.verify(driver.context, planned.id, of(10))
    assert verdict.passed, verdict.findings
    backfill.swap(driver.context, planned.id, accept_diff=verdict.digest)
    assert days() == [("01 06:00", 20), ("02 06:00", 30)]
