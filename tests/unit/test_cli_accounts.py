"""What `headwater jobs run` and `jobs status` tell of the rows of each table."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import main
from headwater.cli._accounts import account_of, describe_run
from headwater.running.status import accounts_since, job_status, log_ends
from headwater_streams.base.errors import UnavailableError
from headwater_streams.base.ledger_entry import LedgerEntry, SourceRange
from headwater_streams.base.plural import quantity
from headwater_streams.storage.home import Home

PEOPLE, BOTS = "silver.people", "silver.bots"


def commit(home: Home, job: str, table: str, batch: int, terms: Mapping[str, int], **extra: str) -> None:
    """A batch of ten records that a job committed to a table."""
    source = SourceRange(
        input="clicks", ranges={"clicks": {0: (batch * 10, batch * 10 + 10)}}, topic="clicks"
    )
    entry = LedgerEntry(
        job=job,
        generation=1,
        batch=batch,
        table=table,
        kind="row",
        sources=(source,),
        accounting={"clicks": {"read": 10, **terms}},
        extra=extra,
    )
    log = home.table(table) / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    info = {"timestamp": 0, "operation": "STREAMING UPDATE", "userMetadata": entry.to_json()}
    (log / f"{len(list(log.iterdir())):020}.json").write_text(json.dumps({"commitInfo": info}) + "\n")


def split(home: Home, batch: int) -> None:
    """A batch of a job with two tables."""
    shared = {"duplicate": 1, "quarantined": 2}
    commit(home, "split", BOTS, batch, {"written": 3, "filtered": 4} | shared, beside=PEOPLE)
    commit(home, "split", PEOPLE, batch, {"written": 4, "filtered": 3} | shared)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_accounts_since_have_each_table_of_a_job_the_target_first(home: Home) -> None:
    split(home, 0)
    ends = log_ends(home.root)
    split(home, 1)
    split(home, 2)
    commit(home, "clean", "silver.clicks", 0, {"written": 10})
    found = accounts_since(home.root, ends)
    assert found == {
        "clean": {"silver.clicks": {"read": 10, "written": 10}},
        "split": {
            PEOPLE: {"read": 20, "written": 8, "filtered": 6, "duplicate": 2, "quarantined": 4},
            BOTS: {"read": 20, "written": 6, "filtered": 8, "duplicate": 2, "quarantined": 4},
        },
    }
    assert list(found["split"]) == [PEOPLE, BOTS]


def test_account_of_a_job_with_several_tables_has_no_term_that_is_a_tables(home: Home) -> None:
    split(home, 0)
    tables = accounts_since(home.root, {})["split"]
    assert account_of([PEOPLE, BOTS], tables) == {"read": 10, "duplicate": 1, "quarantined": 2}
    assert [*describe_run("split", 1, [PEOPLE, BOTS], tables)] == [
        "split: 1 batch: 10 read, 1 duplicate, 2 quarantined",
        "  silver.people: 4 written, 3 filtered or of other tables",
        "  silver.bots: 3 written, 4 filtered or of other tables",
    ]


@pytest.mark.parametrize(
    ("batches", "terms", "told"),
    [
        (0, {}, "clean: 0 batches"),
        (1, {"read": 1, "written": 1, "filtered": 0}, "clean: 1 batch: 1 read, 1 written"),
        (2, {"read": 1234, "written": 1233, "filtered": 1}, "clean: 2 batches: 1,234 read, 1,233 written, 1 filtered"),
        (1, {"read": 6, "folded": 12, "filtered": -6}, "clean: 1 batch: 6 read, 12 folded, 6 added by the function"),
    ],
)  # fmt: skip
def test_account_of_a_job_with_one_table_is_one_line(batches: int, terms: dict[str, int], told: str) -> None:
    tables = {"silver.clicks": terms} if terms else {}
    assert account_of(["silver.clicks"], tables) == terms
    assert [*describe_run("clean", batches, ["silver.clicks"], tables)] == [told]


def test_account_of_several_tables_without_a_batch_is_one_line() -> None:
    assert [*describe_run("split", 0, [PEOPLE, BOTS], {PEOPLE: {}, BOTS: {}})] == ["split: 0 batches"]


def test_account_of_a_table_that_had_the_batch_already_is_still_of_several() -> None:
    # Killed between the two tables, the next run commits the batch to the target alone.
    tables = {PEOPLE: {"read": 10, "written": 4, "filtered": 6}}
    assert [*describe_run("split", 1, [PEOPLE, BOTS], tables)] == [
        "split: 1 batch: 10 read",
        "  silver.people: 4 written, 6 filtered or of other tables",
        "  silver.bots: 0 written",
    ]


def test_job_status_names_the_first_table_of_a_job_in_the_others(home: Home) -> None:
    split(home, 0)
    commit(home, "clean", "silver.clicks", 0, {"written": 10})
    found = job_status(home.root, None)
    told = [(each["job"], each["target"], each["beside"], each["totals"].get("written")) for each in found]
    assert told == [
        ("clean", "silver.clicks", None, 10),
        ("split", PEOPLE, None, 4),
        ("split", BOTS, PEOPLE, 3),
    ]


@pytest.mark.parametrize(
    ("there", "lag"),
    [
        ({0: (0, 20)}, 0),
        ({0: (0, 25), 1: (3, 5)}, 7),
        ({0: (22, 25)}, 3),  # retention took two that had not been read
        ({0: (2, 9)}, 7),  # the topic was made again
    ],
)
def test_job_status_lag_is_what_is_there_to_be_read(
    home: Home, there: dict[int, tuple[int, int]], lag: int
) -> None:
    commit(home, "clean", "silver.clicks", 0, {"written": 10})
    commit(home, "clean", "silver.clicks", 1, {"written": 10})
    (found,) = job_status(home.root, {"clicks": there}.__getitem__)
    assert found["lag"] == lag


def test_job_status_lag_is_unknown_where_nobody_answers(home: Home) -> None:
    commit(home, "clean", "silver.clicks", 0, {"written": 10})

    def away(_topic: str) -> dict[int, tuple[int, int]]:
        raise UnavailableError("the broker does not answer")

    assert [job_status(home.root, ask)[0]["lag"] for ask in (None, away)] == [None, None]


def test_jobs_status_tells_what_went_to_other_tables_from_what_was_filtered(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    split(home, 0)
    commit(home, "clean", "silver.clicks", 0, {"written": 9, "filtered": 1})
    assert main(["jobs", "status", "--home", str(home.root)]) == 0
    rows = {line.split()[1]: line for line in capsys.readouterr().out.splitlines() if "silver" in line}
    assert rows["silver.clicks"].rstrip().endswith("9 written, 1 filtered")
    assert "4 written, 3 filtered or of other tables, 1 duplicate" in rows[PEOPLE]
    assert "3 written, 4 filtered or of other tables, 1 duplicate" in rows[BOTS]
    assert main(["jobs", "status", "--home", str(home.root), "--json"]) == 0
    found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert sum(each["read"] for each in found if each["beside"] is None) == 20, "each record once"


def test_counted_has_the_word_of_its_number() -> None:
    assert quantity(1, "row") == "1 row"
    assert quantity(0, "batch", "batches") == "0 batches"
    assert quantity(12_345, "row") == "12,345 rows"


def test_account_of_a_dimension_says_what_is_kept_and_what_is_in_effect() -> None:
    account = {"read": 4, "changed": 3, "deleted": 1, "kept": 1, "held": 1}
    (line,) = describe_run("customers", 1, ["dim.customers"], {"dim.customers": account})
    assert line == (
        "customers: 1 batch: 4 read, 3 changed, 1 deleted, 1 kept in the table of changes, 1 more in effect"
    )
    account = {"read": 1, "changed": 0, "deleted": 1, "kept": 0, "held": -2}
    (line,) = describe_run("customers", 1, ["dim.customers"], {"dim.customers": account})
    assert line == "customers: 1 batch: 1 read, 1 deleted, 2 fewer in effect"


def test_rows_kept_for_partners_to_come_are_told_so() -> None:
    account = {"read": 3, "matched": 1, "kept": 2}
    (line,) = describe_run("nearest", 1, ["gold.nearest"], {"gold.nearest": account})
    assert line == "nearest: 1 batch: 3 read, 1 matched, 2 kept to be joined"


def test_rows_that_wait_no_more_are_told_as_fewer() -> None:
    account = {"read": 3, "emitted": 2_962, "open": -2_959}
    (line,) = describe_run("sessions", 1, ["gold.sessions"], {"gold.sessions": account})
    assert line == "sessions: 1 batch: 3 read, 2,962 emitted, 2,959 fewer open"
