"""Other programs that read Delta tables, each from the package index into a virtual environment of its own.

They are made once, below build/, under a name that is a hash of what is installed. Nothing of them is seen by the
library, whose own pins they would break.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PLACES = Path(__file__).resolve().parents[2] / "build" / "other-readers"

_PROGRAM = """
import glob, json, os, sys

{read}

print(json.dumps({{name: rows(path) for name, path in json.load(sys.stdin).items()}}), flush=True)
os._exit(0)  # Arrow's threads that call back into Python would abort an interpreter that ends
"""


@dataclass(frozen=True)
class Reader:
    """A program that reads Delta tables.

    Attributes:
        name: What it is called in a test's id.
        installs: What is installed, with pins.
        read: Python that defines `rows(path)`: how many rows it found, each column having been read.
    """

    name: str
    installs: tuple[str, ...]
    read: str


READERS = (
    Reader(
        "deltalake-old",
        ("deltalake==0.13.0", "pyarrow==12.0.1", "numpy<2"),
        "from deltalake import DeltaTable\n"
        "def rows(path): return DeltaTable(path).to_pyarrow_table().num_rows",
    ),
    Reader(
        "deltalake-2024",
        ("deltalake==0.25.5", "pyarrow==17.0.0"),
        "from deltalake import DeltaTable\n"
        "def rows(path): return DeltaTable(path).to_pyarrow_table().num_rows",
    ),
    Reader(
        "deltalake-new",
        ("deltalake==1.6.6", "pyarrow==23.0.1"),
        "from deltalake import DeltaTable\n"
        "def rows(path): return DeltaTable(path).to_pyarrow_table().num_rows",
    ),
    Reader(
        "polars",
        ("polars==2.1.0", "deltalake==1.6.6", "pyarrow==23.0.1"),
        "import polars\ndef rows(path): return polars.scan_delta(path).collect().height",
    ),
    Reader(
        "daft",
        ("daft[deltalake]==0.7.14", "typing_extensions"),
        "import daft\ndef rows(path): return len(daft.read_deltalake(path).to_pylist())",
    ),
    Reader(
        "duckdb-delta-scan",
        ("duckdb==1.5.5", "duckdb-extension-delta==1.5.5", "pytz==2025.2"),
        "import duckdb, duckdb_extension_delta\n"
        "folder = os.path.dirname(duckdb_extension_delta.__file__)\n"
        "connection = duckdb.connect()\n"
        "connection.load_extension(glob.glob(folder + '/extensions/*/delta.duckdb_extension')[0])\n"
        "def rows(path): return len(connection.execute('SELECT * FROM delta_scan(?)', [path]).fetchall())",
    ),
    Reader(
        "delta-kernel",
        ("delta-kernel-rust-sharing-wrapper==0.3.3", "pyarrow==23.0.1"),
        "import delta_kernel_rust_sharing_wrapper as kernel\n"
        "def rows(path):\n"
        "    url = f'file://{path}/'\n"
        "    engine = kernel.PythonInterface(url)\n"
        "    scan = kernel.ScanBuilder(kernel.Table(url).snapshot(engine)).build()\n"
        "    return sum(batch.num_rows for batch in scan.execute(engine))",
    ),
)


def rows_by(reader: Reader, tables: Mapping[str, Path]) -> dict[str, int]:
    """How many rows the reader finds in each table; skips the test if the reader cannot be installed.

    Raises:
        AssertionError: The reader failed; the message is what it wrote.
    """
    program = _PROGRAM.format(read=reader.read)
    request = json.dumps({name: str(path) for name, path in tables.items()})
    done = subprocess.run(
        [_python(reader.installs), "-c", program], input=request, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{reader.name}: {done.stderr[-3000:]}"
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def _python(installs: Sequence[str]) -> str:
    place = PLACES / hashlib.sha256("\n".join((sys.version.split()[0], *installs)).encode()).hexdigest()[:16]
    PLACES.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two workers may want it at once
        if not (place / "ready").exists():
            shutil.rmtree(place, ignore_errors=True)
            venv.create(place, with_pip=True)
            command = [
                str(place / "bin" / "pip"),
                "install",
                "--quiet",
                "--disable-pip-version-check",
                *installs,
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"cannot install {' '.join(installs)}: {done.stderr.strip().splitlines()[-1:]}")
            (place / "ready").touch()
    return str(place / "bin" / "python")
