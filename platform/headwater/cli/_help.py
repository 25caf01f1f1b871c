"""Help texts, as they are written."""

import re
from typing import Any

_BEGINS_A_TAG = re.compile(r"\[(?=[a-z#/@])")


def as_written(command: Any) -> Any:
    """Makes a command, and those below it, print their help texts as they are written; returns it.

    Typer takes `[cluster.NAME]` or `headwater[registry]` for a style of Rich, and leaves it out.
    """
    for each in (command, *command.params):
        if getattr(each, "help", None):
            each.help = _BEGINS_A_TAG.sub(r"\\[", each.help)
    for each in getattr(command, "commands", {}).values():
        as_written(each)
    return command
