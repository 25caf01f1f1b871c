"""Jobs whose checkpoint or table has a damaged file: what is told, and that the verb named loses and doubles no row."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from damaged_files import DAMAGES
from headwater_streams import backfill
from headwater_streams.ledger.log import commits
from headwater_streams.quality import Check
from headwater_streams.quality.run import run_suite
from headwater_streams.runtime.generations import Action
from headwater_streams.runtime.ownership import NoLease
from headwater_streams.runtime.query import explain
from headwater_streams.runtime.renewal import begin_generations
from headwater_streams.spark.delta_log import forget_logs
from headwater_streams.storage.damage import DamagedFileError
from headwater_streams.testing import JobDriver
from job_kinds import KINDS, TABLE, Kind, three_batches

ROOT = Path(__file__).resolve().parents[3]
INGEST = "gold.story__ingest_clicks"


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


@pytest.fixture
def begun(ready: Callable[..., JobDriver]) -> Callable[[str], JobDriver]:
    """A driver of the jobs of a kind, over a home in which they have run three batches."""

    def make(name: str) -> JobDriver:
        kind = _kind(name)
        return ready(three_batches, *kind.jobs(1), kind=name)

    return make


def _newest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: (len(path.name), path.name))


def _rows(driver: JobDriver, kind: Kind) -> list[tuple[object, ...]]:
    found = driver.table(TABLE).selectExpr(*kind.columns).collect()
    return sorted((tuple(row) for row in found), key=repr)


def _told(run: Callable[[], object]) -> str:
    with pytest.raises(Exception) as told:
        run()
    return explain(told.value)


def _begin(driver: JobDriver, action: Action, *, ingest: bool = False) -> list[str]:
    jobs = driver._jobs
    begun = begin_generations(driver.context, jobs, action, lambda _: NoLease(), ingest=ingest)
    return [entry.job for entry in begun]


def _send_more(driver: JobDriver) -> None:
    driver.send("clicks", {"who": "a", "at": "2013-01-01T12:20:00Z", "n": 9})


@pytest.mark.parametrize(
    ("name", "file", "damage"),
    [
        ("tumbling", "offsets/[0-9]*", "empty"),
        ("tumbling", "commits/[0-9]*", "one bit"),
        ("tumbling", "state/0/0/[0-9].delta", "cut"),
        ("tumbling", "state/0/1/[0-9].delta", "gone"),
        ("rows", "offsets/[0-9]*", "gone"),
        ("rows", "headwater.json", "garbage"),
    ],
)
def test_damaged_checkpoint_is_told_and_renewed(
    begun: Callable[[str], JobDriver], name: str, file: str, damage: str
) -> None:
    kind, driver = _kind(name), begun(name)
    whole = _rows(driver, kind)
    path = _newest(driver.home.checkpoint("story", 1), file)
    DAMAGES[damage](path)
    _send_more(driver)
    told = _told(driver.run)
    assert told.startswith("job 'story'")
    assert str(path) in told
    assert told.endswith("headwater jobs renew story")
    assert _begin(driver, "renew") == ["story"]
    driver.run()
    assert driver.audit() == []
    more = {"tumbling": ("a", 12, 9), "rows": ("a", 9)}[name]
    assert _rows(driver, kind) == sorted([*whole, more], key=repr)


@pytest.mark.parametrize("name", ["session", "count window", "by key"])
def test_damaged_checkpoint_of_what_cannot_be_renewed_is_rebuilt(
    begun: Callable[[str], JobDriver], name: str
) -> None:
    kind, driver = _kind(name), begun(name)
    checkpoint = driver.home.checkpoint("story", 1)
    if name == "count window":  # which parts are read is in the ledger
        paths = sorted(checkpoint.glob("open_rows/*/*.parquet"))
    else:
        paths = [_newest(checkpoint, {"by key": "keys/*.arrow"}.get(name, "offsets/[0-9]*"))]
    for path in paths:
        DAMAGES["garbage"](path)
    _send_more(driver)
    told = _told(driver.run)
    assert told.startswith("job 'story'")
    assert any(str(path if name != "count window" else path.parent) in told for path in paths)
    assert "headwater jobs rebuild story" in told
    assert "headwater jobs rebuild story" in _told(lambda: _begin(driver, "renew"))
    _begin(driver, "rebuild")
    driver.run()
    driver.advance(
        "clicks", "2013-01-02T00:00:00Z", who="c", n=1
    )  # sessions are closed by the batch behind it
    driver.run()
    _send_more(driver)
    driver.run()
    assert driver.audit() == []
    assert {"a", "b"} <= {row[0] for row in _rows(driver, kind)}


def test_damaged_log_is_told_moved_away_and_made_again(begun: Callable[[str], JobDriver]) -> None:
    kind, driver = _kind("rows"), begun("rows")
    whole = _rows(driver, kind)
    log = driver.home.table(TABLE) / "_delta_log"
    path = log / f"{3:020d}.json"
    DAMAGES["cut"](path)
    forget_logs(driver.context.spark)
    _send_more(driver)
    told = _told(driver.run)
    assert told.startswith(f"{TABLE}: {path} does not match its checksum")
    assert told.endswith("headwater jobs rebuild story")
    assert _begin(driver, "rebuild") == ["story"]
    assert (driver.home.root / "damaged" / f"{TABLE}.1" / "_delta_log" / path.name).exists()
    driver.run()
    assert driver.audit() == []
    assert _rows(driver, kind) == sorted([*whole, ("a", 9)], key=repr)


def test_log_folder_without_a_commit_is_no_table_yet(spark: SparkSession, tmp_path: Path) -> None:
    """As a job leaves it that is killed while it makes its first table."""
    kind = _kind("tumbling")
    driver = JobDriver(spark, tmp_path, kind.jobs(1))
    sides = [f"{INGEST}__quarantine", f"{TABLE}__late", "headwater.ledger", "headwater.progress"]
    for table in (TABLE, INGEST, *sides):
        (driver.home.table(table) / "_delta_log").mkdir(parents=True)
    three_batches(driver, "tumbling")
    assert _rows(driver, kind) == sorted(kind.rows(1, 0), key=repr)
    assert driver.audit() == []


@pytest.mark.parametrize("name", ["rows", "tumbling"])
def test_commit_that_a_power_cut_took_is_told_and_read_again(
    begun: Callable[[str], JobDriver], name: str
) -> None:
    kind, driver = _kind(name), begun(name)
    whole = _rows(driver, kind)
    _lose_newest(driver, TABLE)
    _send_more(driver)
    told = _told(driver.run)
    assert told.startswith("job 'story'")
    lost = f"it has done with batch 2, and {TABLE} ends with batch 1: commits of its log are gone"
    assert lost in told or f"batch 2 in {TABLE} before, gone from its log now" in told
    assert told.endswith("headwater jobs renew story")
    assert any("commits of its log are gone" in finding for finding in driver.audit())
    assert _begin(driver, "renew") == ["story"]
    driver.run()
    assert driver.audit() == []
    more = {"tumbling": ("a", 12, 9), "rows": ("a", 9)}[name]
    assert _rows(driver, kind) == sorted([*whole, more], key=repr)


def test_commit_that_was_lost_after_another_job_had_read_it_is_not_renewed(
    begun: Callable[[str], JobDriver],
) -> None:
    kind, driver = _kind("tumbling"), begun("tumbling")
    _lose_newest(driver, INGEST)
    _send_more(driver)
    remedy = "headwater jobs rebuild story --ingest"
    told = _told(driver.run)
    assert f"commits of {INGEST} are gone that story has read" in told
    assert told.endswith(remedy)
    assert _told(lambda: _begin(driver, "renew")).endswith(remedy)
    assert _begin(driver, "rebuild", ingest=True) == ["story__ingest_clicks", "story"]
    driver.run()
    assert driver.audit() == []
    assert sum(int(str(row[2])) for row in _rows(driver, kind)) == sum((1, 2, 3, 5, 6, 7, 8, 9))


def _lose_newest(driver: JobDriver, table: str) -> None:
    log = driver.home.table(table) / "_delta_log"
    newest = _newest(log, "[0-9]*.json")
    for path in (newest, newest.with_suffix(".crc")):
        path.unlink()
        path.with_name(f".{path.name}.crc").unlink()
    forget_logs(driver.context.spark)


def test_missing_data_file_is_told_by_jobs_and_quality_and_made_again(
    spark: SparkSession, begun: Callable[[str], JobDriver]
) -> None:
    kind, driver = _kind("tumbling"), begun("tumbling")
    whole = _rows(driver, kind)
    table = driver.home.table(TABLE)
    live = {path.name for path in table.glob("*.parquet")}
    added = {name: commit.version for commit in commits(table) for name in commit.added_paths}
    for name in live:
        (table / name).unlink()
    forget_logs(spark)
    driver.send(
        "clicks",
        {"who": "a", "at": "2013-01-01T12:20:00Z", "n": 9},
        {"who": "b", "at": "2013-01-01T12:30:00Z", "n": 1},
    )
    pattern = rf"{TABLE}: {table}/(\S+) is gone, a data file that version (\d+) \(batch \d of job 'story'\) added; .*"
    told = re.fullmatch(pattern, _told(driver.run))
    assert told is not None
    assert added[told[1]] == int(told[2])
    with pytest.raises(DamagedFileError, match=pattern):
        run_suite(spark, driver.home.root, TABLE, checks=[Check("sane", "n > 0")])
    assert _begin(driver, "rebuild") == ["story"]
    driver.run()
    assert driver.audit() == []
    now = dict.fromkeys(_rows(driver, kind))
    assert [row for row in whole if row[1] != 12 and row not in now] == []


@pytest.mark.parametrize("name", ["rows", "tumbling"])
def test_query_whose_id_is_gone_goes_on_under_another(begun: Callable[[str], JobDriver], name: str) -> None:
    kind, driver = _kind(name), begun(name)
    before = _rows(driver, kind)
    metadata = driver.home.checkpoint("story", 1) / "metadata"
    assert metadata.with_name(".metadata.crc").exists() == (name == "rows"), "Spark has written one of them"
    metadata.unlink()
    _send_more(driver)
    driver.run()
    assert driver.audit() == []
    assert metadata.exists()
    assert _rows(driver, kind) != before


def test_missing_data_file_is_told_by_a_backfill(begun: Callable[[str], JobDriver]) -> None:
    driver = begun("rows")
    context = driver.context
    (job,) = _kind("rows").jobs(10)
    planned = backfill.plan(context, job, offsets={"clicks": {0: (0, 3)}})
    backfill.run(context, planned.id, job)
    for path in driver.home.table(TABLE).glob("*.parquet"):
        path.unlink()
    forget_logs(context.spark)
    pattern = rf"{TABLE}: \S+ is gone, a data file that version \d \(batch \d of job 'story'\) added; .* rebuild story$"
    with pytest.raises(DamagedFileError, match=pattern):
        backfill.verify(context, planned.id, job)
    with pytest.raises(DamagedFileError, match=pattern):
        backfill.preview(context, planned.id, job)


def test_page_of_the_home_names_every_file(begun: Callable[[str], JobDriver]) -> None:
    patterns = _patterns((ROOT / "docs" / "reference" / "home.md").read_text(encoding="utf-8"))
    for name in ("tumbling", "count window", "by key"):
        home = begun(name).home.root
        files = [path.relative_to(home) for path in home.rglob("*") if path.is_file()]
        assert len(files) > 40
        unknown = [str(file) for file in files if not any(fnmatch(str(file), each) for each in patterns)]
        assert [file for file in unknown if not file.startswith("records/")] == []


def _patterns(page: str) -> list[str]:
    """The files that the page's tables name, with their placeholders as wildcards."""
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]
    return [
        re.sub(r"\b(JOB|SCHEMA|TABLE|NAME|TOPIC|ID|N)\b", "*", name).replace("**/", "*") for name in named
    ]
