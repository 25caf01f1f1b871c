"""`headwater doctor`: is everything here that Headwater needs?"""

import os

import typer

from headwater.cli._common import DEFAULT_HOME, HomeOption, JsonOption, print_json, print_table
from headwater.cli.stack import DataOption
from headwater.config import load_settings
from headwater.errors import EXIT_FAILED
from headwater.stack.checks import examine


def doctor(home: HomeOption = DEFAULT_HOME, data: DataOption = None, json_output: JsonOption = False) -> None:
    """Check Java, the jars, the ports, the libraries and the files of the home; changes nothing.

    Exit status: 0 if nothing is wrong, 1 otherwise.

    \b
    Example:
      headwater doctor
    """
    findings = examine(home, os.environ, load_settings(os.environ).settings, data)
    if json_output:
        print_json([vars(finding) for finding in findings])
    else:
        print_table(
            ("what", "state", "detail"),
            [(each.subject, each.state, each.detail) for each in findings],
            empty="",
        )
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(EXIT_FAILED)
