"""Classes of the JVM by their full names.

`jvm.org.apache.spark...` asks the JVM for a class at each dot, and each `org`, `org.apache` that is none is looked for
in every jar, a dozen times over: 15 % of a small batch's CPU. A full name is found at once.
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
"""Methods that give what cannot change, and the same for the same arguments."""
_REMEMBERED, _MOST_CHARACTERS = 4096, 200


class KnownClass(JavaClass):  # type: ignore[misc]  # py4j has no types
    """A class of the JVM whose static methods are asked for once; py4j asks before each call.

    A column's name is made a column of the JVM once.
    """

    def __getattr__(self, name: str) -> Any:
        found: Any = super().__getattr__(name)
        if isinstance(found, JavaMember):
            if name in _SAME.get(self._fqn, ()):
                found = _remembering(found)
            setattr(self, name, found)  # the next look-up ends here
        return found


def _remembering(method: Callable[..., Any]) -> Callable[..., Any]:
    @lru_cache(_REMEMBERED, typed=True)
    def known(*arguments: Any) -> Any:
        return method(*arguments)

    def call(*arguments: Any) -> Any:
        return known(*arguments) if all(map(_is_plain, arguments)) else method(*arguments)

    return call


def _is_plain(argument: Any) -> bool:
    """Whether equal ones are the same: 0.0 and -0.0 are not, and of an object of the JVM only the JVM knows."""
    kind = type(argument)
    return kind in (int, bool, type(None)) or (kind is str and len(argument) <= _MOST_CHARACTERS)


def jvm_class(spark: SparkSession, name: str) -> Any:
    """A class, `"scala.Some"`."""
    jvm: Any = spark._jvm  # noqa: SLF001 - PySpark's only door to the JVM
    found = getattr(jvm, name)
    if type(found) is JavaClass:
        found = KnownClass(found._fqn, found._gateway_client)  # noqa: SLF001 - what makes another of the same
        setattr(jvm, name, found)
    return found


def scala_object(spark: SparkSession, name: str) -> Any:
    """The instance of a Scala `object`."""
    found = jvm_class(spark, f"{name}$")
    instance = getattr(found, "MODULE$")
    setattr(found, "MODULE$", instance)
    return instance


def to_list(sequence: Any) -> list[Any]:
    """A Scala `Seq` as a list. py4j ends a walk by an exception, which PySpark compares with thirteen classes."""
    return [sequence.apply(place) for place in range(sequence.size())]


def to_seq(spark: SparkSession, items: list[Any]) -> Any:
    """A list as a Scala `Seq`."""
    return jvm_class(spark, "org.apache.spark.api.python.PythonUtils").toSeq(items)
