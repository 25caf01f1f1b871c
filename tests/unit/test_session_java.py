"""Which garbage collector a session's driver is started with, which pages of memory, which compilers."""

from pathlib import Path

import pytest

from headwater.stack import session
from headwater.stack.session import java_conf

EXTRA, DEFAULT = "spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions"


@pytest.mark.parametrize(
    ("kernel", "pages"),
    [
        ("always [madvise] never\n", " -XX:+UseTransparentHugePages"),
        ("[always] madvise never\n", " -XX:+UseTransparentHugePages"),
        ("always madvise [never]\n", ""),
        (None, ""),
    ],
)
def test_a_driver_collects_in_parallel_in_large_pages_if_there_are_some(
    kernel: str | None, pages: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says = tmp_path / "enabled"
    if kernel is not None:
        says.write_text(kernel)
    monkeypatch.setattr(session, "_KERNEL_SAYS", says)
    assert java_conf({EXTRA: "-Xss8m"}, {}) == {DEFAULT: f"-XX:+UseParallelGC{pages}"}
    brief = {DEFAULT: f"-XX:+UseParallelGC{pages} -XX:TieredStopAtLevel=1"}
    assert java_conf({EXTRA: "-Xss8m"}, {}, is_brief=True) == brief


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"])
def test_java_is_not_given_a_second_collector(variable: str) -> None:
    assert java_conf({}, {variable: "-Xint -XX:+UseG1GC"}) == {}
    assert java_conf({}, {variable: "-Xint"}) != {}


def test_options_of_a_user_stand_as_they_are() -> None:
    assert java_conf({EXTRA: "-XX:+UseZGC -Xss8m"}, {}) == {}
    assert java_conf({DEFAULT: "-XX:TieredStopAtLevel=1"}, {}) == {}
