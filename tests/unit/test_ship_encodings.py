"""Files of other encodings than UTF-8: divided at their own newlines, and sent as UTF-8."""

import codecs
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from followed import BANNER, Follower
from headwater.ship.framing import lines_of, wide_encoding
from headwater.ship.tail import CHUNK_BYTES

WIDE = ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"]
MARKS = {
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}
# U+0A0A and U+0D0A have the byte of a newline in them, U+010A has it as its second byte.
LINES = ["2026-11-29 Server gestartet", "", "ਊ ഊ Ċ 📣 żółw", "trailing\r", " ", "last"]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "ERRORLOG"


def write(path: Path, text: str, encoding: str) -> None:
    with path.open("ab") as file:
        file.write(text.encode(encoding))


@pytest.mark.parametrize("mark", [True, False])
@pytest.mark.parametrize("encoding", WIDE)
def test_wide_file_is_divided_at_its_newlines_and_sent_as_utf8(log: Path, encoding: str, mark: bool) -> None:
    log.write_bytes(MARKS[encoding] if mark else b"")
    follower = Follower(log, encoding="utf-8" if mark else encoding)
    follower.poll()
    for line in LINES:
        for part in (line, "\r\n"):
            write(log, part, encoding)
            follower.poll()
    assert follower.lines == LINES
    positions = [each[2] for each in follower.sent]
    assert positions == sorted(set(positions))
    unit = len("\n".encode(encoding))
    assert all(each % unit == 0 for each in positions)
    assert follower.messages == []


@pytest.mark.parametrize("encoding", WIDE)
def test_wide_file_goes_on_after_a_kill_at_the_same_coordinates(log: Path, encoding: str) -> None:
    log.write_bytes(MARKS[encoding])
    write(log, f"{BANNER}\none\ntw", encoding)
    follower = Follower(log)
    follower.poll(ends=True, save=False)
    follower.kill()
    write(log, "o\nthree\n", encoding)
    follower.poll()
    follower.kill()
    write(log, "four\n", encoding)
    follower.poll()
    assert follower.lines == [BANNER, "one", "tw", "o", "three", "four"]


def test_wide_file_of_which_half_a_character_is_written_waits_for_the_rest(log: Path) -> None:
    data = codecs.BOM_UTF16_LE + "one\n📣 two\n".encode("utf-16-le")
    follower = Follower(log)
    for byte in data:
        with log.open("ab") as file:
            file.write(bytes([byte]))
        follower.poll()
    assert follower.lines == ["one", "📣 two"]


def test_wide_file_that_was_made_in_full_has_no_line_of_zeros(log: Path) -> None:
    log.write_bytes(codecs.BOM_UTF16_LE + "one\ntwo\n".encode("utf-16-le") + bytes(4096))
    follower = Follower(log)
    follower.poll(ends=True)
    with log.open("r+b") as file:
        file.seek(18)
        file.write("three\nfo".encode("utf-16-le"))
    follower.poll()
    follower.poll(ends=True)
    assert follower.lines == ["one", "two", "three", "fo"]


def test_wide_file_from_end_leaves_out_whole_lines(log: Path) -> None:
    log.write_bytes(codecs.BOM_UTF16_BE + "old ਊ\nhalf".encode("utf-16-be"))
    follower = Follower(log, from_end=True)
    follower.poll()
    write(log, " line\nnew\n", "utf-16-be")
    follower.poll()
    assert follower.lines == ["half line", "new"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_wide_long_line_goes_whole_up_to_the_limit_and_aside_above_it(log: Path, encoding: str) -> None:
    log.write_bytes(MARKS[encoding])
    long, longer = "ਊ" * (CHUNK_BYTES // 2 + 1), "y" * (3 * CHUNK_BYTES + 1)
    write(log, f"one\n{long}\n{longer}\ntwo\n", encoding)
    follower = Follower(log)
    follower.poll()
    assert [each[3] for each in follower.sent] == [b"one", long.encode(), None, b"two"]


def test_wide_text_that_is_none_stays_recognisable(log: Path) -> None:
    log.write_bytes(codecs.BOM_UTF16_LE + b"a\0\x00\xd8b\0\n\0")
    follower = Follower(log)
    follower.poll()
    ((_, _, _, value),) = follower.sent
    assert value == b"a\xed\xa0\x80b"  # half of a pair: a job sees that it is not UTF-8


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "naïve – €"),
        ("latin-1", "Größe"),
        ("gbk", "日志：错误"),
        ("shift_jis", "エラー 表示"),
        ("koi8-r", "ошибка"),
    ],
)
def test_other_encodings_are_made_utf8(log: Path, encoding: str, text: str) -> None:
    write(log, f"{text}\r\nplain\n", encoding)
    follower = Follower(log, encoding=encoding)
    follower.poll()
    assert follower.lines == [text, "plain"]


def test_bytes_of_utf8_stay_as_they_are(log: Path) -> None:
    log.write_bytes(b"\xef\xbb\xbfone\n\xff\xfe\n")
    follower = Follower(log)
    follower.poll()
    assert [each[3] for each in follower.sent] == [b"\xef\xbb\xbfone", b"\xff\xfe"]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_a_mark_is_told(log: Path, encoding: str) -> None:
    write(log, "2026-11-29 10:00:00 started\nand more\n", encoding)
    follower = Follower(log)
    follower.poll()
    write(log, "and more\n", encoding)
    follower.poll()
    (message,) = follower.messages
    assert message.startswith(
        f"{log} looks like {encoding} without a byte order mark, and is divided at each byte 0A"
    )
    assert f"--encoding {encoding}" in message


def test_file_that_was_divided_as_bytes_before_goes_on_at_whole_characters(log: Path) -> None:
    write(log, "the first line of an old file\n", "utf-16-le")
    follower = Follower(log)
    follower.poll()
    write(log, "the second line\n", "utf-16-le")
    follower.framing = lines_of("utf-16-le")
    follower.kill()
    follower.poll()
    assert follower.sent[-1][3] == b"the second line"
    assert log.stat().st_size == follower.sent[-1][2] + 2 * len("the second line\n")


@pytest.mark.parametrize(
    "encoding", ["none", "cp037", "utf-16-x", "rot13", "base64", "unicode_escape", "idna", "", "undefined"]
)
def test_encoding_in_which_no_lines_are_found_is_refused(encoding: str) -> None:
    with pytest.raises(ValueError):
        lines_of(encoding)


@pytest.mark.parametrize(
    "data", [b"plain text that is long enough to tell\n" * 3, b"", b"a\0b\0", bytes(300), bytes(range(256))]
)
def test_other_bytes_do_not_look_like_utf16(data: bytes) -> None:
    assert wide_encoding(data) is None


@given(
    st.sampled_from(WIDE),
    st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"])), max_size=8),
    st.integers(1, 9),
)
def test_wide_lines_of_any_text_are_the_same_in_any_pieces(
    encoding: str, lines: list[str], step: int
) -> None:
    framing = lines_of(encoding)
    data = "".join(f"{line}\n" for line in lines).encode(encoding)
    found, position, end = [], 0, 0
    while end < len(data):
        end += step * framing.unit
        records = framing.split(data[position:end], position, ends=False)
        found += [each.value for each in records]
        position = records[-1].end if records else position
    first = [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []
    assert found == [line.encode() for line in first]
