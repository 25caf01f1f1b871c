"""The jars: what is accepted, and what is said of those that are not."""

import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from headwater.config import shipped_dir
from headwater.errors import DependencyError
from headwater.stack import jars as jars_module
from headwater.stack.jars import LockedJar, ensure_jars, jar_paths, jar_problems, locked_jars
from headwater.stack.places import jars_dir

_ABC = LockedJar("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 3, "abc.jar")


def test_locked_jars_are_those_of_the_ivy_file() -> None:
    dependencies = ET.parse(shipped_dir("conf") / "jars.ivy.xml").findall("dependencies/dependency")
    asked = {f"{each.get('name')}-{each.get('rev')}.jar" for each in dependencies}
    assert {jar.name for jar in locked_jars()} == asked
    assert all(each.get("transitive") == "false" for each in dependencies)
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in locked_jars())


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"abc", None), (None, "missing"), (b"ab", "half fetched"), (b"abd", "damaged"), (b"abcd", "damaged")],
)
def test_locked_jar_tells_what_is_wrong(tmp_path: Path, content: bytes | None, problem: str | None) -> None:
    if content is not None:
        (tmp_path / "abc.jar").write_bytes(content)
    assert _ABC.problem(tmp_path) == problem


def test_jar_paths_of_a_half_fetched_jar_say_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars_module, "locked_jars", lambda: (_ABC,))
    (tmp_path / "abc.jar").write_bytes(b"a")
    with pytest.raises(DependencyError) as caught:
        jar_paths({"HEADWATER_JARS": str(tmp_path)})
    assert str(caught.value) == (
        f"the jars in {tmp_path} are not complete (abc.jar is half fetched): run headwater setup"
    )


def test_ensure_jars_that_are_there_needs_neither_java_nor_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jars_module, "locked_jars", lambda: (_ABC,))
    monkeypatch.setattr(jars_module, "find_java", lambda environ: pytest.fail("looked for Java"))
    (tmp_path / "abc.jar").write_bytes(b"abc")
    assert ensure_jars({"HEADWATER_JARS": str(tmp_path)}) is False


def test_ensure_jars_keeps_the_right_ones_and_replaces_the_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(environ: object, java: object, scratch: Path, progress: object) -> None:
        (scratch / "retrieved").mkdir()
        (scratch / "retrieved" / "abc.jar").write_bytes(b"abc")

    monkeypatch.setattr(jars_module, "locked_jars", lambda: (_ABC,))
    monkeypatch.setattr(jars_module, "find_java", lambda environ: None)
    monkeypatch.setattr(jars_module, "_fetch", fetch)
    (tmp_path / "abc.jar").write_bytes(b"a")
    (tmp_path / ".fetch-left-by-a-kill").mkdir()
    assert ensure_jars({"HEADWATER_JARS": str(tmp_path)}) is True
    assert jar_problems(tmp_path) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "abc.jar"]


def test_ensure_jars_refuses_another_file_under_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(environ: object, java: object, scratch: Path, progress: object) -> None:
        (scratch / "retrieved").mkdir()
        (scratch / "retrieved" / "abc.jar").write_bytes(b"xyz")

    monkeypatch.setattr(jars_module, "locked_jars", lambda: (_ABC,))
    monkeypatch.setattr(jars_module, "find_java", lambda environ: None)
    monkeypatch.setattr(jars_module, "_fetch", fetch)
    with pytest.raises(DependencyError, match=r"abc\.jar arrived damaged, so it was not kept"):
        ensure_jars({"HEADWATER_JARS": str(tmp_path)})
    assert not (tmp_path / "abc.jar").exists()


def test_ensure_jars_in_a_folder_that_is_not_writable_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DependencyError, match=r"cannot write to .*set HEADWATER_JARS"):
        ensure_jars({"HEADWATER_JARS": str(tmp_path / "file" / "jars"), "PATH": os.defpath})


def test_jars_dir_is_the_environment_s_unless_named() -> None:
    assert jars_dir({}).parts[-3:] == ("share", "headwater", "jars")
    assert jars_dir({"HEADWATER_JARS": "elsewhere"}) == Path("elsewhere")
