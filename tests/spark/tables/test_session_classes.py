"""A session's JVM begins with the archive of classes that `headwater setup` made."""

import os
from pathlib import Path

from pyspark.sql import SparkSession

from headwater.stack.classes import class_archive
from headwater.stack.java import find_java


def test_session_maps_the_archive_of_its_java(spark: SparkSession) -> None:
    archive = class_archive(os.environ, find_java(os.environ))
    assert archive.exists(), "headwater setup makes it"
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    assert str(archive.resolve()) in Path(f"/proc/{jvm}/maps").read_text(encoding="utf-8")
