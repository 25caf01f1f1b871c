"""Which files a path or a pattern of the command line names, and what of the command line is refused at once."""

import errno
import glob
import os
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.ship import ship
from headwater.errors import UsageError
from headwater.ship.discovery import absolute, matches_nothing, matching_files, sizes_of
from headwater.ship.expansion import Refused, paths_under


def names_under(*patterns: str) -> list[str]:
    return sorted(Path(match.path).name for match in matching_files(patterns).files.values())


def write(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("one\n")


def test_discovery_brackets_in_a_file_s_name_stand_for_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a[1].log", tmp_path / "a1.log")
    monkeypatch.chdir(tmp_path)
    assert names_under(absolute("a[1].log")) == ["a[1].log"]
    assert names_under(absolute(f"{tmp_path}/a[1].log")) == ["a[1].log"]


@pytest.mark.parametrize("pattern", ["*.log", "./*.log", "../x[ab]/*.log", "../*[[]ab]/./*.log"])
def test_discovery_brackets_in_the_working_folder_s_name_stand_for_themselves(
    pattern: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "x[ab]" / "a.log", tmp_path / "xa" / "b.log")
    monkeypatch.chdir(tmp_path / "x[ab]")
    if pattern.startswith("../x"):  # there they were typed, and are a pattern's
        assert names_under(absolute(pattern)) == ["b.log"]
    else:
        assert names_under(absolute(pattern)) == ["a.log"]
    assert not matches_nothing(absolute(pattern))


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("app.log", "{}/app.log"),
        ("./app.log*", "{}/app.log*"),
        ("../logs//*.log", "{}/*.log"),
        ("/var/log/*.log", "/var/log/*.log"),
        ("/var/./log/app.log", "/var/log/app.log"),
    ],
)
def test_discovery_name_without_brackets_is_made_absolute_as_ever(
    typed: str, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logs").mkdir()
    monkeypatch.chdir(tmp_path / "logs")
    assert absolute(typed) == whole.format(tmp_path / "logs")


def test_discovery_file_with_brackets_that_comes_later_is_found_where_its_pattern_matches_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pattern = absolute("a[1].log")
    assert matches_nothing(pattern)
    write(tmp_path / "a[1].log")
    assert names_under(pattern) == ["a[1].log"]
    write(tmp_path / "a1.log")
    assert names_under(pattern) == ["a1.log"]


def test_discovery_stars_end_in_a_tree_with_loops_and_go_through_links(tmp_path: Path) -> None:
    tree, elsewhere = tmp_path / "tree", tmp_path / "elsewhere"
    write(tree / "a.log", tree / "in" / "deep" / "b.log", tree / ".hidden" / "no.log", elsewhere / "c.log")
    (tree / "loop").symlink_to(tree)
    (tree / "in" / "loop").symlink_to(tree)
    (tree / "link").symlink_to(elsewhere)
    assert names_under(f"{tree}/**/*.log") == ["a.log", "b.log", "c.log"]
    assert names_under(f"{tree}/**") == ["a.log", "b.log", "c.log"]
    assert names_under(f"{tmp_path}/t*/**/deep/*.log") == ["b.log"]
    assert names_under(f"{tree}/**/in/**/*.log") == ["a.log", "b.log", "c.log"]
    assert matches_nothing(f"{tree}/**/*.txt")


def test_discovery_sizes_are_those_of_the_files_under_the_patterns(tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    write(log, tmp_path / "other.txt", tmp_path / "app.log.gz")
    (tmp_path / "link.log").symlink_to(log)
    assert sizes_of([f"{tmp_path}/*.log*"]) == {(log.stat().st_dev, log.stat().st_ino): 4}


@pytest.mark.parametrize("option", ["name", "topic"])
def test_ship_name_that_is_not_utf_8_is_refused(option: str) -> None:
    names = {"name": "here", "topic": "logs", option: os.fsdecode(b"\xff\xfe")}
    with pytest.raises(UsageError, match=rf"^--{option} is not UTF-8$"):
        ship(["app.log"], bootstrap="127.0.0.1:1", **names)


@pytest.mark.parametrize(
    "pattern",
    ["*", "*.log", ".*", "[ab].log", "?.log", "*/*.log", "a[[]1].log", "x*/[!b]*", "c/*.log/*", "a.log/*", "none/*",
     "*/", "x.d/a.log", "[[]*", "*.[Ll]og"],
)  # fmt: skip
def test_discovery_pattern_matches_what_glob_has_it_match(tmp_path: Path, pattern: str) -> None:
    for name in ("a.log", "b.log", ".hidden.log", "a[1].log", "x.d/a.log", "x.d/b.log", "c/d.log/e", "B.Log"):
        write(tmp_path / name)
    (tmp_path / "gone.log").symlink_to("nowhere")
    refused: Refused = {}
    whole = f"{glob.escape(str(tmp_path))}/{pattern}"
    matched = glob.glob(whole)  # noqa: PTH207 - what it is compared with
    assert sorted(paths_under(whole, refused)) == sorted(each.rstrip("/") for each in matched)
    assert refused == {}


@pytest.mark.parametrize("pattern", ["locked/*.log", "*/*.log", "**/*.log", "**"])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EMFILE, errno.EIO])
def test_discovery_folder_that_cannot_be_looked_into_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str, error: int
) -> None:
    write(tmp_path / "locked" / "a.log", tmp_path / "open" / "b.log")
    scandir = os.scandir

    def refuse(folder: str) -> Any:
        if str(folder).endswith("locked"):
            raise OSError(error, os.strerror(error), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    found = matching_files([str(tmp_path / pattern)])
    assert {each: told.errno for each, told in found.refused.items()} == {str(tmp_path / "locked"): error}
    assert "b.log" in names_under(str(tmp_path / pattern)) or pattern.startswith("locked")


def test_discovery_file_that_cannot_be_looked_at_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a folder without the right to search it, the names alone can be read."""
    write(tmp_path / "a.log", tmp_path / "b.log")
    lstat = os.lstat

    def refuse(path: Any, **more: Any) -> Any:
        if str(path).endswith("a.log"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return lstat(path, **more)

    monkeypatch.setattr(os, "lstat", refuse)
    found = matching_files([str(tmp_path / "*.log")])
    assert list(found.refused) == [str(tmp_path / "a.log")]
    assert [Path(each.path).name for each in found.files.values()] == ["b.log"]
