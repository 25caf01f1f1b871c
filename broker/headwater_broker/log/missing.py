"""Offsets that a log has lost: a segment's file is gone, or ends before the next one begins.

Whoever reads them gets an error that says so. They are never given out again, and later records keep their offsets.
The files around them stay as they are, so that a file that is restored from a copy brings them back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import NamedTuple

from headwater_broker.log.errors import MissingOffsetsError

_LOGGER = logging.getLogger(__name__)


class MissingRange(NamedTuple):
    """Offsets that are not there.

    Attributes:
        start_offset: The first of them.
        end_offset: The first one behind them.
        path: The file that should hold them, as far as that is known.
    """

    start_offset: int
    end_offset: int
    path: str


class MissingOffsets:
    """All ranges of one log, in order; most logs have none."""

    def __init__(self, name: str, ranges: Iterable[MissingRange] = ()) -> None:
        """Begins with what a start found, and tells the operator.

        Args:
            name: Of the partition.
            ranges: What is missing.
        """
        self._name = name
        self._ranges: list[MissingRange] = []
        for each in ranges:
            self.add(each)

    def __bool__(self) -> bool:
        return bool(self._ranges)

    @property
    def ranges(self) -> tuple[MissingRange, ...]:
        """What is missing."""
        return tuple(self._ranges)

    def add(self, lost: MissingRange) -> None:
        """Takes note of more, and tells the operator."""
        if lost.start_offset >= lost.end_offset:
            return
        self._ranges.append(lost)
        self._ranges.sort()
        _LOGGER.error(
            "%s has lost offsets %d to %d: %s is gone or short. Restore it from a copy while the broker is stopped; "
            "until then, who reads them is told that they are out of range",
            self._name,
            lost.start_offset,
            lost.end_offset - 1,
            lost.path,
        )

    def drop_before(self, offset: int) -> None:
        """Forgets what is missing before `offset`, where the log starts now."""
        if self._ranges and self._ranges[0].start_offset < offset:
            self._ranges = [
                each._replace(start_offset=max(each.start_offset, offset))
                for each in self._ranges
                if each.end_offset > offset
            ]

    def check(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        """Makes sure that an offset is not missing.

        Raises:
            MissingOffsetsError: It is.
        """
        for start_offset, end_offset, path in self._ranges:
            if start_offset <= offset < end_offset:
                raise MissingOffsetsError(
                    f"{self._name} has lost offsets {start_offset} to {end_offset - 1} ({path} is gone or short)",
                    log_start_offset,
                    log_end_offset,
                    end_offset,
                )
