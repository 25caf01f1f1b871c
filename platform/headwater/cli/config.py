"""`headwater config show`: the settings and where each came from."""

import os

import typer

from headwater.cli._common import JsonOption, print_json, print_table
from headwater.config import load_settings

app = typer.Typer(
    rich_markup_mode="rich",
    no_args_is_help=True,
    help="Show the settings and where each value came from.\n\nExample:\n  headwater config show",
)


@app.callback()
def _config() -> None:
    """Show the settings and where each value came from.

    \b
    Example:
      headwater config show
    """


@app.command()
def show(json_output: JsonOption = False) -> None:
    """Print every setting, its value and its source; secrets are hidden.

    \b
    Examples:
      headwater config show
      HEADWATER_STACK_PORT=9093 headwater config show --json
    """
    values = load_settings(os.environ).values()
    if json_output:
        print_json([{"key": each.key, "value": each.value, "source": each.source} for each in values])
    else:
        rows = [(each.key, "" if each.value is None else str(each.value), each.source) for each in values]
        print_table(("setting", "value", "from"), rows, empty="there are no settings")
