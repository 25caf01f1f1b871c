"""`headwater quarantine replay` as a person types it: what it would do, and what it is refused, dry and for real."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import _backfill_job as shared
from headwater.cli import main
from headwater.running.environment import find_jobs
from headwater_streams.storage.files import matching
from headwater_streams.testing import JobDriver

ROWS = """
import headwater as hw

columns = {{"schema": "page STRING, user STRING, at TIMESTAMP", "event_time": "at", "watermark": "1 hour"}}
visits = hw.topic("visits", **columns)
sales = hw.topic("sales", **columns)


@hw.job(target={target}, dedup={dedup})
@hw.check("has_page", "page IS NOT NULL")
def clean({inputs}):
    return {returns}
"""
PLAIN = {
    "target": 'hw.delta("silver.visits")',
    "dedup": "hw.by_offset()",
    "inputs": "visits",
    "returns": "visits",
}
OTHERS = {
    "union": {"inputs": "visits, sales", "returns": "hw.union(visits, sales)"},
    "dimension": {"target": 'hw.scd1("silver.visits", keys=["user"], sequence_by="at")'},
    "by_key": {"dedup": 'hw.by_key(["user"], within="1 hour")'},
    "of other columns": {"returns": 'visits.selectExpr("*", "1 AS one")'},
}


@pytest.fixture
def replay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs the command over a driver's home, in the test's session."""

    def ran(driver: JobDriver, *options: str) -> tuple[int, str, str]:
        @contextmanager
        def session(*_: Any, **__: Any) -> Iterator[Any]:
            yield driver.context

        monkeypatch.setattr(shared, "session_of", session)
        home = str(driver.home.root)
        status = main(["quarantine", "replay", str(tmp_path / "clean.py"), *options, "--home", home])
        output = capsys.readouterr()
        return status, output.out, output.err

    return ran


def job_file(tmp_path: Path, **changed: str) -> list[Any]:
    (tmp_path / "clean.py").write_text(ROWS.format(**{**PLAIN, **changed}))
    return list(find_jobs([str(tmp_path / "clean.py")]))


def rejecting(driver: JobDriver) -> JobDriver:
    """Offsets 1, 2 and 4 are rejected."""
    for user, page in enumerate(("a", None, None, "b", None, "c")):
        driver.send("visits", {"page": page, "user": f"u{user}", "at": f"2013-01-01T10:0{user}:00Z"})
    driver.run()
    return driver


@pytest.mark.parametrize("kind", OTHERS)
def test_replay_that_would_be_refused_is_refused_dry_in_the_same_words(
    drive: Callable[..., JobDriver], replay: Callable[..., Any], tmp_path: Path, kind: str
) -> None:
    is_mended = kind == "of other columns"
    driver = rejecting(drive(*job_file(tmp_path, **({} if is_mended else OTHERS[kind]))))
    job_file(tmp_path, **OTHERS[kind])
    status, out, err = replay(driver)
    assert (status, out, err != "") == (1, "", True)
    assert replay(driver, "--dry-run") == (status, out, err)
    assert replay(driver, "--dry-run", "--json")[:2] == (status, "")


def test_replay_that_would_be_done_says_so_and_leaves_nothing(
    drive: Callable[..., JobDriver], replay: Callable[..., Any], tmp_path: Path
) -> None:
    driver = rejecting(drive(*job_file(tmp_path)))
    table, home = "silver.visits", str(driver.home.root)
    discard = ["quarantine", "discard", table, "--offsets", "visits:0=2-3", "--because", "x", "--home", home]
    assert main(discard) == 0
    between = "1 discarded record between them read again, too"
    status, out, err = replay(driver, "--dry-run")
    assert (status, out.splitlines()[-1], err) == (
        0,
        f"2 rejected records of {table} in visits:0=1-5; {between}",
        "",
    )
    _, out, _ = replay(driver, "--dry-run", "--offsets", "visits:0=0-2")
    assert out == f"1 rejected record of {table} in visits:0=1-2\n"
    assert not list(matching(driver.home.root / "backfills", "*"))
    status, out, err = replay(driver)
    assert status == 0, err
    assert out.startswith(f"2 rejected records read again into version 2 of {table}, 2 of them rejected")
    assert between in out
