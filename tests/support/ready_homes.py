"""Homes in which jobs have run already: made once, kept below build/, and copied for each test that begins there.

Nothing in a home depends on where it is. A home's name is the hash of everything that it is made from: the library, the
pins, the session's settings, the test file that fills it, the jobs' code and the arguments. A change of these makes a
new home.
"""

from __future__ import annotations

import fcntl
import hashlib
import inspect
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headwater.running.pytest_plugin import SMALL_BATCHES
from headwater_streams.plan.job import Job, bind
from headwater_streams.testing import JobDriver

ROOT = Path(__file__).resolve().parents[2]
HOMES = ROOT / "build" / "ready-homes"
_MAX_AGE_S = 3 * 24 * 3600
"""Homes that no run has used for so long are removed."""


def ready_home(
    spark: SparkSession,
    fill: Callable[..., None],
    jobs: Sequence[Any],
    arguments: dict[str, Any],
    *,
    anew: bool = False,
) -> Path:
    """A folder to be copied, in which `fill(driver, **arguments)` has run.

    Args:
        spark: The session of the tests.
        fill: Sends and runs what the home is to hold; a function of a test file.
        jobs: Functions that `@hw.job` decorated, or bound jobs.
        arguments: Plain values, whose `repr` tells them apart.
        anew: Make it even if it exists, for a test of the making.
    """
    bound = [job if isinstance(job, Job) else bind(job) for job in jobs]
    digest = hashlib.sha256(_library().encode())
    digest.update(Path(inspect.getfile(fill)).read_bytes())
    settings = [spark.conf.get(name) for name in SMALL_BATCHES if name.startswith("spark.sql.")]
    parts = (fill.__qualname__, [(job.name, job.fingerprint) for job in bound], arguments, settings)
    digest.update(repr(parts).encode())
    home = HOMES / f"{fill.__name__}-{digest.hexdigest()[:16]}"
    HOMES.mkdir(parents=True, exist_ok=True)
    with (HOMES / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may ask for it at once
        if anew:
            shutil.rmtree(home, ignore_errors=True)
        if not home.exists():
            making = Path(tempfile.mkdtemp(prefix="making-", dir=HOMES))
            fill(JobDriver(spark, making, jobs), **arguments)
            making.rename(home)
    os.utime(home)
    return home


def remove_old_homes() -> None:
    """Removes homes that no run has used for days, and those that a killed run has left half made."""
    for home in HOMES.glob("*"):
        with suppress(FileNotFoundError):  # the other worker removes them, too
            if home.stat().st_mtime < time.time() - _MAX_AGE_S:
                shutil.rmtree(home, ignore_errors=True) if home.is_dir() else home.unlink()


@cache
def _library() -> str:
    """The digest of all code that makes a home, and of the pins."""
    digest = hashlib.sha256()
    sources = [*(ROOT / "streams").rglob("*.py"), *(ROOT / "platform/headwater/stack").glob("*.py")]
    for path in sorted([*sources, Path(__file__), ROOT / "constraints.txt", ROOT / "conf" / "jars.lock"]):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()
