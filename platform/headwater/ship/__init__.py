r"""Follows log files (and listens for syslog) and sends every line to a topic, at least once.

**A record.** The value is the line without its end (`\n` or `\r\n`); every other byte stays as it is, but for NULs
before a line, which no program wrote (`Framing.blank`), and for files that are not UTF-8: by a byte order mark or
`--encoding`, lines are divided at their own newlines and made UTF-8; what is no character becomes U+FFFD. The key is
the path under which the file was first seen (for syslog, the sender's address), so that a path's lines keep their order
in one partition. The headers:

| header | value |
|---|---|
| `headwater-origin-cluster` | the shipper's name: `--name`, else the machine's host name |
| `headwater-origin-topic` | the file's id: 16 hexadecimal digits, drawn when the file was first seen |
| `headwater-origin-partition` | `0` |
| `headwater-origin-offset` | the line's number in that file, from 0, without gaps |
| `headwater-origin-position` | the byte of the file at which the line begins |
| `headwater-syslog-truncated` | only where the value is the beginning of a syslog message: how many bytes it had |

The timestamp of a line is the time of sending. That of a syslog message is the time at which it was received, however
long it waited in the spool, unless the topic takes no record of that age (`message.timestamp.before.max.ms`).

The origin offset is the line's number and not its position because consecutive numbers are one interval in the set
that `by_offset(origin=True)` keeps, whatever the file's length; positions would be one interval for each line.

**Progress** is kept beside the records: in the compacted topic `__headwater_ship` of the same cluster, one record for
each file (`progress.Entry`). A file's id stands there before its first line is sent, and a file's place moves there
only when the lines before it are acknowledged. So a shipper that was killed, or that lost its machine's home folder,
sends the lines after the last saved place again under the coordinates that they had, and nothing else.

**A file is known** by its inode together with what was read of it (`mark`): its first bytes, and those just before the
place. An inode that was used again, a file that was truncated and one that was written anew all fail that test and are
new files. Not told apart: a file that is replaced by one with the same inode and the same bytes up to the place.

**A copy** (copytruncate) is known by the same test, in any folder that a pattern names (logrotate's `olddir`): a new
file that has what a followed one has is left alone for `HOLD_S`, also at the first look after a start, and when the
followed one is truncated by then, its lines go on in the copy under their coordinates. `--once` waits for this only
where the new file changed within `HOLD_S`. A copy that is not recognised is read as a new file, so its lines are sent
twice, under other coordinates: a copy of less than `COPY_BYTES`, as two files may begin alike; one whose original is
not truncated within `HOLD_S`; and one whose original was read beyond the copy's end before it was truncated, if no look
saw both, the shipper was killed just then, or the copy has less than `HEAD_BYTES`.

**A file that replaces another** (rsync, `sed -i`, editors) is that one, if it has all of it and the old one is deleted;
if the old one is kept as a backup, the new one is read from where that ends. One that differs in what is compared, its
first `HEAD_BYTES` and what is just before the place, is a new file.

**Compressed files** are known by their first bytes, whatever their names are. One that has what was followed goes on
being that file, if it was compressed while the shipper was stopped or before the shipper could see what was rotated.
Others are left out (`left_out`).
"""

from headwater.ship.errors import ShipError

__all__ = ["ShipError"]
