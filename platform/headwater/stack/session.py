"""A Spark session with everything pinned that Headwater relies on."""

import logging
import os
import re
import warnings
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.config import SparkSettings, load_settings, shipped_dir
from headwater.errors import DependencyError
from headwater.stack.classes import archive_options
from headwater.stack.cluster import require_master, warn_without_worker
from headwater.stack.jars import jar_paths
from headwater.stack.java import find_java
from headwater.stack.launching import (
    interrupted_afterwards,
    launch_environment,
)
from headwater.stack.packages import packages_zip

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A length in a broken Avro value is believed before a byte of it is read: one of 2 GiB ended the driver. No value of a
# topic is as large as this.
_AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{name}.maxLength={limit}"
    for name, limit in (("string", 64 << 20), ("bytes", 64 << 20), ("collectionItems", 1 << 20))
)

# All threads work, and then all collect. G1, which Java takes by itself, cost a seventh more CPU time for a job's rows:
# Spark's JSON parser makes a buffer of 8 KiB for each value.
_COLLECTOR = "-XX:+UseParallelGC"
# That buffer is memory that was not touched for long, and in pages of 2 MiB the processor knows more of it: a job that
# passes rows through took a tenth less CPU time, and its rows/s were a seventh more.
_LARGE_PAGES = "-XX:+UseTransparentHugePages"
_KERNEL_SAYS = Path("/sys/kernel/mm/transparent_hugepage/enabled")  # "always [madvise] never"
# Java's second compiler is for code that runs for minutes: `jobs check` took 5.9 s and 9.0 s of CPU time with it, and
# 4.5 s and 5.3 s without.
_FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
_A_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_DEFAULT_OPTIONS = "spark.driver.defaultJavaOptions"
_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")


_DAEMON = "headwater_streams.spark.python_daemon"
_LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def _is_here(master: str) -> bool:
    """Whether all of a session's processes are on this machine: they then speak over the loopback."""
    return master.startswith(("local", "spark://127.0.0.1:", "spark://localhost:"))


def session_conf(
    home: Path,
    settings: SparkSettings,
    *,
    app_name: str,
    cores: int,
    jars: list[Path],
    java_options: str = "",
) -> dict[str, str]:
    """The settings of a local session; what a cluster needs differently is for `[spark.conf]`."""
    # -Xss: Spark redacts errors with a regular expression that recurses; stopping a query in the middle of a
    # batch twice ended in a StackOverflowError at the default 1 MiB.
    logging = (shipped_dir("conf") / "spark-log4j2.properties").as_uri()
    driver_options = (
        f"-Xss8m {_AVRO_LIMITS} -Dlog4j2.configurationFile={logging} "
        f"-Dheadwater.spark.log={settings.log} {java_options}"
    ).strip()
    master = settings.master or f"local[{cores}]"
    return {
        "spark.app.name": app_name,
        "spark.master": master,
        "spark.driver.memory": settings.driver_memory,
        **(_LOOPBACK if _is_here(master) else {}),
        # Workers of a cluster may lack the module, and do not start then.
        **({"spark.python.daemon.module": _DAEMON} if master.partition("[")[0] == "local" else {}),
        "spark.driver.extraJavaOptions": driver_options,
        "spark.executor.extraJavaOptions": _AVRO_LIMITS,
        "spark.jars": ",".join(str(jar) for jar in jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta's default of 50 is for tables with millions of files: here it doubled the time of every read.
        "spark.databricks.delta.snapshotPartitions": "2",
        # Of more than 32 files that are named one by one Spark has each looked at by a task of its own: 40 took 0.36 s,
        # and 0.06 s in the driver, 1,000 took 3.8 and 0.4 s.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        # A task costs more than the rows of a micro-batch do: no more partitions than cores.
        "spark.sql.shuffle.partitions": str(cores),
        "spark.default.parallelism": str(cores),
        "spark.sql.session.timeZone": "UTC",
        # Spark's default goes through Hadoop's FileContext, which starts a shell command for each file of state that
        # it renames here: a tenth of a small batch's CPU time.
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        # A stage that turns out empty would be dropped together with its observed metrics: a batch without a match
        # would wait for its account for ever.
        "spark.sql.adaptive.optimizer.excludedRules": (
            "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
        ),
        # The result of a stateful job's batch is cached until it is written; to try encodings on each of its columns
        # took a tenth of a wide join's CPU time.
        "spark.sql.inMemoryColumnarStorage.compressed": "false",
        # Offsets are unique, and timestamps are in order, which the codec uses: to look for a dictionary of them took
        # 7 % of the CPU time of a job that passes rows through.
        "spark.hadoop.parquet.enable.dictionary#_offset": "false",
        "spark.hadoop.parquet.enable.dictionary#_timestamp": "false",
        # Parquet looks for 0.0 in a file's dictionary by its bits: `x = 0` would pass over a file whose zeros are -0.0.
        "spark.hadoop.parquet.filter.dictionary.enabled": "false",
        # Spark's default, INT96, has no statistics in a file, takes 5 to 16 % more CPU time to write and read, and is
        # nanoseconds to other readers, some of which refuse the year 9999 then.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # Spark's default, 128 groups, has all rows of larger aggregates of lists, sets or sketches sorted: 1,024 took
        # an eighth less CPU time over windows of some hundred groups, and 4,096 no less than that.
        "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "1024",
        # PySpark notes the caller's line with every column expression, over py4j: an operation took 650 us, then 314.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.warehouse.dir": str(home / "spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **settings.conf,
    }


def java_conf(
    conf: Mapping[str, str], environ: Mapping[str, str], *, is_brief: bool = False
) -> dict[str, str]:
    """Java's options for the driver: its garbage collector, large pages, and in a brief session the first compiler
    alone; nothing if the settings replace these options, or others name a collector: Java does not start with two."""
    all_options = [
        conf.get("spark.driver.extraJavaOptions", ""),
        *(environ.get(name, "") for name in _JAVA_VARIABLES),
    ]
    if _DEFAULT_OPTIONS in conf or any(_A_COLLECTOR.search(options) for options in all_options):
        return {}
    options = [_COLLECTOR, _LARGE_PAGES if _has_large_pages() else "", _FIRST_COMPILER if is_brief else ""]
    return {_DEFAULT_OPTIONS: " ".join(filter(None, options))}


def _has_large_pages() -> bool:
    """Whether the kernel gives large pages on request. Java prints a warning if it does not, and knows the option on
    Linux alone."""
    try:
        return "[never]" not in _KERNEL_SAYS.read_text()
    except OSError:
        return False


def spark_session(
    home: str | os.PathLike[str],
    *,
    app_name: str = "headwater",
    cores: int | None = None,
    extra: Mapping[str, str] | None = None,
    master: str | None = None,
    modules: Iterable[Path] = (),
    is_brief: bool = False,
) -> "SparkSession":
    """A Spark session with Delta, the Kafka source and every pin that Headwater relies on.

    The session's Java and jars are checked first. PySpark keeps one JVM for each process: called again, this
    returns the running session with the settings of `extra` that can still change.

    Args:
        home: The folder that holds the tables; Spark's own warehouse goes below it if something needs one.
        app_name: What the session calls itself.
        cores: Worker threads and shuffle partitions; by default the setting `spark.cores`.
        extra: Spark settings that win over ours and over those of `[spark.conf]`.
        master: Where it runs; by default the setting `spark.master`.
        modules: On a cluster, modules that are sent there beside our packages.
        is_brief: Whether it is for a command of some seconds, whatever the size of the tables.

    Raises:
        DependencyError: Without PySpark, a Java 17 or 21, the jars, or a master that answers; the message says
            what to do.
    """
    if find_spec("pyspark") is None:
        raise DependencyError("PySpark is not installed: run pip install 'headwater[spark]'")
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from headwater_streams.spark.jvm_process import java_ends_with_python
    from headwater_streams.spark.round_trips import few_round_trips, know_classes

    settings = load_settings(os.environ, {"spark.master": master}).settings.spark
    java = find_java(os.environ)
    conf = session_conf(
        Path(home).resolve(),
        settings,
        app_name=app_name,
        cores=cores or settings.cores,
        jars=jar_paths(os.environ),
        java_options=archive_options(os.environ, java),
    ) | dict(extra or {})
    conf |= java_conf(conf, os.environ, is_brief=is_brief)
    require_master(conf["spark.master"])
    silence_pandas_warning()
    builder = SparkSession.builder.config(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())))
    with (
        launch_environment(java, here=_is_here(conf["spark.master"])),
        java_ends_with_python(),
        interrupted_afterwards() as take_signal,
    ):
        SparkContext.getOrCreate(SparkConf().setAll(list(conf.items())))
        take_signal()  # PySpark has taken it, to cancel jobs over py4j
        session: SparkSession = builder.getOrCreate()
    if not conf["spark.master"].startswith("local"):
        session.sparkContext.addPyFile(str(packages_zip(Path(home).resolve() / "spark-packages", modules)))
    _silence_statement_errors()
    know_classes(session)
    few_round_trips(session)
    warn_without_worker(session)
    return session


def silence_pandas_warning() -> None:
    """PySpark 4.2 warns of pandas 3 in every process with a session, whether or not a column is computed with it."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)


def _silence_statement_errors() -> None:
    """PySpark logs each refused statement and column with the stack traces of two languages; we say it in a sentence.

    So does py4j with what a batch function raises and with a JVM that ended; both come back as exceptions.
    """
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_not_of_py4j)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"
