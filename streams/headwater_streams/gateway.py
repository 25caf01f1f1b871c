"""Classes of the JVM by their full names.

`jvm.org.apache.spark...` asks the JVM for a class at each dot, and each `org`, `org.apache` that is none is looked for
in every jar, a dozen times over: 15 % of a small batch's CPU. A full name is found at once.
"""

from typing import Any

from pyspark.sql import SparkSession


def jvm_class(spark: SparkSession, name: str) -> Any:
    """A class, `"scala.Some"`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only door to the JVM
    found = getattr(jvm, name)
    setattr(jvm, name, found)  # the next look-up ends here
    return found


def scala_object(spark: SparkSession, name: str) -> Any:
    """The instance of a Scala `object`."""
    return getattr(jvm_class(spark, f"{name}$"), "MODULE$")


def to_list(sequence: Any) -> list[Any]:
    """A Scala `Seq` as a list. py4j ends a walk by an exception, which PySpark compares with thirteen classes."""
    return [sequence.apply(place) for place in range(sequence.size())]


def to_seq(spark: SparkSession, items: list[Any]) -> Any:
    """A list as a Scala `Seq`."""
    return jvm_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(items)
