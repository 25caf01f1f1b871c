"""Classes of the JVM by their full names.

`jvm.org.apache.spark...` asks the JVM for a class at each dot. It searches every jar for `org` and `org.apache`, which
are no classes, a dozen times over: 15 % of a small batch's CPU. A full name is found at once.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from py4j.java_gateway import JavaClass, JavaMember
from pyspark.sql import SparkSession

_SAME = {
    "org.apache.spark.sql.functions": {"col", "lit"},
    "org.apache.spark.sql.types.Metadata": {"fromJson"},
}
"""Methods whose results never change, and are the same for the same arguments."""
_REMEMBERED, _MOST_CHARACTERS = 4096, 200


class KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of the JVM whose static methods are looked up once; py4j looks them up before each call.

    The results of the methods in `_SAME` are remembered, too: a column of the JVM is made once for each name.
    """

    def __getattr__(self, name: str) -> Any:
        member: Any = super().__getattr__(name)
        if isinstance(member, JavaMember):
            if name in _SAME.get(self._fqn, ()):
                member = _remembering(member)
            setattr(self, name, member)  # the next look-up ends here
        return member


def _remembering(method: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(_REMEMBERED, typed=True)
    def remembered(*arguments: Any) -> Any:
        return method(*arguments)

    def call(*arguments: Any) -> Any:
        return remembered(*arguments) if all(map(_is_plain, arguments)) else method(*arguments)

    return call


def _is_plain(argument: Any) -> bool:
    """Whether equal arguments are the same: 0.0 and -0.0 are not, and of the JVM's objects only the JVM knows."""
    kind = type(argument)
    return kind in (int, bool, type(None)) or (kind is str and len(argument) <= _MOST_CHARACTERS)


def jvm_class(spark: SparkSession, name: str) -> Any:
    """A class, `"scala.Some"`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only door to the JVM
    java_class = getattr(jvm, name)
    if type(java_class) is JavaClass:
        java_class = KnownClass(java_class._fqn, java_class._gateway_client)  # noqa: SLF001 - what makes another of the same
        setattr(jvm, name, java_class)
    return java_class


def scala_object(spark: SparkSession, name: str) -> Any:
    """The instance of a Scala `object`."""
    java_class = jvm_class(spark, f"{name}$")
    instance = getattr(java_class, "MODULE$")
    setattr(java_class, "MODULE$", instance)
    return instance


def to_list(sequence: Any) -> list[Any]:
    """A Scala `Seq` as a list. py4j ends a walk by an exception, which PySpark compares with thirteen classes."""
    return [sequence.apply(place) for place in range(sequence.size())]


def to_seq(spark: SparkSession, items: list[Any]) -> Any:
    """A list as a Scala `Seq`."""
    return jvm_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(items)
