"""Readers in a loop: what deltalake and DuckDB see of the tables while backfills live and die."""

import json
import threading
from collections import Counter
from pathlib import Path

import duckdb
from backfill_model import SUMS, Row, digest, opened, read
from deltalake import DeltaTable

_PAUSE_S = 0.7


class Readers:
    """Threads that read the tables over and over; each reading is kept until it is checked."""

    def __init__(self, tables: dict[str, Path], of_spark: Path) -> None:
        """Args: the folders of the tables by their names, and the file to which a process with Spark notes its own."""
        self._tables, self._of_spark = tables, of_spark
        self._found: list[tuple[str, str, int | None, Row]] = []
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._failed: BaseException | None = None
        self._spark_read = 0
        self.count: Counter[str] = Counter()
        self._threads = [threading.Thread(target=self._loop, args=(how,)) for how in ("deltalake", "duckdb")]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Ends the threads."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def check(self, digests: dict[str, dict[int, Row]]) -> None:
        """Sees to it that each reading so far was of one whole version.

        Args:
            digests: What each version of each table is, those read last among them.
        """
        if self._failed is not None:
            raise self._failed
        with self._lock:
            found, self._found = self._found, []
        for how, table, version, seen in found + self._readings_of_spark():
            whole = digests[table]
            if version is not None and version not in whole:
                with self._lock:
                    self._found.append((how, table, version, seen))  # newer than what was looked at
                continue
            allowed = {whole[version]} if version is not None else set(whole.values())
            assert seen in allowed, (
                f"{how} saw {seen} of {table} {version}, and that is {whole.get(version or -1)}"
            )
            self.count[how] += 1

    def _readings_of_spark(self) -> list[tuple[str, str, int | None, Row]]:
        if not self._of_spark.exists():
            return []
        lines = self._of_spark.read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines[self._spark_read :] if line.endswith("]\n")]
        self._spark_read = len(lines)
        return [("spark", table, None, tuple(seen)) for table, *seen in whole]

    def _loop(self, how: str) -> None:
        try:
            while not self._stopping.wait(_PAUSE_S):
                for table, path in self._tables.items():
                    if not (path / "_delta_log").exists():
                        continue
                    version, seen = (
                        self._of_duckdb(table, path) if how == "duckdb" else self._of_deltalake(table, path)
                    )
                    with self._lock:
                        self._found.append((how, table, version, seen))
        except BaseException as error:
            self._failed = error

    def _of_deltalake(self, table: str, path: Path) -> tuple[int, Row]:
        version = DeltaTable(str(path)).version()
        return version, digest(table, read(path, table, version))

    def _of_duckdb(self, table: str, path: Path) -> tuple[int, Row]:
        version = DeltaTable(str(path)).version()
        rows = opened(path, version)
        with duckdb.connect() as connection:
            connection.register("rows", rows)
            sums = ", ".join(f"sum({each})" for each in SUMS[table])
            found = connection.execute(f"SELECT count(*), {sums} FROM rows").fetchone()
        assert found is not None
        return version, tuple(int(each or 0) for each in found)
