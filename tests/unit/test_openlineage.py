"""Events of OpenLineage, made of ledger entries, and how they are sent: to a file, and to a receiver over HTTP.

The rules of the specification stand here as far as the events use them, in our own words. Where the environment's
HEADWATER_OPENLINEAGE_SPEC names the folder `spec` of OpenLineage's repository, its own schemas are used as well.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
import referencing
from deltalake import CommitProperties, write_deltalake

from headwater.cli import main
from headwater.config.settings import LineageSettings
from headwater.errors import UsageError, UserError
from headwater.running import lineage
from headwater.running.lineage import HttpDestination, LineageSender, LineageThread, destination_of
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.base.made_of import CHOSEN
from headwater_streams.ledger.known_columns import known_columns, remember_columns
from headwater_streams.ledger.log import Commit
from headwater_streams.ledger.openlineage import Assertion, Event, Place, events_of, runs_of
from headwater_streams.ledger.sent_lineage import untold_runs
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.storage.files import locked
from headwater_streams.storage.home import Home

SPEC = os.environ.get("HEADWATER_OPENLINEAGE_SPEC", "")
MINUTE = 60_000
TABLE = "gold.delays"
PLACE = Place(
    namespace="demo", version="1.2", tables="/data/tables", brokers={"": "host:9092", "eu": "eu:9093"}
)
_FACETS = {"type": "object", "additionalProperties": {"$ref": "#/$defs/facet"}}
_DATA = {
    "type": "object",
    "required": ["namespace", "name"],
    "properties": {
        "namespace": {"type": "string"},
        "name": {"type": "string"},
        "facets": _FACETS,
        "inputFacets": _FACETS,
        "outputFacets": _FACETS,
    },
}
RULES = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {
        "facet": {
            "type": "object",
            "required": ["_producer", "_schemaURL"],
            "properties": {key: {"type": "string", "format": "uri"} for key in ("_producer", "_schemaURL")},
        }
    },
    "type": "object",
    "required": ["eventType", "eventTime", "producer", "schemaURL", "run", "job"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "ABORT", "FAIL", "OTHER"]},
        "eventTime": {"type": "string", "format": "date-time"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {"runId": {"type": "string", "format": "uuid"}, "facets": _FACETS},
        },
        "job": _DATA,
        "inputs": {"type": "array", "items": _DATA},
        "outputs": {"type": "array", "items": _DATA},
    },
}


def entry(batch: int, start: int, end: int, *, quarantined: int = 0, **more: Any) -> LedgerEntry:
    read = end - start
    return LedgerEntry(
        job="delays",
        generation=1,
        batch=batch,
        table=TABLE,
        kind="row",
        sources=(SourceRange(input="flights", topic="flights", ranges={"flights": {0: (start, end)}}),),
        accounting={"flights": {"read": read, "written": read - quarantined, "quarantined": quarantined}},
        fingerprint="9f2c",
        **more,
    )


def commit(version: int, at_ms: int, told: LedgerEntry | None, rows: int = 1) -> Commit:
    return Commit(version, at_ms, "WRITE", rows, 0, True, told, ("part",))


def facets_in(value: Any) -> Iterator[Event]:
    if isinstance(value, dict):
        if "_schemaURL" in value:
            yield value
        for each in value.values():
            yield from facets_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from facets_in(each)


def check(events: list[Event]) -> None:
    """Checks events by the rules here, and by the specification's own schemas where they are at hand."""
    formats = jsonschema.FormatChecker()
    for event in events:
        jsonschema.Draft202012Validator(RULES, format_checker=formats).validate(event)
    if not SPEC:
        return
    paths = [Path(SPEC) / "OpenLineage.json", *(Path(SPEC) / "facets").glob("*.json")]
    schemas = {value["$id"]: value for path in paths for value in [json.loads(path.read_text())]}
    known = referencing.Registry().with_resources(
        (name, referencing.Resource.from_contents(value)) for name, value in schemas.items()
    )
    for event in events:
        checks = [(event["schemaURL"].partition("#")[0], event)]
        checks += [(each["_schemaURL"], each) for each in facets_in(event) if "://" in each["_schemaURL"]]
        for url, value in checks:
            assert url.partition("#")[0] in schemas, f"{url} is not the newest of its schema"
            jsonschema.Draft202012Validator({"$ref": url}, registry=known, format_checker=formats).validate(
                value
            )


def test_event_has_offsets_versions_rows_and_what_was_rejected() -> None:
    (run,) = runs_of(
        [commit(4, 61_000, entry(3, 0, 7)), commit(5, 65_000, entry(4, 7, 9, quarantined=1))], MINUTE
    )
    started, done = events = events_of(
        run,
        PLACE,
        schemas={TABLE: {"carrier": "string"}},
        columns={
            "carrier": [("flights", "carrier", "IDENTITY")],
            CHOSEN: [("flights", "delay", "FILTER"), ("flights", "delay", "GROUP_BY")],
        },
        assertions=[Assertion(name="has_carrier", success=False, severity="warn", column="carrier")],
        spark="4.2.0",
    )
    check(events)
    assert (started["eventType"], done["eventType"]) == ("START", "COMPLETE")
    engines = [event["run"]["facets"]["processing_engine"]["name"] for event in (started, done)]
    assert engines == ["spark", "spark"], "DataHub takes no event that does not say what ran it"
    assert started["run"]["runId"] == done["run"]["runId"]
    (read,), (written,) = done["inputs"], done["outputs"]
    assert (read["namespace"], read["name"]) == ("kafka://host:9092", "flights")
    assert read["inputFacets"]["headwater_offsets"]["offsets"] == {"flights": {"0": [0, 9]}}
    assert read["inputFacets"]["inputStatistics"]["rowCount"] == 9
    judged = {a["name"]: a["success"] for a in read["inputFacets"]["dataQualityAssertions"]["assertions"]}
    assert judged == {"no_row_rejected": False, "has_carrier": False}
    assert (written["namespace"], written["name"]) == ("file", "/data/tables/gold/delays")
    assert written["facets"]["version"]["datasetVersion"] == "5"
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert [*written["facets"]["columnLineage"]["fields"]] == ["carrier"]
    (made_of,) = written["facets"]["columnLineage"]["fields"]["carrier"]["inputFields"]
    assert (made_of["name"], made_of["field"]) == ("flights", "carrier")
    (chosen,) = written["facets"]["columnLineage"]["dataset"]
    assert chosen["field"] == "delay"
    assert {(each["type"], each["subtype"]) for each in chosen["transformations"]} == {
        ("INDIRECT", "FILTER"),
        ("INDIRECT", "GROUP_BY"),
    }
    assert made_of["transformations"] == [{"type": "DIRECT", "subtype": "IDENTITY"}]
    ledger = done["run"]["facets"]["headwater_ledger"]
    assert (ledger["batches"], ledger["versions"]) == ([3, 4], [4, 5])
    assert ledger["accounting"]["flights"] == {"read": 9, "written": 8, "quarantined": 1}


def test_event_has_what_the_checks_of_all_its_batches_came_to() -> None:
    def judged(failed: int, action: str) -> dict[str, Any]:
        check = {"check": "has_carrier", "outcome": "within" if failed else "held", "action": action}
        return {**check, "judged": 7, **({"failed": failed} if failed else {})}

    volume = {
        "check": "volume",
        "outcome": "broken",
        "action": "warn",
        "judged": 7,
        "observed": "7 rows, not 70",
    }
    batches = [
        entry(0, 0, 7, extra={"checks": [judged(0, "quarantine"), volume]}),
        entry(1, 7, 14, extra={"checks": [judged(2, "quarantine")]}),
    ]
    (run,) = runs_of([commit(1, 0, batches[0]), commit(2, 1, batches[1])], MINUTE)
    _, done = events = events_of(run, PLACE)
    check(events)
    assertions = done["inputs"][0]["inputFacets"]["dataQualityAssertions"]["assertions"]
    assert {each["name"]: (each["success"], each["severity"], each.get("actual")) for each in assertions} == {
        "no_row_rejected": (True, "error", None),
        "has_carrier": (False, "error", "2 of 14 rows fail it"),
        "volume": (False, "warn", "7 rows, not 70"),
    }


def test_event_of_a_job_that_looks_something_up_reads_that_table_too() -> None:
    read = {"table": "dim.carriers", "version": 7, "id": "x"}
    (run,) = runs_of([commit(1, 0, entry(0, 0, 7, extra={"lookups": {"carriers": read}}))], MINUTE)
    columns = {"name": [("carriers", "name", "IDENTITY")]}
    _, done = events = events_of(run, PLACE, columns=columns)
    check(events)
    assert [each["name"] for each in done["inputs"]] == ["flights", "/data/tables/dim/carriers"]
    assert done["inputs"][1]["facets"]["version"]["datasetVersion"] == "7"
    (made_of,) = done["outputs"][0]["facets"]["columnLineage"]["fields"]["name"]["inputFields"]
    assert made_of["name"] == "/data/tables/dim/carriers"


def test_event_of_a_table_that_was_read_has_its_last_version() -> None:
    source = SourceRange(input="rows", table="silver.rows", versions=(3, 6), ranges={"flights": {0: (0, 9)}})
    told = LedgerEntry(job="j", generation=1, batch=0, table=TABLE, kind="window", sources=(source,))
    (run,) = runs_of([commit(1, 0, told)], MINUTE)
    _, done = events = events_of(run, PLACE)
    check(events)
    assert done["inputs"][0]["name"] == "/data/tables/silver/rows"
    assert done["inputs"][0]["facets"]["version"]["datasetVersion"] == "5"


def test_event_of_a_topic_of_another_cluster_names_its_brokers() -> None:
    source = SourceRange(input="rows", topic="eu:orders", ranges={"eu:orders": {0: (0, 9)}})
    told = LedgerEntry(job="j", generation=1, batch=0, table=TABLE, kind="row", sources=(source,))
    (run,) = runs_of([commit(1, 0, told)], MINUTE)
    (read,) = events_of(run, PLACE)[1]["inputs"]
    assert (read["namespace"], read["name"]) == ("kafka://eu:9093", "orders")


def test_runs_are_the_periods_of_each_generation() -> None:
    side = LedgerEntry(job="delays", generation=1, batch=0, table=TABLE, kind="side")
    commits = [
        commit(0, 0, None),
        commit(1, 1_000, entry(0, 0, 2)),
        commit(2, 59_999, entry(1, 2, 3)),
        commit(3, 60_000, entry(2, 3, 5)),
        commit(4, 60_001, side),
    ]
    runs = [*runs_of(commits, MINUTE)]
    assert [[c.version for c in run.commits] for run in runs] == [[1, 2], [3]]
    assert len({run.run_id for run in runs}) == 2
    assert [run.run_id for run in runs_of(commits[:3], MINUTE)] == [runs[0].run_id], (
        "told again, it is the same"
    )


def test_runs_come_in_the_order_of_their_last_commits_whoever_made_them() -> None:
    """What is remembered as told is the last version of a run: all commits before it are told by then."""
    after = [replace(entry(batch, batch, batch + 1), job="a", generation=2) for batch in range(2)]
    before = replace(entry(9, 9, 10), job="z")
    of_both = [commit(1, 1_000, after[0]), commit(2, 2_000, before), commit(3, 3_000, after[1])]
    later = [commit(4, 61_000, before), commit(5, 59_000, after[0]), commit(6, 120_000, after[1])]
    runs = [*runs_of([*of_both, *later], MINUTE)]
    assert [[c.version for c in run.commits] for run in runs] == [[2], [1, 3], [4], [5], [6]]
    assert runs[3].start_ms == MINUTE, "of the period of those before it, as its clock was put back"


def test_untold_runs_are_whole_and_end_at_the_first_that_is_not_over(home: Home) -> None:
    for batch in range(1, 6):
        write(home, batch, 3 * batch, 3 * batch + 3)
    table = home.table(TABLE)
    (run,) = untold_runs(table, 3, 2**50, None)
    assert [each.version for each in run.commits] == [*range(6)], "those of its period that were told, too"
    assert [*untold_runs(table, 5, 2**50, None)] == []
    apart = [*untold_runs(table, 3, 1, None)]
    assert [each.version for run in apart for each in run.commits] == [4, 5]
    assert [*untold_runs(table, 3, 1, apart[0].start_ms)] == []


HANGS, GOES = 1, 2
"""Of a receiver that does not answer within a client's patience, or ends the connection."""


class Receiver:
    """A receiver that keeps what it is sent, and answers with a status."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.headers: list[Mapping[str, str]] = []
        self.paths: list[str] = []
        self.status = 201
        self.fails_at: Callable[[Event], bool] = lambda _: False
        self.failure = 500
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.headers.append(dict(self.headers))
                receiver.paths.append(self.path)
                status = receiver.failure if receiver.fails_at(event) else receiver.status
                if status == HANGS:
                    time.sleep(0.4)
                if status in (HANGS, GOES):
                    return
                if status < 300:
                    receiver.events.append(event)
                self.send_response(status)
                if receiver.status // 100 == 3:
                    self.send_header("Location", "https://elsewhere/x")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    started = Receiver()
    yield started
    started.server.shutdown()
    started.server.server_close()


def write(home: Home, batch: int, start: int, end: int, table: str = TABLE) -> None:
    rows = pa.table({"carrier": ["UA"] * (end - start), "_offset": list(range(start, end))})
    of_it = replace(entry(batch, start, end), table=table)
    told = CommitProperties(custom_metadata={"userMetadata": of_it.to_json()})
    write_deltalake(str(home.table(table)), rows, mode="append", commit_properties=told)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    write(made, 0, 0, 3)
    return made


def sender(home: Home, to: str, **more: Any) -> LineageSender:
    return LineageSender(home.root, LineageSettings(to=to), {"": "host:9092"}, **more)


def test_lineage_is_sent_once_and_goes_on_where_it_was(home: Home, receiver: Receiver) -> None:
    assert sender(home, receiver.url).send(finished=False) == 1
    assert sender(home, receiver.url).send(finished=False) == 0
    check(receiver.events)
    assert receiver.paths == ["/api/v1/lineage"] * 2
    write(home, 1, 3, 5)
    assert sender(home, receiver.url).send(finished=False) == 1
    last = receiver.events[-1]
    assert last["inputs"][0]["inputFacets"]["headwater_offsets"]["offsets"]["flights"]["0"][1] == 5


def test_lineage_of_a_period_that_is_not_over_waits(home: Home, receiver: Receiver) -> None:
    assert sender(home, receiver.url, now_ms=lambda: 0).send(finished=True) == 0
    assert sender(home, receiver.url, now_ms=lambda: 2**50).send(finished=True) == 1


def test_lineage_of_a_receiver_that_is_away_is_sent_when_it_is_back(home: Home, receiver: Receiver) -> None:
    receiver.status = 503
    with pytest.raises(UserError, match="refused an event with 503"):
        sender(home, receiver.url).send(finished=False)
    receiver.status = 201
    assert sender(home, receiver.url).send(finished=False) == 1


def test_lineage_of_a_receiver_that_refuses_the_key_names_the_setting(receiver: Receiver) -> None:
    receiver.status = 401
    with pytest.raises(UserError, match=r"lineage\.api_key is to be what it asks for"):
        HttpDestination(receiver.url, "secret", 5).send([{}])
    assert receiver.headers[0]["Authorization"] == "Bearer secret"


def test_lineage_that_a_receiver_takes_for_wrong_is_left_out_and_holds_up_nothing(
    home: Home, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    receiver.status = 422
    assert main(["lineage", "--to", receiver.url, "--home", str(home.root)]) == 1
    said = capsys.readouterr().err
    assert "gold.delays, up to version 0, is left out: the receiver" in said
    assert "refused an event with 422" in said
    receiver.status = 201
    write(home, 1, 3, 5)
    assert sender(home, receiver.url).send(finished=False) == 1


def version_in(event: Event) -> int:
    """Of the table that an event tells of; -1 for one that tells of the beginning."""
    return int(event["outputs"][0]["facets"]["version"]["datasetVersion"]) if event["outputs"] else -1


def table_of(event: Event) -> str:
    return str(event["outputs"][0]["name"])


def versions_in(receiver: Receiver) -> list[int]:
    """What a receiver has of a table, each once, in the order in which it came last."""
    came = [version_in(each) for each in receiver.events]
    return sorted({*came} - {-1}, key=lambda each: len(came) - came[::-1].index(each))


@pytest.fixture
def each_commit(
    home: Home, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> Callable[[], LineageSender]:
    """Senders by which each commit is a run of its own, and which try again at once."""
    monkeypatch.setattr(lineage, "_TRIES_S", (0.0,) * len(lineage._TRIES_S))

    def new() -> LineageSender:
        made = LineageSender(
            home.root, LineageSettings(to=receiver.url, timeout_s=Decimal("0.2")), {"": "h:1"}
        )
        made._place = replace(PLACE, period_ms=1)
        return made

    return new


@pytest.mark.parametrize("failure", [500, 503, HANGS, GOES])
def test_lineage_at_which_a_receiver_fails_is_left_out_once_it_takes_others(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender], failure: int
) -> None:
    receiver.fails_at, receiver.failure = lambda event: version_in(event) == 0, failure
    with pytest.raises(UserError, match=str(failure) if failure > GOES else "answers"):
        each_commit().send(finished=False)  # there is no other yet, so the receiver may be why
    write(home, 1, 3, 5)
    write(home, 2, 5, 6)
    some = each_commit()  # a new process

    assert some.send(finished=False) == 3
    assert versions_in(receiver) == [1, 2]
    (said,) = some.refused
    assert said.startswith("gold.delays, up to version 0, is left out: ")
    assert said.endswith("6 times, and took others meanwhile")
    assert each_commit().send(finished=False) == 0


def test_lineage_at_which_a_receiver_fails_holds_up_no_other_table(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender]
) -> None:
    for table in ("gold.a", "gold.z"):
        write(home, 0, 0, 3, table)
    receiver.fails_at = lambda event: version_in(event) == 0 and not table_of(event).endswith("z")
    some = each_commit()

    assert some.send(finished=False) == 3
    assert [each.split(",")[0] for each in some.refused] == ["gold.a", "gold.delays"]
    assert {table_of(each) for each in receiver.events if each["outputs"]} == {"/data/tables/gold/z"}


def test_lineage_at_which_a_receiver_failed_for_a_time_is_told_in_order(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender]
) -> None:
    for batch in range(1, 4):
        write(home, batch, 3 * batch, 3 * batch + 3)
    failures = iter([True] * 4)
    receiver.fails_at = lambda event: version_in(event) == 0 and next(failures, False)
    some = each_commit()

    assert some.send(finished=False) == 4
    assert (versions_in(receiver), some.refused) == ([0, 1, 2, 3], [])


def test_lineage_of_a_receiver_that_fails_at_all_waits_however_long(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender]
) -> None:
    receiver.fails_at = lambda _: True
    some = each_commit()
    for minute in range(1, 61):
        if minute % 10 == 0:
            write(home, minute // 10, minute, minute + 1)
        for _ in range(12):
            with pytest.raises(UserError, match="refused an event with 500"):
                some.send(finished=False)
    sent_a_pass = len(receiver.paths) / 720
    receiver.fails_at = lambda event: version_in(event) == 2  # it is well, and there is a bad one, too

    assert each_commit().send(finished=False) == 7
    assert versions_in(receiver) == [0, 1, 3, 4, 5, 6]
    assert sent_a_pass < 4, "it is not plagued while it is not well"


def test_lineage_of_many_events_in_a_row_at_which_a_receiver_fails_is_left_out(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender]
) -> None:
    for batch in range(1, 6):
        write(home, batch, 3 * batch, 3 * batch + 3)
    receiver.fails_at = lambda event: version_in(event) in (0, 1, 2)
    some = each_commit()

    assert some.send(finished=False) == 6
    assert (versions_in(receiver), len(some.refused)) == ([3, 4, 5], 3)


def test_lineage_of_a_receiver_that_goes_away_while_an_event_is_tried_again_waits(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender]
) -> None:
    write(home, 1, 3, 5)
    taken = iter([True])
    receiver.fails_at = lambda event: (
        version_in(event) == 0 or (version_in(event) == 1 and not next(taken, False))
    )
    some = each_commit()
    with pytest.raises(UserError, match="refused an event with 500"):
        some.send(finished=False)
    receiver.fails_at = lambda _: False

    assert (some.send(finished=False), some.refused) == (2, [])
    assert versions_in(receiver) == [0, 1]


def test_lineage_that_is_tried_again_does_not_hold_up_the_end_of_jobs(
    home: Home, receiver: Receiver, each_commit: Callable[[], LineageSender], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, 1, 3, 5)
    receiver.fails_at = lambda event: version_in(event) == 0
    some = each_commit()
    monkeypatch.setattr(lineage, "_TRIES_S", (3600.0,))
    until_s = time.monotonic() + 0.5

    assert some.send(finished=False, is_over=lambda: time.monotonic() > until_s) == 0
    assert time.monotonic() < until_s + 5
    assert some.refused == []


def test_lineage_of_a_table_that_was_made_again_is_new(home: Home, receiver: Receiver) -> None:
    write(home, 1, 3, 5)
    assert sender(home, receiver.url).send(finished=False) == 1
    shutil.rmtree(home.table(TABLE))
    write(home, 0, 0, 3)
    assert sender(home, receiver.url).send(finished=False) == 1


def test_lineage_of_nobody_who_answers_is_one_sentence() -> None:
    with pytest.raises(UserError, match=r"no receiver of lineage answers at http://127\.0\.0\.1:9/x"):
        HttpDestination("http://127.0.0.1:9/x", "", 5).send([{}])


def test_lineage_beside_jobs_says_once_that_a_receiver_is_away_and_once_that_it_is_back(
    home: Home, receiver: Receiver
) -> None:
    said: list[str] = []
    receiver.status = 503
    waiting = threading.Event()
    with LineageThread(sender(home, receiver.url, now_ms=lambda: 2**50), None, said.append, tick_s=0.01):
        for _ in range(500):
            if len(receiver.paths) > 2:
                break
            waiting.wait(0.01)
        receiver.status = 201
    assert len(said) == 2
    assert said[0].endswith("what was not told is told later")
    assert said[1].endswith("was told what it missed")
    assert len(receiver.events) == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_lineage_of_a_receiver_that_is_elsewhere_names_its_address(receiver: Receiver, status: int) -> None:
    """To follow it would turn the event into a question, which any server answers with 200."""
    receiver.status = status
    with pytest.raises(UserError, match=r"it is at https://elsewhere/x, which lineage\.to is to name"):
        HttpDestination(receiver.url, "", 5).send([{}])


def test_lineage_of_a_table_that_cannot_be_read_holds_up_no_other(home: Home, receiver: Receiver) -> None:
    log = home.table("a.first") / "_delta_log"
    log.mkdir(parents=True)
    (log / "00000000000000000000.json").write_text("{")
    with pytest.raises(DamagedFileError, match="first"):
        sender(home, receiver.url).send(finished=False)
    assert [event["eventType"] for event in receiver.events] == ["START", "COMPLETE"]


def test_lineage_that_another_process_tells_is_left_to_it(home: Home, receiver: Receiver) -> None:
    with locked(home.root / "lineage.lock"):
        assert sender(home, receiver.url).send(finished=False, waits=False) == 0
    assert sender(home, receiver.url).send(finished=False, waits=False) == 1


def test_lineage_has_what_columns_are_made_of_by_the_jobs_last_start(home: Home, receiver: Receiver) -> None:
    made_of = {"carrier": (("flights", "carrier", "IDENTITY"),)}
    remember_columns(home, {TABLE: made_of})
    remember_columns(home, {"silver.other": {}})
    sender(home, receiver.url).send(finished=False)
    facets = receiver.events[1]["outputs"][0]["facets"]
    assert [*facets["columnLineage"]["fields"]] == ["carrier"]
    (home.root / "columns.json").write_text("{")
    with pytest.raises(DamagedFileError, match="remove it: it is written when jobs start"):
        sender(home, receiver.url).send(finished=False)
    remember_columns(home, {TABLE: made_of})
    assert known_columns(home) == {TABLE: made_of}


def test_lineage_beside_jobs_is_said_and_no_stack_trace_whatever_it_meets(home: Home) -> None:
    class Faulty:
        def send(self, events: object) -> None:
            raise KeyError("surprise")

    said: list[str] = []
    with LineageThread(sender(home, "http://x/y", destination=Faulty()), None, said.append, tick_s=60):
        pass
    assert said == ["lineage is not told (KeyError: 'surprise'); what was not told is told later"]


def test_lineage_of_a_long_history_does_not_hold_up_the_end_of_jobs(home: Home, receiver: Receiver) -> None:
    write(home, 1, 3, 5)
    asked = iter([False, True])
    some = LineageSender(home.root, LineageSettings(to=receiver.url, period_s=1), {"": "host:9092"})
    runs = [*untold_runs(home.table(TABLE), -1, 1, None)]
    assert len(runs) == 2, "of a period of a millisecond, each commit is one"
    some._place = replace(PLACE, period_ms=1)
    assert some.send(finished=False, is_over=lambda: next(asked)) == 1
    assert some.send(finished=False) == 1, "the other one is told next time"


def test_lineage_into_a_file_is_an_event_a_line(home: Home, tmp_path: Path) -> None:
    to = tmp_path / "lineage.jsonl"
    assert main(["lineage", "--to", str(to), "--home", str(home.root)]) == 0
    events = [json.loads(line) for line in to.read_text().splitlines()]
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    check(events)


def test_lineage_behind_a_line_that_was_cut_has_lines_of_its_own(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lineage.jsonl").write_text('{"eventType": "ST')
    assert sender(home, "lineage.jsonl").send(finished=False) == 1
    cut, *lines = Path("lineage.jsonl").read_text().splitlines()
    assert cut == '{"eventType": "ST'
    check([json.loads(line) for line in lines])
    assert sender(home, str(tmp_path / "lineage.jsonl")).send(finished=False) == 0, "it is the same file"


@pytest.mark.parametrize(
    "to",
    [
        "ftp://host/x",
        "/nowhere/at/all/x.jsonl",
        "http://",
        "http://host:port/x",
        "http://[::1",
        "https://me:secret@host",
    ],
)
def test_lineage_that_can_go_nowhere_is_a_usage_error(to: str) -> None:
    with pytest.raises(UsageError, match=r"lineage\.to"):
        destination_of(LineageSettings(to=to))


def test_lineage_is_off_by_default(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lineage", "--home", str(home.root)]) == 2
    assert "the settings have no lineage.to" in capsys.readouterr().err


def test_lineage_whose_place_is_damaged_says_what_to_do(home: Home, tmp_path: Path) -> None:
    to = str(tmp_path / "lineage.jsonl")
    (home.root / "lineage.json").write_text("{")
    with pytest.raises(DamagedFileError, match="remove it: all is told again, under the same ids"):
        sender(home, to).send(finished=False)
