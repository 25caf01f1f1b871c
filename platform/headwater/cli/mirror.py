"""`headwater mirror`: topics of one cluster, copied into another."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption, print_json, print_line, print_table
from headwater.config import load_settings
from headwater.errors import UsageError
from headwater.running.clusters import Clusters
from headwater.running.mirrors import MIRROR_COLUMNS, mirror_folder, mirror_rows, saved_mirrors
from headwater.running.signals import stop_requested
from headwater_broker.shown import escaped
from headwater_streams.base.plural import quantity
from headwater_streams.sources.kafka_cluster import KafkaCluster

if TYPE_CHECKING:
    from headwater.mirror.topics import Choice


def mirror(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="HOST:PORT",
            help="What is mirrored: brokers, or a [cluster.NAME] of the settings.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="HOST:PORT",
            help="What it is mirrored into; by default those of client.bootstrap, or the running stack of --home.",
        ),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topics",
            metavar="PATTERN",
            help="A regular expression; topics are mirrored whose whole name matches. May be repeated.",
        ),
    ] = None,
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Topics that are not mirrored, even so. May be repeated."),
    ] = None,
    prefix: Annotated[
        str, typer.Option(metavar="TEXT", help="What stands before the topics' names at the target.")
    ] = "",
    groups: Annotated[
        str,
        typer.Option(metavar="PATTERN", help="Groups whose offsets are translated; '' for none."),
    ] = ".*",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="What origins call the source; by default its name in the settings, else its id.",
        ),
    ] = "",
    once: Annotated[
        bool, typer.Option("--once", help="End when everything is mirrored that is there at the start.")
    ] = False,
    release: Annotated[
        bool,
        typer.Option(
            "--release",
            help="Let others write to mirrored topics of --to, which are mirrored no more, and end.",
        ),
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show how far the mirrors of --home are, and end.")
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Copy topics from one cluster into another, each record once.

    Whole batches are copied, partition for partition, as they are: keys,
    values, headers, timestamps and compression stay. Topics are made at the
    target, and their partitions and settings follow the source; what was set
    at the target itself stays. Groups stand at the target where they stand at
    the source.

    It goes on until it is stopped, waits for either cluster while that is
    away, and after kill -9 goes on where the target ends. Topics that came
    from the target are not copied back. How far it is, headwater status shows.

    Where the first cluster is lost, stop the mirror and --release the topics.

    \b
    Examples:
      headwater mirror --from west:9092 --to east:9092 --topics 'clicks|orders.*'
      headwater mirror --from west --topics '.*' --prefix west. --once
      headwater mirror --release --to east --topics '.*'
      headwater mirror --status
    """
    if status:
        _print_status(home, json_output)
        return
    if source is None and not release:
        raise UsageError("headwater mirror needs --from: the brokers whose topics are mirrored")
    if not topics:
        raise UsageError("headwater mirror needs --topics: '.*' is all of them")
    from headwater.mirror import Mirror, MirrorOptions
    from headwater.mirror.topics import Choice, pattern

    settings = load_settings(os.environ).settings
    to_cluster = Clusters(home, target, settings).require_default()
    choice = Choice(
        tuple(pattern(each, "--topics") for each in topics),
        tuple(pattern(each, "--exclude") for each in exclude or []),
        prefix,
    )
    if release:
        _release(to_cluster, choice, json_output)
        return
    from_cluster = Clusters(home, source, settings).require_default()
    of_groups = pattern(groups, "--groups") if groups else None
    options = MirrorOptions(
        choice,
        name=name,
        default_name=source if source is not None and source in settings.cluster else "",
        groups=None if of_groups is None else lambda group: of_groups.fullmatch(group) is not None,
        once=once,
        status_folder=mirror_folder(home),
    )
    if not once and not json_output:
        print_line(
            f"mirrors {from_cluster.bootstrap} into {to_cluster.bootstrap} until it is stopped; "
            "headwater mirror --status shows how far it is",
            flush=True,
        )
    with stop_requested() as stop:
        report = _Reporter().report if json_output and not once else lambda _: None
        done = Mirror(from_cluster, to_cluster, options, stop=stop, tell=_tell, report=report).run()
    if json_output:
        print_json(done)
        return
    records, count = sum(each["records"] for each in done["topics"]), len(done["topics"])
    print_line(
        f"mirrored {quantity(records, 'record')} of {quantity(count, 'topic')} into {to_cluster.bootstrap}"
    )


def _tell(sentence: str) -> None:
    print_line(f"headwater: {escaped(sentence)}", file=sys.stderr, flush=True)


class _Reporter:
    """Prints progress when it has changed."""

    def __init__(self) -> None:
        self._last: Any = None

    def report(self, status: dict[str, Any]) -> None:
        if status["topics"] != self._last:
            print_json(status)
            self._last = status["topics"]


def _release(cluster: KafkaCluster, choice: "Choice", json_output: bool) -> None:
    from headwater.mirror.release import described, release

    released = release(cluster, choice)
    if json_output:
        print_json(described(released))
        return
    if not released:
        print_line(f"all topics of {cluster.bootstrap} that match are released already")
        return
    names = ", ".join(each.name for each in released)
    print_line(f"released {quantity(len(released), 'topic')} of {cluster.bootstrap}: {names}")


def _print_status(home: Path, json_output: bool) -> None:
    mirrors = saved_mirrors(home)
    if json_output:
        print_json(mirrors)
        return
    print_table(MIRROR_COLUMNS, mirror_rows(mirrors), empty=f"no mirror ran with the home {home}")
