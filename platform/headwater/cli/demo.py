"""`headwater demo`: a month of flights, from events to proved tables."""

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

from headwater.cli._common import (
    DEFAULT_HOME,
    HomeOption,
    JsonOption,
    console,
    print_json,
    print_line,
    progress_console,
)
from headwater.errors import EXIT_FAILED, DependencyError


def demo(
    month: Annotated[int, typer.Option(metavar="1-12", min=1, max=12, help="The month of 2013.")] = 1,
    days: Annotated[
        int, typer.Option(metavar="2-31", min=2, max=31, help="So many of its days; 4 take half of the time.")
    ] = 31,
    seed: Annotated[int, typer.Option(help="Decides order, copies and lateness.")] = 1,
    duplicates: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="The share of events that is sent again.")
    ] = 0.05,
    late: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="The share that is 2 to 6 hours late.")
    ] = 0.002,
    rate: Annotated[
        float, typer.Option(metavar="N", min=0, help="Events a second at most; 0: as the jobs keep up.")
    ] = 0,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Two clusters with a mirror, a schema registry, producers' counts, checks that break, alarms.",
        ),
    ] = False,
    home: HomeOption = DEFAULT_HOME,
    json_output: JsonOption = False,
) -> None:
    """Replay a month of flights through broker, jobs and tables, and prove every number.

    Starts a stack of its own on free ports, sends the month's departures and
    arrivals as events, runs six jobs on them, asks four questions in SQL,
    mends a bug by a backfill, and compares every table with the data set's
    CSV. Interrupted, the same command goes on; nothing is deleted.

    With --full the events go to a cluster of their own, which a mirror copies
    into that of the jobs; their producer counts them, and the weather's schema
    is in a registry. Halfway a shipper stands still, two checks break, and an
    alarm says so. It needs headwater[registry].

    The last line is demo: ok, or what differs. Exit status 0: ok, 1: not.

    \b
    Examples:
      headwater demo
      headwater demo --days 4
      headwater demo --full --home full
      headwater demo --month 7 --seed 99 --duplicates 0.2 --home july
      headwater demo --json
    """
    from headwater.demo.events import ReplaySpec
    from headwater.demo.run import Demo, DemoOptions, run_demo
    from headwater.demo.show import Show

    kind = Demo
    if full:
        _require_registry()
        from headwater.demo.full import FullDemo

        kind = FullDemo
    show = Show(progress_console() if json_output else console())
    spec = ReplaySpec(month, seed, duplicates, late, days, full)
    result = run_demo(DemoOptions(spec, rate, home), show, kind)
    if json_output:
        print_json(result.to_json())
    sys.stdout.flush()
    print_line(result.last_line, file=sys.stderr if json_output else sys.stdout, flush=True)
    if not result.ok:
        raise typer.Exit(EXIT_FAILED)


def _require_registry() -> None:
    """Sees to it that the registry can be served, before clusters and Spark are started for nothing.

    Raises:
        DependencyError: A package of the extra is not there.
    """
    missing = [name for name in ("uvicorn", "avro") if find_spec(name) is None]
    if missing:
        raise DependencyError(
            f"headwater demo --full needs {missing[0]}: run pip install 'headwater[registry]'"
        )
