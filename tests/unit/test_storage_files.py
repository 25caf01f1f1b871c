"""The door to files: what it does where a file system has no links, a file goes meanwhile, or another has the lock."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headwater_streams.storage import files


def _fails(error: type[OSError]) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise error("no")

    return fail


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files.write_text(tmp_path / "from" / "b" / "2.json", "two")
    files.write_text(tmp_path / "from" / "1.json", "one")
    return tmp_path


def test_what_is_listed_is_in_order_and_nothing_where_there_is_no_folder(folder: Path) -> None:
    names = [path.name for path in files.matching(folder / "from")]
    assert names == ["1.json", "b"]
    assert [path.name for path in files.files_below(folder / "from", "*.json")] == ["1.json", "2.json"]
    assert files.matching(folder / "gone") == files.files_below(folder / "gone") == []


def test_text_has_no_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\xef\xbb\xbfa\xc3\xa4\n")
    assert files.read_text(tmp_path / "a") == "a\u00e4\n"


def test_link_is_the_file_itself_or_a_copy_and_stays_where_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, copied = folder / "from" / "1.json", folder / "linked", folder / "copied"
    files.link(source, target)
    assert files.identity_of(source) == files.identity_of(target)
    target.with_name("other").write_text("other")
    files.link(target.with_name("other"), target)
    assert target.read_text() == "one"
    monkeypatch.setattr(os, "link", _fails(OSError))
    files.link(source, copied)
    assert files.is_same_file(source, copied)
    assert files.identity_of(source)[0] != files.identity_of(copied)[0]
    assert [path.name for path in folder.glob(".*")] == []


@pytest.mark.parametrize(("error", "expected"), [(FileNotFoundError, []), (OSError, ["1.json", "2.json"])])
def test_tree_of_links_leaves_out_what_goes_and_copies_without_links(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError], expected: list[str]
) -> None:
    monkeypatch.setattr(os, "link", _fails(error))
    files.link_tree(folder / "from", folder / "to")
    assert [path.name for path in files.files_below(folder / "to")] == expected


def test_tree_that_cannot_be_removed_is_an_error_only_where_it_must_go(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil.os, "rmdir", _fails(PermissionError))  # type: ignore[attr-defined]
        files.remove_tree(folder / "from")
        with pytest.raises(PermissionError):
            files.remove_tree(folder / "from", wholly=True)
    assert files.is_folder(folder / "from")
    files.remove_tree(folder / "from", wholly=True)
    files.remove_tree(folder / "from")
    assert not files.exists(folder / "from")


def test_lock_is_one_holders_or_shared_and_free_behind_the_block(tmp_path: Path) -> None:
    lock = tmp_path / "turns" / "lock"

    def is_free(*, shared: bool) -> bool:
        try:
            with files.locked(lock, shared=shared, waits=False):
                return True
        except BlockingIOError:
            return False

    assert is_free(shared=False)
    with files.locked(lock, shared=True):
        assert (is_free(shared=True), is_free(shared=False)) == (True, False)
    with files.locked(lock):
        assert (is_free(shared=True), is_free(shared=False)) == (False, False)
    assert is_free(shared=False)


def test_file_that_is_not_there_is_removed_and_one_that_is_touched_keeps_its_text(tmp_path: Path) -> None:
    files.remove(tmp_path / "gone")
    files.touch(tmp_path / "flag")
    files.write_text(tmp_path / "text", "kept")
    files.touch(tmp_path / "text")
    assert (files.read_text(tmp_path / "flag"), files.read_text(tmp_path / "text")) == ("", "kept")
    files.move(tmp_path / "text", tmp_path / "flag")
    assert (files.file_bytes(tmp_path / "flag"), files.size_of(tmp_path / "flag")) == (b"kept", 4)
    assert not files.exists(tmp_path / "text")


def test_scratch_folder_goes_with_the_block(tmp_path: Path) -> None:
    with files.scratch_folder(tmp_path, "x-") as scratch:
        files.write_text(scratch / "a", "a")
        assert scratch.name.startswith("x-")
    assert files.matching(tmp_path) == []
