"""The archive of classes: whose it is, when it is used, and what is said where there can be none."""

from pathlib import Path

import pytest

from headwater.stack import classes as classes_module
from headwater.stack.classes import archive_options, class_archive, ensure_class_archive
from headwater.stack.java import Java


def _java(home: Path, version: str) -> Java:
    (home / "bin").mkdir(parents=True, exist_ok=True)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n', encoding="utf-8")
    return Java(home, 17, "JAVA_HOME")


def _script(path: Path, does: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HEADWATER_JARS": str(tmp_path / "jars")}


@pytest.fixture
def java(tmp_path: Path) -> Java:
    return _java(tmp_path / "java", "17.0.1")


def test_class_archive_is_that_of_one_build_of_java(tmp_path: Path, environ: dict[str, str]) -> None:
    first = class_archive(environ, _java(tmp_path / "java", "17.0.1"))
    assert first == class_archive(environ, _java(tmp_path / "java", "17.0.1"))
    others = {
        class_archive(environ, _java(tmp_path / name, version))
        for name, version in (("java", "17.0.2"), ("elsewhere", "17.0.1"))
    }
    assert first not in others
    assert len(others) == 2
    assert {each.parent for each in {first, *others}} == {tmp_path / "classes"}


def test_class_archive_is_used_once_it_is_there(environ: dict[str, str], java: Java) -> None:
    archive = class_archive(environ, java)
    assert archive_options(environ, java) == ""
    archive.parent.mkdir(exist_ok=True)
    archive.touch()
    below = archive.with_name(f"{archive.stem}-java.jsa")
    assert f"-XX:SharedArchiveFile={below}:{archive}" in archive_options(environ, java).split()


def test_ensure_class_archive_that_is_there_trains_nothing(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, java: Java
) -> None:
    monkeypatch.setattr(classes_module, "_write", lambda *given: pytest.fail("trained"))
    archive = class_archive(environ, java)
    archive.parent.mkdir(exist_ok=True)
    archive.touch()
    assert ensure_class_archive(environ, java) is None


def test_ensure_class_archive_puts_new_ones_in_the_place_of_others(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, java: Java
) -> None:
    _script(tmp_path / "java" / "bin" / "java", 'echo below > "${2#-XX:SharedArchiveFile=}"')
    training = _script(tmp_path / "training", 'echo new > "$5"')
    monkeypatch.setattr(classes_module.sys, "executable", str(training))
    archive = class_archive(environ, java)
    archive.parent.mkdir(exist_ok=True)
    (archive.parent / "0123456789abcdef.jsa").touch()
    assert ensure_class_archive(environ, java) is None
    written = {path.name: path.read_text() for path in archive.parent.glob("*.jsa")}
    assert written == {archive.name: "new\n", f"{archive.stem}-java.jsa": "below\n"}


@pytest.mark.parametrize("fails", ["java", "training"])
def test_ensure_class_archive_says_why_there_is_none(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fails: str, java: Java
) -> None:
    _script(tmp_path / "java" / "bin" / "java", 'echo below > "${2#-XX:SharedArchiveFile=}"')
    training = _script(tmp_path / "training", 'echo new > "$5"')
    failing = tmp_path / "java" / "bin" / "java" if fails == "java" else training
    monkeypatch.setattr(classes_module.sys, "executable", str(training))
    _script(failing, "echo first; echo no room for that; echo '  ... 47 more'; exit 3")
    assert ensure_class_archive(environ, java) == "no room for that"
    _script(failing, "exit 0")
    assert ensure_class_archive(environ, java) == "this Java writes none"
    assert list((tmp_path / "classes").iterdir()) == []


def test_ensure_class_archive_where_nothing_can_be_written_says_so(
    environ: dict[str, str], tmp_path: Path, java: Java
) -> None:
    (tmp_path / "classes").write_text("a file")
    assert ensure_class_archive(environ, java) == f"{tmp_path / 'classes'}: File exists"


def test_class_archive_below_a_path_with_a_space_is_not_asked_for(
    environ: dict[str, str], tmp_path: Path, java: Java
) -> None:
    spaced = {"HEADWATER_JARS": str(tmp_path / "my jars" / "jars")}
    assert ensure_class_archive(spaced, java) == f"the path {tmp_path / 'my jars' / 'classes'} has a space"
    archive = class_archive(spaced, java)
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert archive_options(spaced, java) == ""
