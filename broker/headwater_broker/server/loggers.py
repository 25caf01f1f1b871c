"""The broker's loggers: how a line looks, and the resource BROKER_LOGGER, by which levels change at run time."""

import logging
from collections.abc import Mapping
from types import TracebackType

from headwater_broker.shown import escaped, shown

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_LINE_CHARS = 2000
_TRACEBACK_CHARS = 20_000
_PACKAGE = "headwater_broker"
_ROOT = "root"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}


class LoggerError(Exception):
    """An unknown logger or level; the message says which there are."""


class LineFormatter(logging.Formatter):
    """One line for each record, whatever is in it.

    Code that logs a name from outside uses `shown`; this is the second line of defence, for what libraries log and for
    messages of exceptions that nobody expected. Each line of a traceback is indented, so that none of them, and no
    line break in an exception's message, looks like a record.
    """

    def __init__(self) -> None:
        super().__init__(_FORMAT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (logging's name)
        """The line without a traceback."""
        return shown(super().formatMessage(record), _LINE_CHARS)

    def formatException(  # noqa: N802
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        """The traceback."""
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        """Where the record was made, if that was asked for."""
        return _indented(super().formatStack(stack_info))


def _indented(text: str) -> str:
    cut = text if len(text) <= _TRACEBACK_CHARS else f"...{text[-_TRACEBACK_CHARS:]}"
    return "\n".join(f"    {escaped(line)}" for line in cut.split("\n"))


def logger_levels() -> dict[str, str]:
    """What each logger of the broker logs, by Kafka's words for levels."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == _PACKAGE]
    return {name: _word(_logger(name).getEffectiveLevel()) for name in (_ROOT, *sorted(names))}


def check_levels(levels: Mapping[str, str | None]) -> None:
    """Checks changes before any is made.

    Raises:
        LoggerError: There is no such logger or level, or the root would be left without one.
    """
    existing = logger_levels()
    for name, level in levels.items():
        if name not in existing:
            raise LoggerError(f"Logger {name} does not exist!")
        if level is None and name == _ROOT:
            raise LoggerError(f"Removing the log level of the {_ROOT} logger is not allowed")
        if level is not None and level not in _LEVELS:
            raise LoggerError(
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels "
                f"are {', '.join(_LEVELS)}"
            )


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Changes the levels of loggers; None has one take the level of the logger above it."""
    for name, level in levels.items():
        _logger(name).setLevel(logging.NOTSET if level is None else _LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == _ROOT else name)


def _word(level: int) -> str:
    words = [word for word, value in _LEVELS.items() if value <= level and word != "TRACE"]
    return words[-1] if words else "TRACE"
