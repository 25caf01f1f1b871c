"""Through which files a call goes, and how often it comes back to one: what somebody who follows it has to open."""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import headwater_streams

MOST_FILES, MOST_RETURNS = 20, 25
"""Of a decision on a backfill: a little more than it takes, 13 to 18 files and 15 to 22 returns with the facts made."""
_PACKAGE = str(Path(headwater_streams.__file__).parent) + "/"
_FIRST = 80


@dataclass
class Walk:
    """The calls from one file of the package to another, in their order.

    Attributes:
        steps: The file of each first call from a function to another: what a loop repeats is followed once.
        calls: How many such calls there are with those that loops repeat.
    """

    steps: list[str] = field(default_factory=list)
    calls: int = 0
    _seen: set[tuple[CodeType, CodeType]] = field(default_factory=set)

    @property
    def files(self) -> int:
        """How many files it enters."""
        return len(set(self.steps))

    @property
    def returns(self) -> int:
        """How often it enters a file that it has been to."""
        return len(self.steps) - self.files

    @property
    def most(self) -> tuple[str, int]:
        """The file that it enters most often in its first 80 steps, and how often."""
        [entered] = Counter(self.steps[:_FIRST]).most_common(1) or [("", 0)]
        return entered

    def within(self, folder: str) -> "Walk":
        """The steps into files of one folder alone."""
        return Walk([name for name in self.steps if name.startswith(folder)])

    def __str__(self) -> str:
        file, times = self.most
        often = f"most often in the first {_FIRST} steps {file}, {times} times"
        return f"{self.files} files, {self.returns} returns; {often}"

    def add(self, caller: CodeType | None, called: CodeType) -> None:
        """Adds a call of a function of the package by another one."""
        file = called.co_filename
        if caller is not None and caller.co_filename == file:
            return
        self.calls += 1
        pair = (caller or called, called)
        if pair not in self._seen:
            self._seen.add(pair)
            self.steps.append(file.removeprefix(_PACKAGE))


@contextmanager
def walked() -> Iterator[Walk]:
    """Follows the calls of the block, on this thread; what other packages call is called by who called these."""
    walk = Walk()

    def follow(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            walk.add(_caller(frame.f_back), frame.f_code)

    before: Callable[..., Any] | None = sys.getprofile()
    sys.setprofile(follow)
    try:
        yield walk
    finally:
        sys.setprofile(before)


def walks_far(decide: Callable[[], object]) -> str | None:
    """The walk of a decision, where it goes through more files, or comes back more often, than one can follow."""
    with walked() as walk:
        decide()
    return str(walk) if walk.files > MOST_FILES or walk.returns > MOST_RETURNS else None


def _caller(frame: FrameType | None) -> CodeType | None:
    """The nearest function of the package, if there is one."""
    while frame is not None and not frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return None if frame is None else frame.f_code
