"""Records that are kept on disk: their golden files, keys and versions that are not known, and what older ones lack."""

import ast
import importlib
import inspect
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import headwater_streams
from damaged_files import DAMAGES
from headwater_streams.backfill.progress import Progress
from headwater_streams.backfill.repair.spec import BackfillPlan
from headwater_streams.backfill.results import RollbackResult, SwapResult
from headwater_streams.backfill.status import status
from headwater_streams.backfill.store import BackfillFolder
from headwater_streams.backfill.values import FolderRecord
from headwater_streams.backfill.verdict import Verdict
from headwater_streams.base.errors import StreamsError
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.base.record import NewerRecordError, Part, Record
from headwater_streams.ledger.log import commits
from headwater_streams.quality.check_result import CheckResult
from headwater_streams.quality.result import SuiteResult, load_result
from headwater_streams.runtime.stages.failing_rows import FailingRows, keep_failing, known_failing
from headwater_streams.runtime.warm_up import WarmUp
from headwater_streams.spark.run_facts import RunFacts, facts_of_last_run
from headwater_streams.storage.damage import DamagedFileError, NewerFileError
from headwater_streams.storage.home import Home
from headwater_streams.storage.records import write_record
from record_examples import EXAMPLES

GOLDEN = Path(__file__).parent / "golden" / "records"
EACH = [(record, name) for record, named in EXAMPLES.items() for name in named]
NAMES = [f"{record.__name__}.{name}" for record, name in EACH]
REMEDY = "; a newer Headwater wrote it: update this one"


def to_json(example: Any) -> dict[str, Any]:
    """As it is stored; an entry is a text."""
    told = example.to_json()
    found: dict[str, Any] = json.loads(told if isinstance(told, str) else json.dumps(told))
    return found


def from_json(record: Any, value: dict[str, Any]) -> Any:
    return record.from_json(json.dumps(value) if record is LedgerEntry else value)


def golden(record: type[Record], name: str) -> dict[str, Any]:
    path = GOLDEN / f"{record.__name__}.{name}.json"
    if not path.exists():
        told = json.dumps(to_json(EXAMPLES[record][name]), indent=1)
        pytest.fail(f"{path} is not there; a new record's example is stored once, as it is written:\n{told}")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def modules() -> Iterator[Any]:
    """Those that define a record or a part; the others are not loaded for it."""
    root = Path(headwater_streams.__path__[0])
    classes: list[tuple[str, str, set[str]]] = []
    for path in sorted(root.rglob("*.py")):
        module = ".".join(("headwater_streams", *path.relative_to(root).with_suffix("").parts))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                classes.append((module, node.name, {ast.unparse(base) for base in node.bases}))
    known = {"Part"}
    while new := {name for _, name, bases in classes if bases & known} - known:
        known |= new
    for module in sorted({module for module, _, bases in classes if bases & known}):
        yield importlib.import_module(module.removesuffix(".__init__"))


def subclasses(of: type[Part]) -> set[type[Part]]:
    found = set(of.__subclasses__())
    return found | {each for one in found for each in subclasses(one)}


def stored_classes() -> set[type[Part]]:
    """All records and parts; `slots=True` makes a class twice, of which the module has the second."""
    return {
        each for module in modules() for each in vars(module).values() if inspect.isclass(each)
    } & subclasses(Part)


@pytest.mark.parametrize(("record", "name"), EACH, ids=NAMES)
def test_golden_file_is_read_as_what_was_written_and_written_again_the_same(
    record: type[Record], name: str
) -> None:
    example = EXAMPLES[record][name]
    assert from_json(record, golden(record, name)) == example
    assert to_json(example) == golden(record, name)


def test_every_record_has_examples_and_every_golden_file_has_one() -> None:
    """The others are what records are made of, or have in common."""
    abstract = {"FolderRecord", "WholePlan"}
    records = {each for each in stored_classes() if issubclass(each, Record) and each is not Record}
    assert {each.__name__ for each in records} - abstract == {each.__name__ for each in EXAMPLES}
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(NAMES)


def test_every_record_and_part_is_a_frozen_dataclass_named_by_keyword_with_one_way_in_and_out() -> None:
    for each in stored_classes() - {Record, FolderRecord}:
        assert is_dataclass(each), each
        assert each.__dataclass_params__.frozen, each  # type: ignore[attr-defined]
        parameters = [*inspect.signature(each).parameters.values()]
        assert all(one.kind is inspect.Parameter.KEYWORD_ONLY for one in parameters), each
        assert callable(getattr(each, "to_json", None)), each
        assert callable(getattr(each, "from_json", None)), each
        assert each.WHAT.split()[0] in ("a", "an", "the", "what"), each


def test_json_files_are_written_by_records_alone() -> None:
    """A new file of a home is a record, with examples: `write_json` has one caller."""
    root = Path(headwater_streams.__path__[0])
    callers = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", getattr(node.func, "attr", "")) == "write_json"
    }
    assert callers == {"storage/records.py"}


PARTS: dict[str, list[tuple[str | int, ...]]] = {
    "LedgerEntry.row": [(), ("sources", 0)],
    "RunFacts.join": [(), ("inputs", "flights")],
    "BackfillPlan.windows": [(), ("chunks", 0), ("input",)],
    "BackfillPlan.rows": [("chunks", 0, "batches", 0), ("lookups", "airports"), ("further", 0)],
    "BackfillPlan.join": [("chunks", 1), ("partner",)],
    "RebuildPlan.all": [()],
    "RewindPlan.all": [()],
    "Progress.done": [()],
    "Verdict.tables": [(), ("findings", 0), ("diff",), ("beside", "gold.others")],
    "SwapResult.repair": [(), ("beside", "gold.others")],
    "RollbackResult.repair": [()],
    "KeptFiles.some": [()],
    "RejectedRows.some": [()],
    "AlarmState.some": [(), ("broken", 0)],
    "SuiteResult.some": [(), ("outcomes", 0), ("skipped", 0)],
    "KnownColumns.some": [()],
    "SentLineage.some": [()],
    "BegunLoad.some": [()],
    "KeptAnswer.some": [()],
}
"""Where the parts of records stand, and the records themselves; in other objects the keys are names."""


def test_key_that_is_not_known_is_refused_by_name_wherever_it_stands() -> None:
    told = set()
    for example, places in PARTS.items():
        record, name = next((r, n) for r, n in EACH if f"{r.__name__}.{n}" == example)
        for place in places:
            value: Any = golden(record, name)
            found = value
            for key in place:
                found = found[key]
            found["colour"] = "red"
            with pytest.raises(NewerRecordError) as error:
                from_json(record, value)
            start, _, what = str(error.value).partition(" in ")
            assert start == "has the key 'colour', which this Headwater does not know", (example, place)
            told.add(what)
    # The input of a list of failing rows may have any name; what an entry has to read again is asked for below.
    others = {FailingRows.WHAT, WarmUp.WHAT, CheckResult.WHAT}
    assert told == {each.WHAT for each in stored_classes() if "WHAT" in vars(each)} - others


@pytest.mark.parametrize(("record", "name"), EACH, ids=NAMES)
def test_newer_version_is_refused_in_a_sentence(record: type[Record], name: str) -> None:
    value = golden(record, name) | {record.FORMAT_KEY: record.FORMAT + 1}
    reads = "version 1" if record.FORMAT == 1 else f"versions 1 to {record.FORMAT}"
    newer = f"^is {record.WHAT} of version {record.FORMAT + 1}, of which this Headwater reads {reads}$"
    with pytest.raises(NewerRecordError, match=newer):
        from_json(record, value)
    explicit = golden(record, name) | {record.FORMAT_KEY: record.FORMAT}
    assert from_json(record, explicit) == EXAMPLES[record][name], "the version may be named"


def test_key_in_the_place_of_another_is_damage_and_not_a_newer_version() -> None:
    value = golden(Progress, "done")
    value["chunkt"] = value.pop("chunks")
    with pytest.raises(ValueError, match=r"^the progress of a run without 'chunks'$"):
        Progress.from_json(value)
    for wrong in ([], "x", None, {"format": "2"}, {"format": True}, {"format": 0}):
        with pytest.raises((ValueError, KeyError)):
            Progress.from_json(wrong)


OLDER: dict[str, tuple[Any, str, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a plan of format 1, before topics had ids": (
        BackfillPlan,
        (
            '{"format": 1, "id": "d-1", "mode": "repair", "job": "d", "reference": "", "kind": "row", "target": "a.d", '
            '"quarantine": "a.d__quarantine", "input_name": "t", "keys": [], "columns": ["n"], "fingerprint": "f", '
            '"asked": {"all": true}, "ranges": {"t": {"0": [0, 5]}}, "windows": [], "rows": 5, "chunks": [{"rows": 5, '
            '"batches": [{"generation": 1, "batch": 0, "ranges": {"t": {"0": [0, 5]}}}]}], "base_version": 1, '
            '"generation": 1, "batch": 0, "input": null, "notes": [], "created_at": "2013-02-01T00:00:00Z"}'
        ),
        lambda plan: (plan.topic_ids, plan.feeds, plan.chunks[0].batches[0].batch),
        lambda _: ({}, (), 0),
    ),
    "a verdict, before there were several tables": (
        Verdict,
        (
            '{"backfill": "d-1", "passed": true, "findings": [{"name": "a", "ok": true, "detail": "b"}], "accounting": '
            '{"read": 5}, "diff": {"keys": [], "added": 0, "removed": 0, "changed": 0, "unchanged": 5, "digest": "aa", '
            '"samples": {}}, "notes": [], "shadow_version": 1, "verified_at": "2013-02-01T00:00:00Z"}'
        ),
        lambda verdict: (verdict.digest, verdict.table_version, verdict.beside, verdict.ranges),
        lambda _: ("aa", None, {}, {}),
    ),
    "a swap, before it had an account": (
        SwapResult,
        (
            '{"backfill": "d-1", "target": "a.d", "version": 3, "removed_rows": 1, "added_rows": 2, "kept_rows": 3, '
            '"replaced_version": 2, "proof": {"rows_outside": 3, "outside_unchanged": true}}'
        ),
        lambda done: (done.accounting, done.proof["rows_outside"], done.feeds, done.held_s),
        lambda _: (None, 3, None, None),
    ),
    "an entry, before it had partitions": (
        LedgerEntry,
        (
            '{"headwater":1,"job":"d","generation":1,"batch":4,"table":"a.d","kind":"row","fingerprint":"f","sources":'
            '[{"input":"t","topic":"t","ranges":{"t":{"0":[1,2]}}}],"accounting":{"t":{"read":1,"written":1}}}'
        ),
        lambda entry: (entry.partitions, entry.seen, dict(entry.extra), entry.sources[0].left_out),
        lambda _: ({}, None, {}, ()),
    ),
}


@pytest.mark.parametrize("what", OLDER)
def test_what_an_older_version_wrote_is_read(what: str) -> None:
    record, text, seen, expected = OLDER[what]
    found = from_json(record, json.loads(text))
    assert seen(found) == expected(found)
    assert from_json(record, to_json(found)) == found, "and written again as it is now"


def newer(path: Path, key: str = "colour", says: object = 2) -> None:
    """Has a file say more than this Headwater knows; without a digest it is believed."""
    value = json.loads(path.read_text(encoding="utf-8"))
    value.pop("_crc32", None)
    path.write_text(json.dumps(value | {key: says}), encoding="utf-8")


@pytest.mark.parametrize("record", [BackfillPlan, Progress, Verdict, SwapResult, RollbackResult])
def test_newer_file_of_a_backfill_is_told_and_never_written_over(tmp_path: Path, record: Any) -> None:
    home = Home(tmp_path)
    folder = BackfillFolder(home, "delays-1")
    folder.write(replace(EXAMPLES[BackfillPlan]["rows"], id="delays-1"))  # type: ignore[type-var]
    if record is not BackfillPlan:
        folder.write(next(iter(EXAMPLES[record].values())))  # type: ignore[arg-type]
    path = folder.path / f"{record.FILE}.json"
    newer(path)
    told = f"the backfill 'delays-1': {path} has the key 'colour', which this Headwater does not know in "
    with pytest.raises(NewerFileError) as error:
        status(home, "delays-1")
    assert str(error.value) == f"{told}{record.WHAT}{REMEDY}"
    with pytest.raises(NewerFileError):
        folder.known(record)


def test_plan_of_a_kind_that_is_not_known_is_told(tmp_path: Path) -> None:
    folder = BackfillFolder(Home(tmp_path), "delays-1")
    folder.write(EXAMPLES[BackfillPlan]["rows"])  # type: ignore[arg-type]
    newer(folder.path / "plan.json", "mode", "merge")
    with pytest.raises(
        NewerFileError, match=r"plan\.json is a plan to merge, which this Headwater does not know; a"
    ):
        folder.plan()


def test_newer_facts_of_a_checkpoint_are_told(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoints" / "pairs" / "1"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "0").touch()
    write_record(checkpoint / "headwater.json", EXAMPLES[RunFacts]["join"])  # type: ignore[arg-type]
    assert facts_of_last_run(checkpoint) == EXAMPLES[RunFacts]["join"]
    newer(checkpoint / "headwater.json", "format")
    with pytest.raises(NewerFileError) as error:
        facts_of_last_run(checkpoint)
    assert str(error.value) == (
        f"job 'pairs': {checkpoint / 'headwater.json'} is the facts of a run of version 2, of which this Headwater "
        f"reads version 1{REMEDY}"
    )
    assert not isinstance(error.value.with_remedy("x"), str)
    assert str(error.value.with_remedy("remove it")).endswith(REMEDY), (
        "what knows less does not say otherwise"
    )


def test_newer_list_of_failing_rows_is_told_and_kept(tmp_path: Path) -> None:
    found = EXAMPLES[FailingRows]["some"].rows  # type: ignore[attr-defined]
    keep_failing(tmp_path, 3, found)
    assert known_failing(tmp_path) == found
    newer(tmp_path / "failing" / "3.json", "#format")
    with pytest.raises(NewerFileError, match=re.escape(REMEDY)):
        known_failing(tmp_path)


def test_newer_result_of_a_suite_is_told_and_a_damaged_one_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "quality" / "silver.departures" / "v3"
    folder.mkdir(parents=True)
    path, stored = folder / "result.json", EXAMPLES[SuiteResult]["some"]
    path.write_text(json.dumps(to_json(stored)), encoding="utf-8")
    assert load_result(folder) == replace(stored, folder=folder)  # type: ignore[type-var]
    newer(path)
    with pytest.raises(NewerFileError, match="has the key 'colour'"):
        load_result(folder)
    path.write_text(path.read_text().replace('"outcomes"', '"outcomet"'), encoding="utf-8")
    with pytest.raises(
        DamagedFileError, match=r"without 'outcomes'\); it is written again by headwater quality run"
    ):
        load_result(folder)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"headwater": 3}, "is a ledger entry of version 3, of which this Headwater reads versions 1 to 2"),
        ({"colour": 1}, "has the key 'colour', which this Headwater does not know in a ledger entry"),
    ],
)
def test_newer_entry_in_a_log_is_told_with_its_commit_and_not_passed_over(
    tmp_path: Path, more: dict[str, Any], what: str
) -> None:
    """It was taken for a commit of somebody else: what it read would have been read again."""
    log = tmp_path / "tables" / "silver" / "departures" / "_delta_log"
    log.mkdir(parents=True)
    text = json.dumps(golden(LedgerEntry, "row") | more)
    path = log / f"{0:020d}.json"
    path.write_text(json.dumps({"commitInfo": {"timestamp": 0, "operation": "WRITE", "userMetadata": text}}))
    with pytest.raises(NewerFileError) as error:
        list(commits(log.parent))
    assert str(error.value) == f"silver.departures: {path} {what}{REMEDY}"


def test_what_others_write_into_a_log_is_no_entry() -> None:
    for text in (None, "", "x", '{"headwater"', '["headwater"]', '{"headwater": "x"}', '{"headwater": true}'):
        assert LedgerEntry.from_json(text) is None


def test_newer_warm_up_is_told_with_its_table_and_its_sources_with_the_entry() -> None:
    value = golden(LedgerEntry, "generation")
    value["extra"]["warm_up"]["colour"] = 1
    with pytest.raises(
        StreamsError, match=r"^gold\.pairs: what generation 3 of job 'pairs' is to read again has the key"
    ):
        WarmUp.of(from_json(LedgerEntry, value))
    value = golden(LedgerEntry, "generation")
    value["extra"]["warm_up"]["sources"][0]["colour"] = 1
    with pytest.raises(NewerRecordError, match=r"in a source of a ledger entry$"):
        from_json(LedgerEntry, value)


def test_damages_of_a_record_are_none_of_a_newer_version(tmp_path: Path) -> None:
    folder = BackfillFolder(Home(tmp_path), "delays-1")
    for damage in sorted(DAMAGES.keys() - {"gone"}):
        folder.write(EXAMPLES[Progress]["done"])  # type: ignore[arg-type]
        DAMAGES[damage](folder.path / "progress.json")
        assert folder.known(Progress) is None, "the verb that writes it is not kept from it"
