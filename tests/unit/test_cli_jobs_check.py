"""What `headwater jobs check` prints of a job that is not what its last run was."""

import pytest

from headwater.cli.jobs import _print_plans
from headwater_streams.runtime.compatibility import Difference


def test_check_says_what_can_be_done_about_each_difference(capsys: pytest.CaptureFixture[str]) -> None:
    changed = [
        Difference("function or declaration", "aa", "bb", "keep", "rows before are as the old one made them"),
        Difference("watermark of orders", "1 hour", "2 hours", "keep", "it is late"),
        Difference("shuffle partitions", "2", "4", "renew", "state is cut by them"),
    ]
    part = {
        "job": "hourly__ingest_orders",
        "target": "gold.hourly__ingest_orders",
        "kind": "row",
        "inputs": {},
    }
    part |= {"keys": [], "columns": {}, "checks": []}
    _print_plans([part], {"clean": changed, part["job"]: changed[:1]})
    told = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    lines = [line for line in told if line.startswith("clean")]
    assert [line.rpartition("   ")[2] for line in lines] == [
        "go on as it is; for rows before: headwater backfill plan",
        "go on as it is",
        "renew",
    ]
    assert told[-1].endswith("plan hourly --rebuild --table gold.hourly__ingest_orders")
