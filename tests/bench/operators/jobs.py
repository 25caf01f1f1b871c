"""The library's jobs: one function, with and without what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

import headwater as hw
from headwater_streams.base.check import Check
from headwater_streams.loader import load_jobs
from headwater_streams.plan.job import Job
from operators.topic import SCHEMA, TIME

TOPIC = "readings"
REJECTED_OF = 1000
"""Of so many rows `rejecting` takes one aside."""

readings = hw.topic(TOPIC, schema=SCHEMA, event_time=TIME)

_CONDITIONS = {
    "has_device": "device IS NOT NULL",
    "device_is_one": "device RLIKE '^dev-[0-9]{4}$'",
    "kind_is_known": "kind IN ('temperature', 'humidity', 'pressure')",
    "unit_is_of_kind": "(kind = 'temperature') = (unit = 'C')",
    "value_is_sane": "value BETWEEN -50 AND 1100",
}


_RULES = {
    "has_device": hw.expect.not_null("device"),
    "device_is_one": hw.expect.matches("device", "^dev-[0-9]{4}$"),
    "kind_is_known": hw.expect.in_set("kind", ["temperature", "humidity", "pressure"]),
    "unit_is_short": hw.expect.length("unit", 1, 3),
    "value_is_sane": hw.expect.between("value", -50, 1100),
}
_OF_BATCHES = {
    "unit_is_there": hw.expect.null_share("unit", "1 %"),
    "is_fresh": hw.expect.fresh(TIME, "1 day"),
    "is_usual": hw.expect.volume(),
    "is_spread": hw.expect.drift("kind", values=["temperature", "humidity", "pressure"]),
}


@hw.job(target=hw.delta("silver.readings"))
def taken(readings: DataFrame) -> DataFrame:
    """Every reading, as it came."""
    return readings


def jobs_over(topic: str) -> dict[str, Job]:
    """The jobs by the names of the contenders, reading a topic."""
    (declared,) = load_jobs([str(Path(__file__))])
    plain = replace(declared, inputs={"readings": replace(readings, name=topic)})
    checks = tuple(Check(name, condition) for name, condition in _CONDITIONS.items())
    warned = tuple(Check(name, condition, action="warn") for name, condition in _CONDITIONS.items())
    rejects = Check("is_not_one_of_many", f"id % {REJECTED_OF} <> 0")
    return {
        "none": plain,
        "by_offset": replace(plain, dedup=hw.by_offset()),
        "origin": replace(plain, dedup=hw.by_offset(origin=True)),
        "checks": replace(plain, checks=checks),
        "rejecting": replace(plain, checks=(*checks, rejects)),
        "warned": replace(plain, checks=warned),
        "bounded": replace(plain, checks=tuple(Check(n, r, at_most="1 %") for n, r in _RULES.items())),
        "of_batches": replace(
            plain, checks=tuple(Check(n, r, action="warn") for n, r in _OF_BATCHES.items())
        ),
        "unique": replace(plain, checks=(Check("once", hw.expect.unique("id"), action="warn"),)),
    }
