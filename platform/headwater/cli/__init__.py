"""The command line: one module for each group of verbs, imported only when one of them is called."""

import sys
from collections.abc import Sequence

from headwater.errors import EXIT_FAILED, EXIT_USAGE, UserError
from headwater_broker.shown import escaped_text
from headwater_streams.base.errors import UnknownNameError
from headwater_streams.storage.damage import DamagedFileError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one `headwater` command and return its exit status.

    A person's mistake, and a file of the home that is damaged, is one sentence on standard error; anything else is a
    bug of ours and shows its trace.
    """
    from typer import Abort

    from headwater.cli.verbs import root_command

    try:
        result = root_command()(
            list(sys.argv[1:] if arguments is None else arguments),
            prog_name="headwater",
            standalone_mode=False,
        )
    except UserError as error:
        return _fail(str(error), error.exit_code)
    except (DamagedFileError, UnknownNameError) as error:
        return _fail(str(error), EXIT_FAILED)
    except Abort:
        return _fail("stopped", EXIT_FAILED)
    except Exception as error:
        # Typer carries its own copy of click, whose usage errors have no public name but this method.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "headwater"
        message = str(format_message()).rstrip(".")
        if not message:  # called without arguments, which has printed its help
            return EXIT_USAGE
        return _fail(f"{message}{' See' if message.endswith('?') else '; see'} {path} --help", EXIT_USAGE)
    return result if isinstance(result, int) else 0


def _fail(message: str, exit_code: int) -> int:
    for line in message.splitlines() or [""]:  # one for each thing that is wrong
        print(f"headwater: {escaped_text(line)}", file=sys.stderr)
    return exit_code
