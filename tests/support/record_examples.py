"""An example or two of every record that is kept on disk: one with all that it may have, one with what it must have.

`tests/unit/golden/records` has each as it is stored, `<class>.<name>.json`. A file there is never written anew: what it
says has been stored in somebody's home. Where a format changes, its new version gets new files, beside the old ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headwater_streams.backfill.change import Change
from headwater_streams.backfill.diff import Diff
from headwater_streams.backfill.offsets import Offsets
from headwater_streams.backfill.progress import Progress
from headwater_streams.backfill.rebuild.spec import RebuildPlan
from headwater_streams.backfill.repair.kept import KeptFiles
from headwater_streams.backfill.repair.quarantine import RejectedRows
from headwater_streams.backfill.repair.spec import BackfillPlan, Chunk, FurtherTable, PinnedInput
from headwater_streams.backfill.results import RollbackResult, SwapResult, TableSwap
from headwater_streams.backfill.rewind.spec import RewindPlan
from headwater_streams.backfill.values import LiveBatchId, micros
from headwater_streams.backfill.verdict import Finding, Verdict
from headwater_streams.base.extra import Extra
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.base.record import Record
from headwater_streams.ledger.known_columns import KnownColumns
from headwater_streams.ledger.sent_lineage import SentLineage
from headwater_streams.quality.alarms import AlarmState, Broken
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.result import Outcome, SuiteResult
from headwater_streams.quality.suite import Skipped
from headwater_streams.runtime.loading.begun import BegunLoad
from headwater_streams.runtime.lookups import LookupVersion
from headwater_streams.runtime.stages.failing_rows import FailingRows
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.sources.registry_memory import KeptAnswer
from headwater_streams.spark.run_facts import InputFacts, RunFacts

_HOUR = micros("2013-01-01T10:00:00Z")
_RANGES = {"departures": {0: (3, 9), 1: (0, 4)}}
_TOPIC = SourceRange(input="departed", ranges=_RANGES, topic="departures")
_TABLE = SourceRange(
    input="flights", ranges=_RANGES, table="silver.flights", versions=(3, 6), left_out=(4, 5)
)

_ENTRIES = {
    "row": LedgerEntry(
        job="departures",
        generation=2,
        batch=17,
        table="silver.departures",
        kind="row",
        sources=(_TOPIC, _TABLE),
        accounting={"departed": {"read": 10, "written": 7, "filtered": 1, "duplicate": 1, "quarantined": 1}},
        fingerprint="9f2c0011aabbccdd",
        max_event_time_us=1357034400000000,
        seen={"cluster\tdepartures\t0": [(0, 160), (170, 171)]},
        extra={"gaps": {"departed": {"departures": {"0": 3}}}, "warnings": {"slow": 2}},
        partitions={"departures": {0: {"read": 6, "written": 5}, 1: {"read": 4, "written": 2}}},
    ),
    "changed": LedgerEntry(
        job="departures",
        generation=2,
        batch=18,
        table="silver.departures",
        kind="row",
        sources=(_TOPIC,),
        accounting={"departed": {"read": 10, "written": 10}},
        fingerprint="9f2c0011aabbccdd",
        seen_changed={"cluster\tdepartures\t1": [(0, 4)]},
    ),
    "exploded": LedgerEntry(
        job="lines",
        generation=1,
        batch=3,
        table="silver.lines",
        kind="row",
        sources=(_TOPIC,),
        accounting={
            "departed": {
                "read": 10,
                "exploded": 7,
                "written": 19,
                "filtered": 2,
                "duplicate": 0,
                "quarantined": 1,
            }
        },
        fingerprint="9f2c0011aabbccdd",
        partitions={"departures": {0: {"read": 6, "exploded": 4, "written": 9}}},
    ),
    "checks": LedgerEntry(
        job="departures",
        generation=1,
        batch=19,
        table="silver.departures",
        kind="row",
        sources=(_TOPIC,),
        accounting={"departed": {"read": 10, "written": 8, "quarantined": 2}},
        fingerprint="9f2c0011aabbccdd",
        extra={
            Extra.CHECKS: [
                CheckResult(
                    check="has_carrier",
                    outcome="within",
                    action="quarantine",
                    judged=10,
                    failed=2,
                    sample=("departures:0:3", "departures:1:0"),
                ).to_json(),
                CheckResult(
                    check="volume",
                    outcome="broken",
                    action="warn",
                    judged=8,
                    observed="8 rows, and the median of the last 20 batches has 40",
                    values={"rows": 8.0},
                ).to_json(),
            ]
        },
    ),
    "least": LedgerEntry(job="alone", generation=1, batch=0, table="silver.alone", kind="side"),
    "expiry": LedgerEntry(
        job="clean",
        generation=1,
        batch=-1,
        table="silver.clicks",
        kind="expiry",
        accounting={"silver.clicks": {"expired": 3}},
        fingerprint="9f2c",
        extra={
            Extra.EXPIRED_BEFORE_US: 1_357_084_800_000_000,
            Extra.EXPIRED_BY: "at",
            Extra.EXPIRED: [[1, 0, 2], [1, 1, 1]],
        },
    ),
    "generation": LedgerEntry(
        job="pairs",
        generation=3,
        batch=-1,
        table="gold.pairs",
        kind="generation",
        extra={
            "action": "renew",
            "starts": {},
            "lost": {},
            "after": {"generation": 2, "batch": 18},
            **WarmUp(
                watermark_ms=1357034400000,
                sources=(_TOPIC, _TABLE),
                input_watermarks_ms={"departed": 1357034400000, "flights": None},
            ).ledger_extra(),
        },
    ),
}

_INPUT = InputFacts(kind="topic", ids={"departures": "id-1", "others": None}, watermark=None, columns={})
_FACTS = {
    "join": RunFacts(
        spark="4.1.3",
        kind="join",
        targets={"gold.pairs": "table-1", "gold.others": None},
        keys=("carrier", "hour"),
        mode="append",
        inputs={
            "departed": _INPUT,
            "flights": InputFacts(
                kind="table", ids={"silver.flights": "x"}, watermark="1 hour", columns={"n": "int"}
            ),
        },
        operator="IntervalJoin()",
        state=("Join a", "Join b"),
        columns={"carrier": "string", "n": "decimal(10,2)"},
        shuffle_partitions="2",
        state_store="x.RocksDB",
        dedup="ByOffset()",
        fingerprint="9f2c0011aabbccdd",
    )
}

_REPAIR: dict[str, Any] = {
    "id": "delays-1f0c92ab",
    "job": "delays",
    "reference": "jobs/flights.py:delays",
    "kind": "window",
    "target": "gold.delays",
    "quarantine": "gold.delays__quarantine",
    "input_name": "departed",
    "keys": ("carrier", "window_start"),
    "columns": ("carrier", "window_start", "departures"),
    "fingerprint": "9f2c0011aabbccdd",
    "asked": {"timestamps": ["2013-01-01T10:00:00Z", "2013-01-01T12:00:00Z"]},
    "ranges": _RANGES,
    "windows": (),
    "rows": 10,
    "chunks": (),
    "base_version": 7,
    "generation": 2,
    "batch": 18,
    "pinned": None,
    "notes": (),
    "created_at": "2013-02-01T00:00:00Z",
}
_PLANS = {
    "windows": BackfillPlan(
        **_REPAIR
        | {
            "windows": ((_HOUR, _HOUR + 7_200_000_000),),
            "chunks": (
                Chunk(number=0, rows=6, span=(_HOUR, _HOUR + 3_600_000_001)),
                Chunk(number=1, rows=4, span=(_HOUR, _HOUR + 1), moments=(_HOUR - 1, _HOUR + 2)),
            ),
            "pinned": PinnedInput(table="silver.flights", version=5, until=(2, 17), was_rewritten=True),
            "notes": ("a note",),
        },
        closed_until_us=_HOUR + 5,
        open=(_HOUR, _HOUR + 3_600_000_000),
        feeds=("daily", "weekly"),
        topic_ids={"departures": "id-1"},
        failing={("departures", 0, 5): "it raises", ("departures", 1, 2): "it raises, too"},
    ),
    "rows": BackfillPlan(
        **_REPAIR
        | {
            "kind": "row",
            "chunks": (
                Chunk(number=0, rows=10, batches=(LiveBatchId(generation=2, batch=17, ranges=_RANGES),)),
            ),
        },
        lookups={"airports": LookupVersion(version=7, table_id="table-2")},
        further={"silver.others": FurtherTable(columns=("n",), base_version=3)},
        since={"departures": 2},
    ),
    "lines": BackfillPlan(
        **_REPAIR | {"kind": "row", "keys": ("_topic", "_partition", "_offset")},
        further={
            "silver.lines": FurtherTable(
                columns=("sku",), base_version=3, keys=("_topic", "_partition", "_offset", "_row")
            )
        },
    ),
    "join": BackfillPlan(
        **_REPAIR
        | {
            "kind": "join",
            "chunks": (
                Chunk(number=0, rows=6, lefts={"departures": {0: (3, 9)}}),
                Chunk(number=1, rows=4, lefts={"departures": {1: (0, 4)}}, rights={"arrivals": {0: (1, 2)}}),
            ),
            "pinned": PinnedInput(table="silver.flights", version=5, until=(2, 17), was_rewritten=False),
        },
        partner=PinnedInput(table="silver.arrivals", version=4, until=(1, 3), was_rewritten=False),
        partner_name="arrived",
    ),
}
_WHOLE: dict[str, Any] = {
    "id": "delays-1f0c92ab",
    "job": "delays",
    "reference": "jobs/flights.py:delays",
    "kind": "window",
    "target": "gold.delays",
    "sides": ("gold.delays__quarantine", "gold.delays__late"),
    "further": ("gold.others",),
    "keys": ("carrier", "window_start"),
    "columns": ("carrier", "window_start", "departures"),
    "fingerprint": "9f2c0011aabbccdd",
    "base_generation": 2,
    "base_version": 7,
    "rows": 10,
    "topic_ids": {"departures": "id-1"},
    "feeds": ("daily",),
    "notes": ("a note",),
    "created_at": "2013-02-01T00:00:00Z",
}

_DIFF = Diff(
    keys=("carrier",),
    added=1,
    removed=2,
    changed=3,
    unchanged=4,
    samples={"added": [{"key": {"carrier": "UA"}, "after": {"carrier": "UA", "n": 1}}]},
    digest="00112233aabbccdd",
)
_VERDICTS = {
    "tables": Verdict(
        backfill="delays-1f0c92ab",
        passed=False,
        findings=(
            Finding(name="accounting", ok=True, detail="10 read"),
            Finding(name="recomputed", ok=False, detail="1 row differs"),
        ),
        accounting={"read": 10, "folded": 9, "quarantined": 1},
        diff=_DIFF,
        notes=("a note",),
        shadow_version=4,
        verified_at="2013-02-01T00:00:01Z",
        table_version=8,
        beside={
            "gold.others": Change(diff=_DIFF, table_version=3, accounting={"written": 1, "before": 0}),
            "gold.more": Change(diff=_DIFF, table_version=-1),
        },
        ranges=_RANGES,
    ),
    "least": Verdict(
        backfill="delays-1f0c92ab",
        passed=True,
        findings=(),
        accounting={},
        diff=Diff(keys=(), added=0, removed=0, changed=0, unchanged=0, samples={}, digest="00"),
        notes=(),
        shadow_version=0,
        verified_at="2013-02-01T00:00:01Z",
    ),
    "checks": Verdict(
        backfill="delays-1f0c92ab",
        passed=True,
        findings=(),
        accounting={"read": 10, "written": 9, "quarantined": 1},
        diff=Diff(keys=(), added=0, removed=0, changed=0, unchanged=0, samples={}, digest="00"),
        notes=(),
        shadow_version=0,
        verified_at="2013-02-01T00:00:01Z",
        checks=(
            CheckResult(check="has_carrier", outcome="within", action="quarantine", judged=10, failed=1),
            CheckResult(check="delay_sane", outcome="held", action="fail", judged=9),
        ),
    ),
}
_PROOF = {"rows_outside": 7, "outside_unchanged": True, "inside_is_the_shadow": True}
_SWAP: dict[str, Any] = {
    "backfill": "delays-1f0c92ab",
    "target": "gold.delays",
    "version": 9,
    "replaced_version": 8,
}

EXAMPLES: Mapping[type[Record], Mapping[str, Record]] = {
    LedgerEntry: _ENTRIES,
    RunFacts: _FACTS,
    BackfillPlan: _PLANS,
    RebuildPlan: {"all": RebuildPlan(**_WHOLE, behind=("flights-22aa33bb",))},
    RewindPlan: {
        "all": RewindPlan(
            **_WHOLE, version=5, batch=12, origin=1, ranges=_RANGES, versions={"gold.others": 3}
        )
    },
    Progress: {
        "done": Progress(
            state="done",
            chunks_done=2,
            chunks=3,
            rows_read=9,
            rows=10,
            accounting={"read": 9, "folded": 9},
            rows_per_second=12.5,
            updated_at="2013-02-01T00:00:00Z",
        )
    },
    Verdict: _VERDICTS,
    SwapResult: {
        "repair": SwapResult(
            **_SWAP,
            accounting={"folded": 9, "before": 8},
            proof=_PROOF,
            ranges=_RANGES,
            feeds=("daily",),
            open=(_HOUR, _HOUR + 3_600_000_000),
            beside={
                "gold.others": TableSwap(
                    version=4, replaced_version=3, accounting={"written": 1}, proof=_PROOF
                )
            },
        ),
        "rebuild": SwapResult(
            **_SWAP,
            generation=3,
            feeds=("daily",),
            proof={"rows": 10, "files": 2, "inside_is_the_shadow": True},
            held_s=0.125,
        ),
        "rewind": SwapResult(**_SWAP, generation=3, feeds=(), held_s=None),
    },
    RollbackResult: {
        "repair": RollbackResult(**_SWAP, accounting={"folded": 8, "before": 9}),
        "rebuild": RollbackResult(**_SWAP, generation=4, feeds=("daily",)),
    },
    KeptFiles: {
        "some": KeptFiles(
            files=("a.parquet",), counts={"a.parquet": (1, 3), "b.parquet": (2, 2)}, proved=True
        )
    },
    RejectedRows: {"some": RejectedRows(offsets=Offsets.at([("departures", 0, 4), ("departures", 1, 7)]))},
    FailingRows: {"some": FailingRows(rows={"departed": {("departures", 0, 5): "it raises"}, "format": {}})},
    AlarmState: {
        "some": AlarmState(
            broken=(
                Broken(table="silver.departures", check="set", by="batch", since="2013-01-01T12:01:00+00:00"),
                Broken(table="gold.delays", check="volume", by="suite", since="2013-01-01T12:02:00+00:00"),
            )
        ),
        "none": AlarmState(),
    },
    BegunLoad: {
        "some": BegunLoad(
            table="5d0c1f0e",
            code="9f2c0011aabbccdd",
            topics={"departures": "Kq3z", "eu:arrivals": None},
            batch=3,
            ranges=_RANGES,
        )
    },
    KnownColumns: {
        "some": KnownColumns(
            tables={
                "gold.delays": {
                    "carrier": (("flights", "carrier", "IDENTITY"),),
                    "average": (("flights", "delay", "AGGREGATION"), ("flights", "unit", "AGGREGATION")),
                    "": (("flights", "carrier", "GROUP_BY"),),
                }
            }
        )
    },
    KeptAnswer: {
        "some": KeptAnswer(
            registry="http://127.0.0.1:8081",
            question="subjects/orders-value/versions/latest",
            at="2013-01-01T10:00:00+00:00",
            answer={"subject": "orders-value", "version": 2, "id": 2, "schema": '"string"'},
        )
    },
    SentLineage: {"some": SentLineage(sent={"http://127.0.0.1:5000": {"silver.departures": 17}})},
    SuiteResult: {
        "some": SuiteResult(
            table="silver.departures",
            version=3,
            passed=False,
            rows=3,
            ran_at="2013-01-01T10:00:00+00:00",
            seconds=0.5,
            outcomes=(
                Outcome(
                    name="b",
                    text="b: every row: x > 1",
                    severity="critical",
                    passed=False,
                    observed="1 of 3 rows unexpected",
                    unexpected_count=1,
                    unexpected_sample=('{"x":1}',),
                ),
                Outcome(name="c", text="c", severity="warning", passed=False, observed="", error="no column"),
            ),
            skipped=(Skipped(name="d", reason="because"),),
            folder=Path("home/quality/silver.departures/v3"),
        )
    },
}
