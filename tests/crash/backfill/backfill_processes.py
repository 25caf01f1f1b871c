"""The processes that are killed: each told what to do line by line, and gone with its JVM at once."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

_CHILD = Path(__file__).with_name("child.py")
_ANSWER_S = 300


class DiedError(Exception):
    """The process was killed before it had answered."""


class Child:
    """A process that runs jobs or does backfills, see `child.py`."""

    def __init__(self, bootstrap: str, home: Path, said: Path) -> None:
        """Starts it; the first question waits until it is ready."""
        self._said = said
        with said.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_CHILD), bootstrap, str(home)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._kept: list[dict[str, Any]] = []
        self._asked = 0
        self.died_at = ""
        threading.Thread(target=self._listen, daemon=True).start()

    def ask(self, **asked: Any) -> dict[str, Any]:
        """Asks, and waits for the answer.

        Raises:
            DiedError: It was killed meanwhile.
        """
        return self.answer(self.send(**asked))

    def send(self, **asked: Any) -> int:
        """Asks; the number is for `answer`."""
        self._asked += 1
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asked | {"number": self._asked}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DiedError from None
        return self._asked

    def answer(self, number: int) -> dict[str, Any]:
        """Waits for an answer.

        Raises:
            DiedError: It was killed before it had answered.
        """
        until = time.monotonic() + _ANSWER_S
        while True:
            for place, answer in enumerate(self._kept):
                if answer["to"] == number and not self._ends(answer):
                    return self._kept.pop(place)
            if any("closed" in answer for answer in self._kept):
                raise DiedError
            try:
                self._kept.append(self._answers.get(timeout=max(0.1, until - time.monotonic())))
            except queue.Empty:
                self.kill()
                raise AssertionError(f"no answer; {self.log()}") from None

    def _ends(self, answer: dict[str, Any]) -> bool:
        """Whether an answer tells of a trap in which the process ended."""
        return "at" in answer

    @property
    def is_alive(self) -> bool:
        """Whether it has not been killed yet."""
        return self._process.poll() is None

    def kill(self, *, orphans_jvm: bool = False) -> None:
        """Ends it as by kill -9, and its JVM at once, too, or by what that notices alone."""
        if self._process.poll() is None:
            (os.kill if orphans_jvm else os.killpg)(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def gone(self) -> str:
        """Waits until it has ended, and says where: the step of its trap, or at random."""
        self._process.wait()
        return next((answer["at"] for answer in self._kept if "at" in answer), "at random")

    def close(self) -> None:
        """Ends it, and what it may have left of itself."""
        self.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # the JVM of one that died without it
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def log(self) -> str:
        """The end of what it said on its standard error."""
        return self._said.read_text()[-6000:]

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "ready" not in answer:
                self._answers.put(answer)
        self._answers.put({"closed": True, "to": -1})


class Children:
    """Where processes come from: one stands ready in the place of the next that is killed."""

    def __init__(self, bootstrap: str, home: Path) -> None:
        self._bootstrap, self._home = bootstrap, home
        self._ready: Child | None = None
        self._all: list[Child] = []

    def take(self) -> Child:
        """A process of which nothing was asked yet."""
        taken = self._ready or self._started()
        self._ready = self._started()
        return taken

    def close(self) -> None:
        """Ends all of them."""
        for child in self._all:
            child.close()

    def _started(self) -> Child:
        said = self._home / f"child-{len(self._all)}.log"
        child = Child(self._bootstrap, self._home, said)
        self._all.append(child)
        return child
