"""The garbage collector, the pages of memory and the compilers of a session's driver, and a warning it hides."""

import warnings
from pathlib import Path

import pytest

from headwater.stack import session
from headwater.stack.session import java_conf, silence_pandas_warning

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


def test_pandas_warning_is_not_shown_to_who_runs_a_command() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        silence_pandas_warning()
        text = "PySpark does not yet fully support pandas >= 3.0.0. Some features may not work correctly."
        warnings.warn(text, FutureWarning, stacklevel=1)
        warnings.warn("another", FutureWarning, stacklevel=1)
    assert [str(each.message) for each in shown] == ["another"]
