"""Which garbage collector a session's driver is started with."""

import pytest

from headwater.stack.session import collector_conf

EXTRA, DEFAULT = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"


def test_a_driver_collects_in_parallel() -> None:
    assert collector_conf({EXTRA: "-Xss8m"}, {}) == {DEFAULT: "-XX:+UseParallelGC"}


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_java_is_not_given_a_second_collector(variable: str) -> None:
    assert collector_conf({}, {variable: "-Xint -XX:+UseG1GC"}) == {}
    assert collector_conf({}, {variable: "-Xint"}) != {}


def test_options_of_a_user_stand_as_they_are() -> None:
    assert collector_conf({EXTRA: "-XX:+UseZGC -Xss8m"}, {}) == {}
    assert collector_conf({DEFAULT: "-XX:TieredStopAtLevel=1"}, {}) == {}
