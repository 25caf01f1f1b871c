"""Java programs of the tests, compiled once for each change of them, and kept below build/."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / "build" / "java-classes"
_TIMEOUT_S = 240


class NoCompilerError(Exception):
    """There is no JDK here."""


def compiled(sources: Sequence[Path], class_path: str) -> Path:
    """The folder with the classes of some programs.

    Args:
        sources: What to compile together.
        class_path: Jars that they need.

    Raises:
        NoCompilerError: There is no `javac` command.
    """
    compiler = shutil.which("javac")
    if compiler is None:
        raise NoCompilerError("needs a JDK: javac")
    digest = hashlib.sha256(f"{os.path.realpath(compiler)}\0{class_path}\0".encode())
    for source in sources:
        digest.update(f"{source.name}\0".encode() + source.read_bytes() + b"\0")
    folder = CACHE / digest.hexdigest()[:16]
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
            classes = Path(scratch, "classes")
            command = [compiler, "-nowarn", "-d", str(classes), "-cp", class_path, *map(str, sources)]
            subprocess.run(command, check=True, timeout=_TIMEOUT_S)
            with suppress(OSError):  # another worker may have been quicker
                classes.rename(folder)
        assert folder.is_dir(), folder
    return folder
