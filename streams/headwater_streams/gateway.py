"""Classes of the JVM by their full names.

`jvm.org.apache.spark...` asks the JVM for a class at each dot, and each `org`, `org.apache` that is none is looked for
in every jar, a dozen times over: 15 % of a small batch's CPU. A full name is found at once.
"""

from typing import Any

from pyspark.sql import SparkSession


def jvm_class(spark: SparkSession, name: str) -> Any:
    """A class, `"scala.Some"`."""
    return getattr(spark._jvm, name)  # noqa: SLF001 - PySpark's only door to the JVM


def scala_object(spark: SparkSession, name: str) -> Any:
    """The instance of a Scala `object`."""
    return getattr(jvm_class(spark, f"{name}$"), "MODULE$")


def to_java(spark: SparkSession, collection: Any) -> Any:
    """A Scala collection as one that py4j can walk through."""
    return jvm_class(spark, "scala.jdk.javaapi.CollectionConverters").asJava(collection)


def to_seq(spark: SparkSession, items: list[Any]) -> Any:
    """A list as a Scala `Seq`."""
    return jvm_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(items)
