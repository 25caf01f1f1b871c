"""Errors that are a person's to mend: one sentence each, with an exit status."""

from collections.abc import Mapping

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_PORT_IN_USE = 3
EXIT_DEPENDENCY = 4

EXIT_CODES: Mapping[int, str] = {
    EXIT_DONE: "done",
    EXIT_FAILED: "failed, or what was checked did not hold",
    EXIT_USAGE: "the command, an option or a settings file is wrong",
    EXIT_PORT_IN_USE: "another process listens on the port",
    EXIT_DEPENDENCY: "ZooKeeper, Java or a library is missing or does not answer",
}
"""What each exit status of a command means; `headwater --help` and the reference show it."""


class UserError(Exception):
    """Something that the person at the keyboard can mend; the CLI prints it without a stack trace.

    Args:
        message: One clear sentence that says what was wrong, where, and what to do next.
        exit_code: The command's exit status, one of `EXIT_CODES`.
    """

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(UserError):
    """The command, a flag or a configuration file is wrong (exit status 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_USAGE)


class PortInUseError(UserError):
    """Another process listens where ours should (exit status 3)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_PORT_IN_USE)


class DependencyError(UserError):
    """ZooKeeper, Java or a jar is missing or does not answer (exit status 4)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, EXIT_DEPENDENCY)


def reason(error: OSError) -> str:
    """What the system says of an error, to stand behind what could not be done."""
    return (error.strerror or str(error)).lower()
