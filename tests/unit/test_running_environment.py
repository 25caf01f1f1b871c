"""Jobs by their names alone, as messages print them. No session is started."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from headwater.errors import UsageError
from headwater.running.environment import absent_jobs, find_each, find_jobs, one_job, remember_modules
from headwater_streams.base.ledger_entry import LedgerEntry
from headwater_streams.storage.home import Home

MODULE = """
import headwater as hw
clicks = hw.topic("clicks", schema="who STRING")

@hw.job(target=hw.delta("silver.{table}"), name="{name}")
def clean(clicks):
    return clicks
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "jobs").mkdir()
    for name in ("clicks", "visits"):
        (tmp_path / "jobs" / f"{name}.py").write_text(MODULE.format(table=name, name=f"clean-{name}"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_find_jobs_name_alone_is_a_job_of_the_default_modules(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "jobs" / "broken.py").write_text("def broken(:\n")
    found = find_jobs(["clean-visits", "jobs/clicks.py", "clean-clicks"])
    assert [job.target.name for job in found] == ["silver.visits", "silver.clicks"]
    assert find_jobs(["clean-clicks__ingest_clicks"])[0].name == "clean-clicks"  # a part is named in messages
    job, reference = one_job("clean-clicks")
    monkeypatch.chdir(here / "jobs")  # where a backfill of it is run later
    assert one_job(reference)[0].fingerprint == job.fingerprint


def test_find_jobs_name_of_no_job_or_of_several_is_one_sentence(here: Path) -> None:
    with pytest.raises(UsageError) as none:
        find_jobs(["clean_visits"])
    assert str(none.value) == (
        "no job or module 'clean_visits': jobs/ has clean-clicks, clean-visits; a job of another file is named with "
        "it, FILE.py:clean_visits"
    )
    (here / "jobs" / "more.py").write_text(MODULE.format(table="more", name="clean-visits"))
    with pytest.raises(UsageError) as several:
        find_jobs(["clean-visits"])
    assert str(several.value) == (
        "several jobs are named 'clean-visits': write jobs/more.py:clean-visits or jobs/visits.py:clean-visits"
    )


def test_find_jobs_name_of_a_module_is_that_module(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "my_own_jobs.py").write_text(MODULE.format(table="own", name="clean"))
    monkeypatch.syspath_prepend(here)
    assert [job.target.name for job in find_jobs(["my_own_jobs"])] == ["silver.own"]


def test_find_jobs_name_of_a_job_that_was_run_from_another_file_is_that_one(here: Path) -> None:
    home, file = here / "home", here / "delayed.py"  # no module of another test has its job's name
    file.write_text(MODULE.format(table="delays", name="of-delays"))
    remember_modules(home, find_jobs(["delayed.py"]))
    assert find_jobs(["of-delays__ingest_clicks"], home)[0].target.name == "silver.delays"
    assert one_job("of-delays", home)[1] == f"{file}:of-delays"
    for there in (here / "another home", None):
        with pytest.raises(UsageError, match="no job or module 'of-delays'"):
            find_jobs(["of-delays"], there)
    file.unlink()
    with pytest.raises(UsageError, match="no job or module 'of-delays'"):
        find_jobs(["of-delays"], home)


def test_absent_jobs_of_a_module_that_does_not_load_any_more_are_known_from_their_last_run(
    here: Path,
) -> None:
    home = here / "home"
    remember_modules(home, find_jobs(["jobs/clicks.py", "jobs/visits.py"]))
    for table, job in [
        ("silver.visits", "clean-visits"),
        ("silver.clicks", "clean-clicks"),
        ("silver.x", "other"),
    ]:
        entry = LedgerEntry(job=job, generation=1, batch=0, table=table, kind="row")
        write_deltalake(
            str(Home(home).table(table)),
            pa.table({"n": [1]}),
            commit_properties=CommitProperties(custom_metadata={"userMetadata": entry.to_json()}),
        )
    (here / "jobs" / "visits.py").write_text("def broken(:\n")
    loaded = find_each(["jobs/clicks.py", "jobs/visits.py"], home)
    assert [job.name for job in loaded.jobs] == ["clean-clicks"]
    (absent,) = absent_jobs(home, loaded)
    assert (absent.name, absent.tables) == ("clean-visits", ("silver.visits",))
    assert "visits.py, line 1: invalid syntax" in absent.why
    assert absent_jobs(here / "another home", loaded) == []
