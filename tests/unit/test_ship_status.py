"""What `headwater ship --status` says of a file, by its saved progress and what is there now."""

from pathlib import Path

from headwater.ship.mark import Mark
from headwater.ship.progress import Entry
from headwater.ship.status import FileStatus, _status


def status_of(path: Path, position: int, size: int) -> FileStatus:
    stat = path.stat()
    place, mark = str(path), Mark.of(position, b"0123", b"0123456789"[max(0, position - 4) : position])
    entry = Entry("f", place, place, "*", stat.st_dev, stat.st_ino, mark, 3, None, size, False, 0)
    return _status("here", "logs", entry)


def test_status_file_that_grew_lags_and_one_that_was_truncated_is_followed_no_more(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"0123456789")
    grown, read = status_of(log, 4, 4), status_of(log, 10, 10)
    assert (grown.state, grown.size, grown.lag_bytes) == ("followed", 10, 6)
    assert (read.state, read.lag_bytes) == ("followed", 0)
    log.write_bytes(b"0")  # the same inode
    cut = status_of(log, 10, 10)
    assert (cut.state, cut.size, cut.lag_bytes) == ("elsewhere", 10, 0)
    log.write_bytes(b"another text altogether")  # as a copy that is written over it
    other = status_of(log, 10, 10)
    assert (other.state, other.size, other.lag_bytes) == ("elsewhere", 10, 0)
