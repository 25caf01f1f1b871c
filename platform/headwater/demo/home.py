"""The demo's own folder `<home>/demo`: the demo's arguments, and whether it may go on there."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headwater.demo.events import WHOLE_MONTH, ReplayPlan, ReplaySpec
from headwater.demo.journal import Journal
from headwater.errors import UsageError

_OWN_SCHEMAS = ("silver", "gold")


class DemoHome:
    """Paths of the demo below a home, and the arguments that the home was made with."""

    def __init__(self, root: Path) -> None:
        """Name the paths below `root`; nothing is made yet."""
        self.root = root
        self.folder = root / "demo"
        self.arguments_path = self.folder / "arguments.json"
        self.journal_path = self.folder / "journal"

    def claim(self, plan: ReplayPlan) -> bool:
        """Take the home for this plan, or go on with it.

        Args:
            plan: What will be replayed.

        Returns:
            Whether the home was made before, by the same arguments.

        Raises:
            UsageError: It was made with other arguments, or holds tables that the demo did not make.
        """
        ours = {**asdict(plan.spec), "plan": plan.digest()}
        if self.arguments_path.exists():
            theirs = {"days": WHOLE_MONTH, "full": False, **json.loads(self.arguments_path.read_text())}
            if theirs != ours:
                raise UsageError(_other_arguments(self.root, theirs, ours))
            return True
        for schema in _OWN_SCHEMAS:
            if any((self.root / "tables" / schema).glob("*/_delta_log")):
                raise UsageError(
                    f"{self.root} holds {schema} tables that the demo did not make: give another --home"
                )
        self.folder.mkdir(parents=True, exist_ok=True)
        scratch = self.arguments_path.with_suffix(".tmp")
        scratch.write_text(json.dumps(ours))
        scratch.replace(self.arguments_path)
        return False

    def journal(self) -> Journal:
        """What the producer delivered so far."""
        return Journal(self.journal_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the home against a second demo; the kernel lets go of it however this process ends.

        Raises:
            UsageError: Another demo runs there.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                message = f"another demo is running in {self.root}: wait for it, or give another --home"
                raise UsageError(message) from None
            yield


def _other_arguments(root: Path, theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    names = ReplaySpec.__dataclass_fields__
    differing = [name for name in names if theirs.get(name) != ours[name]]
    if not differing:
        return f"{root} was made by another version of the demo: give another --home"
    existing = ", ".join(_option(name, theirs.get(name)) for name in differing)
    requested = ", ".join(_option(name, ours[name]) for name in differing)
    return f"{root} was made with {existing}, not {requested}: use those, or give another --home"


def _option(name: str, value: object) -> str:
    if isinstance(value, bool):
        return f"--{name}" if value else f"no --{name}"
    return f"--{name} {value}"
