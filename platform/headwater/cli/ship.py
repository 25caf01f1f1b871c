"""`headwater ship`: log files and syslog into a topic, at least once."""

import re
import socket
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    BootstrapOption,
    HomeOption,
    JsonOption,
    print_json,
    print_line,
    print_table,
)
from headwater.errors import UsageError, UserError, reason
from headwater.running.cluster import Cluster
from headwater.running.signals import stop_requested
from headwater_broker.shown import escaped
from headwater_streams.base.plural import quantity

if TYPE_CHECKING:
    from headwater.ship.framing import Framing

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_LONGEST_NAME_BYTES = 80  # percent-encoded, three times that must fit into a file name
_COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")


def ship(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|GLOB]...", help="Files, or patterns in quotes; compressed ones are left out."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Where the lines go.")
    ] = None,
    syslog: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Take syslog over TCP and UDP there too; port 0 takes a free one."
        ),
    ] = None,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="End when everything that is there is shipped, a last line without its end, too: for files that are "
            "whole, as one that is being written may be caught in the middle of a line.",
        ),
    ] = False,
    from_end: Annotated[
        bool,
        typer.Option(
            "--from-end/--from-beginning",
            help="Where to begin in files that are there at the start, if nothing of their pattern was shipped before.",
        ),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(
            envvar="HEADWATER_SHIP_NAME",
            metavar="NAME",
            help="The shipper's name, which its progress goes by; by default this machine's.",
        ),
    ] = None,
    encoding: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The files' encoding, as utf-16-le or cp1252, from which lines are made UTF-8. Files that begin with "
            "a byte order mark of UTF-16 or UTF-32 are as that says; lines of utf-8 are sent byte by byte.",
        ),
    ] = "utf-8",
    compression: Annotated[
        str, typer.Option(metavar="NAME", help="none, gzip, snappy, lz4 or zstd.")
    ] = "lz4",
    counts: Annotated[
        bool,
        typer.Option(
            "--counts",
            help="Publish how many lines of each minute were acknowledged, for headwater audit --counts.",
        ),
    ] = False,
    spool_mb: Annotated[
        int, typer.Option(metavar="N", min=1, help="The most of syslog that may wait on disk.")
    ] = 1024,
    status: Annotated[bool, typer.Option("--status", help="Show how far each file is, and end.")] = False,
    home: HomeOption = DEFAULT_HOME,
    bootstrap: BootstrapOption = None,
    json_output: JsonOption = False,
) -> None:
    """Follow log files as they grow and rotate, and send every line to a topic.

    A file's progress is kept beside the lines, in the topic __headwater_ship.
    What a restart sends twice has the same origin headers, by which a job
    with by_offset(origin=True) leaves it out.

    Name log files that rotate with patterns that their rotated parts match,
    as app.log*, and old/* where they are moved to another folder: then what
    is written and rotated while it is stopped is found, too, also what is
    compressed by gzip, bzip2, xz or zstd.

    Other compressed files that match a pattern are left out. Those whose
    lines may not have been shipped before they were compressed are named once
    on standard error: unpack them and ship that.

    A syslog message of more than 524288 bytes is cut there; the header
    headwater-syslog-truncated of its record has its full length.

    \b
    Examples:
      headwater ship '/var/log/nginx/access.log*' --topic access
      headwater ship app.log --topic app --once
      headwater ship --syslog 0.0.0.0:5514 --topic syslog
      headwater ship --status
    """
    cluster = Cluster(home, bootstrap)
    if status:
        _print_status(cluster, name, topic, json_output)
        return
    if topic is None:
        raise UsageError("headwater ship needs --topic: where the lines go")
    if not files and syslog is None:
        raise UsageError("headwater ship needs files, patterns or --syslog: where the lines come from")
    if once and syslog is not None:
        raise UsageError("--once and --syslog exclude each other: a port has no end")
    if compression not in _COMPRESSIONS:
        raise UsageError(f"--compression {compression} is none of {', '.join(_COMPRESSIONS)}")
    chosen = socket.gethostname() if name is None else name
    if not chosen.strip(".") or "\t" in chosen:
        raise UsageError("--name is empty, only dots, or has a tab in it")
    for option, value in (("--name", chosen), ("--topic", topic)):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{option} is not UTF-8") from None
    if len(chosen.encode()) > _LONGEST_NAME_BYTES:
        raise UsageError(f"--name has {len(chosen.encode())} bytes: give at most {_LONGEST_NAME_BYTES}")
    if _TOPIC.fullmatch(topic) is None or topic in (".", ".."):
        raise UsageError(
            f"--topic {topic} is no topic's name: use 1 to 249 of a-z, A-Z, 0-9, dot, underscore and dash"
        )
    from headwater.ship.framing import lines_of

    try:
        framing = lines_of(encoding)
    except ValueError:
        raise UsageError(
            f"--encoding {encoding} is none in which lines can be found: give utf-8, utf-16, utf-16-le, utf-16-be, "
            "utf-32 or one that has ASCII in it, as cp1252, latin-1, gbk or shift_jis"
        ) from None
    _run(
        cluster,
        files or [],
        topic,
        syslog,
        once,
        from_end,
        framing,
        chosen,
        compression,
        counts,
        spool_mb,
        home,
        json_output,
    )


def _run(
    cluster: Cluster,
    files: list[str],
    topic: str,
    syslog: str | None,
    once: bool,
    from_end: bool,
    framing: "Framing",
    name: str,
    compression: str,
    counts: bool,
    spool_mb: int,
    home: Path,
    json_output: bool,
) -> None:
    from headwater.ship.discovery import absolute, is_pattern, matches_nothing, missing_file
    from headwater.ship.listener import SyslogListener
    from headwater.ship.places import own_folder
    from headwater.ship.shipper import ShipOptions, Shipper
    from headwater.ship.spool import Spool

    missing = [sentence for path in files if not is_pattern(path) and (sentence := missing_file(path))]
    if once and missing:
        raise UserError(missing[0])
    for sentence in missing:
        _say(f"{sentence}; it is shipped once it can be read")
    patterns = tuple(absolute(path) for path in files)
    for path, pattern in zip(files, patterns, strict=True):
        if is_pattern(path) and matches_nothing(pattern):
            _say(f"no file matches {path}" + ("" if once else "; what comes to do so is shipped"))
    folder = own_folder(home, name, topic)
    options = ShipOptions(patterns, topic, name, folder, once, from_end, framing, compression, counts)
    try:
        spool = Spool(folder / "spool", spool_mb << 20)
    except OSError as error:
        raise UserError(f"cannot write to {home}: {reason(error)}") from error
    with ExitStack() as stack:
        stop = stack.enter_context(stop_requested())
        stack.callback(spool.close)
        check = None
        if syslog is not None:
            listener = SyslogListener(syslog, spool, _say)
            stack.callback(listener.close)
            check = listener.check
            if json_output:
                print_json({"listening": listener.address})
            else:
                _say(f"listening for syslog over TCP and UDP on {listener.address}")
        shipper = Shipper(
            options,
            cluster,
            spool=spool,
            stop=stop,
            say=_say,
            report=_Reporter(json_output).report,
            check=check,
        )
        totals = shipper.run()
    if not json_output:
        print_line(f"shipped {quantity(totals.lines, 'line')} ({quantity(totals.bytes, 'byte')}) to {topic}")


def _say(sentence: str) -> None:
    print_line(f"headwater: {escaped(sentence)}", file=sys.stderr, flush=True)


class _Reporter:
    """Prints progress when it has changed."""

    def __init__(self, json_output: bool) -> None:
        self._json = json_output
        self._last: dict[str, Any] | None = None

    def report(self, progress: dict[str, Any]) -> None:
        if self._json and (progress != self._last):
            print_json(progress)
            self._last = progress


def _print_status(cluster: Cluster, name: str | None, topic: str | None, json_output: bool) -> None:
    from headwater.ship.status import file_statuses

    statuses = file_statuses(cluster, name, topic, _say)
    if json_output:
        print_json([each.as_json() for each in statuses])
        return
    rows = [
        [each.shipper, each.topic, each.file, each.position, each.size, each.lag_bytes, each.state]
        for each in statuses
    ]
    columns = ["shipper", "topic", "file", "position", "size", "lag", "state"]
    print_table(columns, rows, empty="nothing was shipped")
