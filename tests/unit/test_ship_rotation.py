"""Rotation into other folders, compression by any program, and files that are replaced by new ones of their name."""

import bz2
import gzip
import lzma
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from followed import BANNER, Follower, append, compress, copytruncate
from headwater.ship.fileset import DELETED_QUIET_S
from headwater.ship.mark import HEAD_BYTES
from headwater.ship.possible_copies import HOLD_S

COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
LEFT_OUT = (
    "is compressed and left out: unless it was shipped before it was compressed, unpack it and ship that"
)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "old").mkdir()
    return tmp_path / "app.log"


def following(log: Path, *more: str) -> Follower:
    follower = Follower(log, *(log.parent / each for each in more or ("old/*",)))
    follower.scratch = log.parent
    return follower


def pack(path: Path, into: Path, by: Callable[[bytes], bytes] = gzip.compress) -> None:
    """As logrotate has it done: the compressed file keeps the time of the last change."""
    stat = path.stat()
    into.write_bytes(by(path.read_bytes()))
    os.utime(into, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    path.unlink()


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("copy_name", ["old/app.log.1", "old/2026-11-29/app.log", "old/app.log-20261129"])
def test_copy_in_another_named_folder_is_read_to_its_end(log: Path, copy_name: str, down: bool) -> None:
    append(log, BANNER, "one")
    follower = following(log, "old/**")
    follower.poll()
    append(log, "two")
    if down:
        follower.kill()
    copy = log.parent / copy_name
    copy.parent.mkdir(exist_ok=True)
    copytruncate(log, copy)
    append(log, "three")
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    assert sorted(follower.lines) == [BANNER, "one", "three", "two"]
    assert len(follower.sent) == 4
    assert follower.messages == []


@pytest.mark.parametrize("down", [True, False])
def test_copies_of_two_files_in_one_folder_are_told_apart(log: Path, down: bool) -> None:
    other = log.with_name("web.log")
    append(log, BANNER, "app 1")
    append(other, BANNER, "web 1")
    follower = following(log, "web.log", "old/*")
    follower.poll()
    append(log, "app 2")
    append(other, "web 2")
    if down:
        follower.kill()
    copytruncate(other, log.parent / "old" / "a")
    copytruncate(log, log.parent / "old" / "b")
    append(log, "app 3")
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    assert sorted(follower.lines) == sorted([BANNER, BANNER, "app 1", "app 2", "app 3", "web 1", "web 2"])
    by_file = {}
    for file_id, _, _, value in follower.sent:
        by_file.setdefault(file_id, []).append(value.decode().partition(" ")[0])
    assert all(len(set(names) - {BANNER}) == 1 for names in by_file.values())


def test_copy_in_a_folder_that_is_not_named_is_not_looked_for(log: Path) -> None:
    append(log, BANNER, "one", "lo", end="")
    follower = Follower(log)
    follower.poll()
    copytruncate(log, log.parent / "old" / "app.log.1")
    append(log, "two")
    follower.poll()
    assert follower.lines == [BANNER, "one", "two"]
    (message,) = follower.messages
    assert "with 2 bytes of it not read yet, and no copy is beside it" in message


@pytest.mark.parametrize("rotate", ["renamed", "copied"])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_file_compressed_into_another_folder_while_it_was_down_is_read_from_where_it_stood(
    log: Path, suffix: str, rotate: str
) -> None:
    append(log, BANNER, "one")
    follower = following(log)
    follower.poll()
    follower.kill()
    append(log, "two")
    packed = log.parent / "old" / f"app.log.1{suffix}"
    if rotate == "renamed":
        pack(log, packed, COMPRESSORS[suffix])
    else:
        copytruncate(log, log.with_name("copy"))
        pack(log.with_name("copy"), packed, COMPRESSORS[suffix])
    append(log, "three")
    for _ in range(2):
        follower.now += DELETED_QUIET_S
        follower.poll()
    assert sorted(follower.lines) == [BANNER, "one", "three", "two"]
    assert len(follower.sent) == 4
    assert follower.messages == []


@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize("name", ["app.log.1.gz", "app.log.1.zip", "app.log-20261129"])
@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_file_is_known_by_its_first_bytes_whatever_its_name_is(
    log: Path, suffix: str, name: str, down: bool
) -> None:
    """logrotate's `compresscmd zstd` without `compressext` names them .gz."""
    append(log, BANNER, "one")
    follower = following(log)
    follower.poll()
    if down:
        follower.kill()
    append(log, "more")
    pack(log, log.parent / "old" / name, COMPRESSORS[suffix])
    append(log, "two")
    for _ in range(3):
        follower.now += DELETED_QUIET_S
        follower.poll()
    assert sorted(follower.lines) == [BANNER, "more", "one", "two"]
    assert len(follower.sent) == 4
    assert follower.messages == []


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_compressed_file_that_is_not_whole_is_not_taken_for_the_rest(log: Path, suffix: str) -> None:
    append(log, BANNER, "one")
    follower = following(log)
    follower.poll()
    follower.kill()
    append(log, *[random.Random(number).randbytes(40).hex() for number in range(4000)])
    packed = log.parent / "old" / f"app.log.1{suffix}"
    pack(log, packed, COMPRESSORS[suffix])
    stat = packed.stat()
    packed.write_bytes(packed.read_bytes()[:-1000])
    os.utime(packed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    follower.poll()
    assert follower.lines == [BANNER, "one"]
    assert follower.messages == [f"{packed} {LEFT_OUT}"]


def test_compressed_file_of_several_members_is_read_whole(log: Path) -> None:
    append(log, BANNER, "one")
    follower = following(log)
    follower.poll()
    follower.kill()
    append(log, "two")
    whole = log.read_bytes()
    for suffix in (".gz", ".zst"):
        by = COMPRESSORS[suffix]
        packed = log.parent / "old" / f"app.log.1{suffix}"
        packed.write_bytes(by(whole[:200]) + by(whole[200:]))
    log.unlink()
    follower.poll()
    assert follower.lines == [BANNER, "one", "two"]


def test_generation_that_came_and_went_while_it_was_down_is_told_once(log: Path) -> None:
    append(log, BANNER, "one")
    follower = following(log)
    follower.saved_ms = log.stat().st_mtime_ns // 1_000_000
    follower.poll()
    follower.kill()
    old = log.parent / "old"
    append(old / "older", "from before the shipper")
    os.utime(old / "older", (1, 1))
    pack(old / "older", old / "app.log.9.gz")
    pack(log, old / "app.log.2.gz")
    append(log, f"{BANNER} another", "unseen")
    later = follower.saved_ms / 1000 + 3600
    os.utime(log, (later, later))
    pack(log, old / "app.log.1.gz")
    append(log, "three")
    follower.poll()
    assert follower.lines == [BANNER, "one", "three"]
    assert follower.messages == [f"{old}/app.log.1.gz {LEFT_OUT}"]
    follower.saved_ms = int(later * 1000) + 60_000
    follower.poll()
    follower.kill()
    follower.poll()
    assert len(follower.messages) == 1


@pytest.mark.parametrize("renamed", [True, False])
def test_compressed_file_that_was_told_is_not_told_by_the_next_run(log: Path, renamed: bool) -> None:
    append(log, "one")
    packed = log.parent / "old" / "app.log.1.gz"
    packed.write_bytes(gzip.compress(b"before\n"))
    follower = following(log)
    for _ in range(2):
        follower.poll()
        follower.kill()
    if renamed:
        packed = packed.rename(packed.with_name("app.log.2.gz"))
    follower.poll()
    assert len(follower.messages) == 1
    packed.with_name("app.log.0.gz").write_bytes(gzip.compress(b"another\n"))
    follower.kill()
    follower.poll()
    assert follower.messages[1:] == [f"{log.parent}/old/app.log.0.gz {LEFT_OUT}"]


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"patterns": 1, "decided": [[1]]}', b"\xff"])
def test_list_of_what_was_told_that_is_damaged_has_it_told_again(log: Path, damage: bytes) -> None:
    append(log, "one")
    (log.parent / "old" / "app.log.1.gz").write_bytes(gzip.compress(b"before\n"))
    follower = following(log)
    follower.poll()
    (log.parent / ".left-out.json").write_bytes(damage)
    follower.kill()
    follower.poll()
    assert len(follower.messages) == 2


def test_compressed_files_that_were_there_first_are_told_in_one_sentence(log: Path) -> None:
    append(log, "one")
    old = log.parent / "old"
    for number in range(12):
        (old / f"app.log.{number:02}.gz").write_bytes(gzip.compress(b"before\n"))
    follower = following(log)
    follower.poll()
    follower.poll()
    (message,) = follower.messages
    assert message.startswith(f"{old}/app.log.00.gz, {old}/app.log.01.gz, ")
    assert message.endswith(
        f"{old}/app.log.09.gz and 2 more are compressed and left out: "
        "unless they were shipped before they were compressed, unpack them and ship that"
    )
    for number in reversed(range(12)):  # as rotation renames them
        (old / f"app.log.{number:02}.gz").rename(old / f"app.log.{number + 1:02}.gz")
    follower.poll()
    assert len(follower.messages) == 1


@pytest.mark.parametrize("length", [10, 300, 3000])
def test_file_compressed_into_another_folder_while_it_is_followed_is_not_told(log: Path, length: int) -> None:
    append(log, "x" * length, "one")
    follower = following(log)
    follower.poll()
    append(log, "two")
    if length > 10:
        pack(log, log.parent / "old" / "app.log-20261129.gz")
    else:  # too short to be known by what it has
        log.rename(log.parent / "old" / "app.log-20261129")
        follower.poll()
        pack(log.parent / "old" / "app.log-20261129", log.parent / "old" / "app.log-20261129.gz")
    append(log, "three")
    for _ in range(3):
        follower.now += DELETED_QUIET_S
        follower.poll()
    assert sorted(follower.lines) == sorted(["x" * length, "one", "two", "three"])
    assert follower.messages == []


def test_file_that_grew_was_compressed_and_begun_anew_between_two_looks_gives_each_line_once(
    log: Path,
) -> None:
    append(log, f"{BANNER} line 1", "line 2")
    follower = Follower(log.with_name("app.log*"))
    follower.poll()
    append(log, "line 3", "line 4")
    compress(log)
    append(log, f"{BANNER} line 5", "line 6")
    for _ in range(3):
        follower.now += DELETED_QUIET_S
        follower.poll()
    lines = sorted(line.removeprefix(f"{BANNER} ") for line in follower.lines)
    assert lines == [f"line {number}" for number in range(1, 7)]
    assert follower.messages == []


def test_file_that_was_read_to_its_end_and_let_go_goes_on_in_what_was_compressed_of_it(log: Path) -> None:
    append(log, BANNER, "one")
    follower = Follower(log, log.parent / "old" / "*.gz")
    follower.scratch = log.parent
    follower.poll()
    log.rename(log.parent / "old" / "app.log-1")
    for _ in range(2):
        follower.now += 60
        follower.poll()
    follower.kill()
    append(log.parent / "old" / "app.log-1", "written late")
    pack(log.parent / "old" / "app.log-1", log.parent / "old" / "app.log-1.gz")
    follower.poll()
    assert follower.lines == [BANNER, "one", "written late"]
    assert follower.messages == []


def rewrite(path: Path, text: str, *, backup: Path | None = None) -> None:
    """As `sed -i`, rsync and editors do it: written anew beside its place, and renamed."""
    new = path.with_name("sedAbCdEf")
    new.write_text(text)
    if backup is not None:
        path.rename(backup)
    new.rename(path)


@pytest.mark.parametrize("pattern", ["app.log", "app.log*", "*"])
@pytest.mark.parametrize("more", ["", "two\n", "x" * 5000 + "\nlast"])
@pytest.mark.parametrize("down", [True, False])
def test_file_replaced_by_one_that_has_all_of_it_goes_on_there(
    log: Path, down: bool, more: str, pattern: str
) -> None:
    append(log, BANNER, "one")
    follower = Follower(log.with_name(pattern))
    follower.poll()
    for _ in range(2):
        if down:
            follower.kill()
        rewrite(log, log.read_text() + more)
        follower.poll()
        follower.now += HOLD_S
        follower.poll()
    append(log, " end")
    follower.poll()
    assert "\n".join(follower.lines) == log.read_text().rstrip("\n")
    assert len({each[0] for each in follower.sent}) == 1
    assert len(follower.sent) == len(follower.lines)
    assert follower.messages == []


@pytest.mark.parametrize("pattern", ["app.log", "app.log*"])
@pytest.mark.parametrize("down", [True, False])
def test_file_replaced_by_one_that_has_all_of_it_is_read_once_though_it_is_kept_as_a_backup(
    log: Path, pattern: str, down: bool
) -> None:
    """`sed -i.bak`, emacs and vim leave the old file beside the new one."""
    append(log, *[f"line {number:04}" for number in range(200)])
    follower = Follower(log.with_name(pattern))
    follower.poll()
    if down:
        follower.kill()
    rewrite(log, log.read_text() + "new\n", backup=log.with_name("app.log~"))
    for _ in range(3):
        follower.now += HOLD_S
        follower.poll()
    append(log, "newer")
    follower.poll()
    assert follower.lines == [*[f"line {number:04}" for number in range(200)], "new", "newer"]
    assert len(follower.sent) == 202


def test_file_replaced_by_one_that_lacks_what_was_not_read_of_it_is_read_and_so_is_the_new_one(
    log: Path,
) -> None:
    append(log, BANNER, "one")
    follower = Follower(log)
    follower.poll()
    append(log, "lost by the editor")
    rewrite(log, f"{BANNER}\none\ntwo\n")
    follower.poll()
    follower.poll()
    assert follower.lines.count("lost by the editor") == 1
    assert follower.lines.count("two") == 1


def test_file_replaced_by_one_that_differs_is_a_new_file(log: Path) -> None:
    append(log, BANNER, "one", "two")
    follower = Follower(log)
    follower.poll()
    rewrite(log, f"{BANNER}\nONE\ntwo\nthree\n")
    follower.poll()
    assert follower.lines == [BANNER, "one", "two", BANNER, "ONE", "two", "three"]


def test_log_that_is_rotated_and_begins_with_the_same_banner_is_a_new_file(log: Path) -> None:
    append(log, BANNER)
    follower = Follower(log)
    follower.poll()
    append(log, "unread")
    log.rename(log.parent / "old" / "app.log.1")
    append(log, BANNER, "new")
    follower.poll()
    append(log.parent / "old" / "app.log.1", "late")
    follower.poll()
    assert sorted(follower.lines) == sorted([BANNER, BANNER, "unread", "new", "late"])


LOGROTATE = shutil.which("logrotate", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


@pytest.mark.skipif(LOGROTATE is None, reason="logrotate is not installed here")
@pytest.mark.parametrize("down", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        "copytruncate",
        "copytruncate; compress",
        "copytruncate; olddir old",
        "copytruncate; olddir old; compress",
        "copytruncate; olddir old; compress; dateext; dateformat -%Y%m%d-%s",
        "copytruncate; olddir old; compress; delaycompress",
        "create; olddir old",
        "create; olddir old; compress",
        "nocreate; compress",
        "create; olddir old; compress; dateext; dateformat -%s; extension .log",
        "copytruncate; olddir old; compress; compresscmd /usr/bin/xz; compressext .xz",
        "create; olddir old; compress; compresscmd /usr/bin/bzip2; compressext .bz2",
        "create; olddir old; compress; compresscmd /usr/bin/zstd; compressoptions -q; compressext .zst",
        "create; olddir old; compress; compresscmd /usr/bin/zstd; compressoptions -q",
    ],
)
def test_logrotate_gives_each_line_once(log: Path, options: str, down: bool) -> None:
    command = options.partition("compresscmd ")[2].partition(";")[0]
    if command and shutil.which(command) is None:
        pytest.skip(f"{command} is not installed here")
    configuration = log.with_name("logrotate.conf")
    lines = options.replace("olddir old", f"olddir {log.parent}/old").replace("; ", "\n")
    configuration.write_text(f"{log} {{\nrotate 9\n{lines}\n}}\n")
    configuration.chmod(0o644)
    log.parent.chmod(0o755)
    follower = Follower(log.with_name("app*log*"), log.parent / "old" / "*")
    follower.scratch = log.parent
    written = []
    rotations = 1 if "dateext" in options else 3
    for generation in range(rotations + 1):
        for number in range(60):
            written.append(f"generation {generation} line {number:03}")
            append(log, written[-1])
            if number == 30:
                follower.poll()
        if down:
            follower.kill()
        if generation < rotations:
            subprocess.run(
                [str(LOGROTATE), "-f", "-s", str(log.with_name("state")), str(configuration)],
                check=True,
                capture_output=True,
                timeout=60,
            )
        for _ in range(3):
            follower.poll()
            follower.now += HOLD_S
        follower.saved_ms = time.time_ns() // 1_000_000
        follower.save()
        for each in [*log.parent.glob("app*"), *log.parent.glob("old/*")]:
            os.utime(each, (1, 1))  # the next rotation is some hours away
    assert sorted(follower.lines) == sorted(written)
    assert len(follower.sent) == len(written)
    assert follower.messages == []


RSYNC = shutil.which("rsync")


@pytest.mark.parametrize("program", ["sed", "rsync"])
def test_programs_that_replace_a_file_do_not_have_it_sent_again(log: Path, program: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed here")
    source = log.parent / "old" / "source.log"
    lines = [f"line {number:04} of a log that is copied" for number in range(100)]
    append(source, *lines)
    shutil.copy2(source, log)
    follower = Follower(log)
    follower.poll()
    for number in range(3):
        lines.append(f"more {number}")
        if program == "rsync":
            append(source, lines[-1])
            subprocess.run(["rsync", "-a", str(source), str(log)], check=True, timeout=60)
        else:
            subprocess.run(["sed", "-i", f"$ a {lines[-1]}", str(log)], check=True, timeout=60)
        follower.poll()
    assert follower.lines == lines
    assert len(follower.sent) == len(lines)
    assert len(lines[0]) * 100 > HEAD_BYTES
