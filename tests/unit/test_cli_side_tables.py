"""`headwater quarantine` and `headwater late` of tables that share a side table, or have none yet."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from headwater.cli import main
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.storage.home import Home

PEOPLE, BOTS, ALONE = "silver.people", "silver.bots", "silver.alone"
PATHS, INGEST = "gold.paths", "gold.paths__ingest_requests"
CHAIN, STEP = "gold.chain", "gold.chain__step_1"


def commit(home: Home, table: str, entry: LedgerEntry | None, rows: int = 1, topic: str = "requests") -> None:
    """A commit of rows, as a job's batch or by hand."""
    names = {"_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64(), "_batch": pa.int64()}
    values = [{"_topic": topic, "_partition": 0, "_offset": n, "_batch": 0} for n in range(rows)]
    told = {"userMetadata": entry.to_json()} if entry is not None else {}
    write_deltalake(
        str(home.table(table)),
        pa.Table.from_pylist(values, schema=pa.schema(names)),
        mode="append",
        commit_properties=CommitProperties(custom_metadata=told),
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A job with two tables, a windowed one with its ingest table, one that rejected nothing, and a table by hand."""
    made = Home(tmp_path_factory.mktemp("home"))
    commit(made, PEOPLE, LedgerEntry(job="split", generation=1, batch=0, table=PEOPLE, kind="row"))
    commit(
        made,
        BOTS,
        LedgerEntry(job="split", generation=1, batch=0, table=BOTS, kind="row", extra={"beside": PEOPLE}),
    )
    commit(made, BOTS, None)
    commit(
        made,
        f"{PEOPLE}__quarantine",
        LedgerEntry(job="split", generation=1, batch=0, table=f"{PEOPLE}__quarantine", kind="side"),
        2,
    )
    counted = {"requests": {"read": 1, "late": 7}}
    extra = {"late": "count"}
    commit(
        made,
        PATHS,
        LedgerEntry(
            job="paths", generation=1, batch=0, table=PATHS, kind="window", accounting=counted, extra=extra
        ),
    )
    read = (SourceRange(input="requests", ranges={"requests": {0: (0, 4)}}, topic="requests"),)
    commit(
        made,
        INGEST,
        LedgerEntry(
            job="paths__ingest_requests", generation=1, batch=0, table=INGEST, kind="row", sources=read
        ),
    )
    commit(made, f"{PATHS}__late", None, 0)
    commit(made, f"{PATHS}__quarantine", None, 3)
    commit(made, f"{PATHS}__quarantine", None, 4, topic="replies")
    commit(made, ALONE, LedgerEntry(job="clean", generation=1, batch=0, table=ALONE, kind="row"))
    commit(made, CHAIN, LedgerEntry(job="chain", generation=1, batch=0, table=CHAIN, kind="window"))
    commit(made, f"{CHAIN}__late", None, 0)
    commit(made, f"{STEP}__late", None, 2)
    commit(made, "dim.airports", None)
    return made


def asked(home: Home, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, int, list[str]]:
    """The exit status, how many rows came as JSON, and what was said beside."""
    status = main([*words, "--json", "--home", str(home.root)])
    said = capsys.readouterr()
    return status, len(json.loads(said.out)), said.err.splitlines()


@pytest.mark.parametrize("name", [BOTS, f"{BOTS}__quarantine"])
def test_quarantine_of_a_further_table_is_the_one_that_its_job_shares(
    home: Home, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    told = f"{BOTS} shares {PEOPLE}__quarantine with {PEOPLE}"
    assert asked(home, capsys, "quarantine", name) == (0, 2, [told])
    assert main(["quarantine", name, "--home", str(home.root)]) == 0
    said = capsys.readouterr()
    assert said.err.splitlines() == [told]
    assert "2 rows" in said.out


def test_quarantine_of_a_table_with_its_own_says_nothing(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (PEOPLE, f"{PEOPLE}__quarantine"):
        assert asked(home, capsys, "quarantine", name) == (0, 2, [])


def test_side_tables_of_an_ingest_table_are_those_of_the_job_that_it_feeds(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"{INGEST} shares {PATHS}__quarantine with {PATHS}, where its rows are those of requests"
    assert asked(home, capsys, "quarantine", INGEST) == (0, 3, [told])
    assert asked(home, capsys, "quarantine", PATHS) == (0, 7, []), "those of the job's other input, too"
    status, rows, said = asked(home, capsys, "late", INGEST)
    assert (status, rows) == (0, 0)
    assert said[0] == f"{INGEST} shares {PATHS}__late with {PATHS}, where its rows are those of requests"
    assert said[-1] == f"late rows of {PATHS}, whose job only counts them: 7"


@pytest.mark.parametrize("name", [ALONE, f"{ALONE}__quarantine", "dim.airports"])
def test_quarantine_of_a_table_without_one_has_no_rejected_rows(
    home: Home, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    told = f"{name.removesuffix('__quarantine')} has no rejected rows"
    assert asked(home, capsys, "quarantine", name) == (0, 0, [told])


def test_late_of_a_row_jobs_tables_has_no_late_rows(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    for name in (PEOPLE, BOTS):
        assert asked(home, capsys, "late", name) == (0, 0, [f"{name} has no late rows"])


def test_late_of_a_chain_s_table_names_those_of_its_steps(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    status, rows, said = asked(home, capsys, "late", CHAIN)
    assert (status, rows, said[0]) == (0, 0, f"{CHAIN} is made in steps, which have {STEP}__late, too")
    assert asked(home, capsys, "late", STEP) == (0, 2, [])


@pytest.mark.parametrize(
    ("verb", "name", "told"),
    [
        (
            "quarantine",
            "late",
            "headwater late gold.paths shows it, and headwater quarantine gold.paths shows the rejected",
        ),
        (
            "late",
            "quarantine",
            "headwater quarantine gold.paths shows it, and headwater late gold.paths shows the late",
        ),
        ("quarantine", "changes", "headwater quarantine gold.paths shows the rejected"),
    ],
)
def test_side_tables_have_none_of_their_own(
    home: Home, capsys: pytest.CaptureFixture[str], verb: str, name: str, told: str
) -> None:
    assert main([verb, f"{PATHS}__{name}", "--home", str(home.root)]) == 2
    said = capsys.readouterr().err
    assert said == f"headwater: {PATHS}__{name} is a side table of {PATHS}: {told} rows\n"


def test_tables_that_are_not_there_are_told_with_those_most_like_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = Home(tmp_path)
    for name in ("gold.delays", *(f"silver.table_{n}" for n in range(9))):
        commit(home, name, LedgerEntry(job="clean", generation=1, batch=0, table=name, kind="row"))
        commit(home, f"{name}__quarantine", None)
    for words in (["audit", "gold.delay"], ["quarantine", "gold.delay"], ["sql", "SELECT * FROM gold.delay"]):
        assert main([*words, "--home", str(tmp_path)]) in (1, 2)
        said = capsys.readouterr().err
        assert "there is no table gold.delay" in said
        assert re.search(r"gold\.delays.* and (5|15) others", said), said


def test_side_tables_of_a_table_that_is_not_there_are_a_usage_error(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["quarantine", "silver.people2", "--json", "--home", str(home.root)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    there = f"{PATHS}__quarantine, {PEOPLE}__quarantine"
    assert said.err == f"headwater: there is no table silver.people2__quarantine; there are {there}\n"


def test_rejected_bytes_are_shown_and_not_obeyed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    home = Home(tmp_path)
    row = {
        "_topic": "t",
        "_partition": 0,
        "_offset": 0,
        "_batch": 0,
        "value": b"\x1b[2J\xc2\x9b31m[bold]x",
        "reason": "not \x1b]0;t\x07 a number",
    }
    write_deltalake(str(home.table("silver.lines__quarantine")), pa.Table.from_pylist([row]))
    write_deltalake(str(home.table("silver.lines")), pa.table({"a": [1]}))
    for words in ([], ["--json"]):
        assert main(["quarantine", "silver.lines", *words, "--home", str(tmp_path)]) == 0
        output = capfd.readouterr().out
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", output)
        assert ("[bold]x" in output) == (not words)  # JSON has bytes as base64
    assert main(["quarantine", "silver.lines", "--raw", "--home", str(tmp_path)]) == 0
    assert "\x1b]0;t" in capfd.readouterr().out
