"""Apache Flink from PyPI, in an environment of its own, with its connectors from Maven: fetched once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "2.3.0"
_FETCH_S = 800


class NoFlinkError(Exception):
    """Flink is not to be had, does not start, or refuses a query."""


class DidNotEndError(NoFlinkError):
    """A query did not end in its time."""


def flink_home() -> Path:
    """The folder of Flink's distribution, with the connectors in its `lib`, fetched once.

    Raises:
        NoFlinkError: It is not there, and cannot be fetched.
    """
    cache = Path(
        os.environ.get("HEADWATER_FLINK", Path("~/.cache/headwater-tests").expanduser() / f"flink-{VERSION}")
    )
    if not cache.is_dir():
        cache.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=cache.parent))
        try:
            _fetch(scratch)
            scratch.rename(cache)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return next(cache.glob("venv/lib/python*/site-packages/pyflink"))


def _fetch(folder: Path) -> None:
    """An environment with Flink, without the libraries that only its Python functions need, and the connectors."""
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    wanted = [f"apache-flink=={VERSION}", f"apache-flink-libraries=={VERSION}"]
    _run([str(folder / "venv/bin/python"), "-m", "pip", "install", "-q", "--no-deps", *wanted])
    lib = next(folder.glob("venv/lib/python*/site-packages/pyflink")) / "lib"
    pom = Path(__file__).with_name("flink-jars.xml")
    _run(
        [
            "mvn",
            "-q",
            "-B",
            "-f",
            str(pom),
            "dependency:copy-dependencies",
            "-DexcludeTransitive",
            f"-DoutputDirectory={lib}",
        ]
    )


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoFlinkError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise NoFlinkError(f"{' '.join(command)}: {(done.stdout + done.stderr)[-800:]}")


def jars() -> dict[str, str]:
    """The versions of the connectors, by their names."""
    names = ("flink-sql-connector-kafka", "flink-sql-parquet")
    lib = flink_home() / "lib"
    return {name: path.stem.removeprefix(f"{name}-") for name in names for path in lib.glob(f"{name}-*.jar")}
