"""The alarms of the full demo: a command that gets each, and what it got."""

import json
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from headwater.running.quality_watch import AlarmBell, by_command
from headwater_streams.quality.results import history
from headwater_streams.storage.home import Home

CHECK = "in_time"
WATCHED = ("silver.departures", "silver.arrivals")
"""The tables whose check breaks as a shipper goes on that stood still."""
_PATIENCE_S = 60.0
_POLL_S = 0.2


class Alarms:
    """Looks at the results of checks, and has a command add each alarm to a file."""

    def __init__(self, home: Home, path: Path) -> None:
        """Prepare.

        Args:
            home: The home whose `quality.results` are looked at.
            path: The file; it has what came before, if the demo was interrupted.
        """
        self._path = path
        file = shlex.quote(str(path.absolute()))
        command = f"cat >> {file} && echo >> {file}"
        self._bell = AlarmBell(home, "command", by_command(command))

    def look(self) -> None:
        """Deliver what is news."""
        self._bell.look()

    def delivered(self) -> list[dict[str, Any]]:
        """What the command got, in order."""
        text = self._path.read_text() if self._path.exists() else ""
        alarms, decoder = [], json.JSONDecoder()
        while text := text.lstrip():  # a demo that was killed may have left out the end of a line
            alarm, end = decoder.raw_decode(text)
            alarms.append(alarm)
            text = text[end:]
        return alarms

    def wait_for(self, state: str) -> list[str]:
        """Look until the command was told of each table's check, `broken` or `well`.

        Returns:
            The tables of which it was not told in time.
        """
        deadline_s = time.monotonic() + _PATIENCE_S
        while True:
            self.look()
            told = {
                each["table"] for each in self.delivered() if (each["check"], each["state"]) == (CHECK, state)
            }
            missing = [table for table in WATCHED if table not in told]
            if not missing or time.monotonic() > deadline_s:
                return missing
            time.sleep(_POLL_S)

    def differences(self) -> list[str]:
        """What is not as it should be: each check is told of twice, as it breaks and as it is well again."""
        sentences = []
        for table in WATCHED:
            states = [
                each["state"] for each in self.delivered() if (each["table"], each["check"]) == (table, CHECK)
            ]
            if states != ["broken", "well"]:
                sentences.append(
                    f"{table}: the alarms of the check {CHECK} were {', '.join(states) or 'none'}, not broken, well"
                )
        return sentences


def outcomes_of(home: Home, table: str) -> list[tuple[tuple[int, int], str]]:
    """What the check of a table came to, batch by batch: (generation, batch) and the outcome."""
    rows = history(
        home, table=table, check=CHECK, columns=["kind", "generation", "batch", "outcome"]
    ).to_pylist()
    return [((row["generation"], row["batch"]), row["outcome"]) for row in rows if row["kind"] == "batch"]


def outcome_differences(
    table: str, outcomes: list[tuple[tuple[int, int], str]], batches: Iterable[tuple[int, int]]
) -> list[str]:
    """Where the results of a table's check are not one for each batch, held before it broke and after.

    Args:
        table: The table.
        outcomes: What `outcomes_of` gives.
        batches: The batches that the job made.
    """
    sentences, judged = [], [batch for batch, _ in outcomes]
    if len(set(judged)) < len(judged):
        sentences.append(f"quality.results has a batch of {table} twice")
    if lacking := sorted(set(batches) - set(judged)):
        sentences.append(f"quality.results lacks batch {lacking[0][1]} of {table}")
    states = ["broken" if outcome == "broken" else "well" for _, outcome in outcomes]
    changes = [state for n, state in enumerate(states) if n == 0 or state != states[n - 1]]
    if changes != ["well", "broken", "well"]:
        sentences.append(f"{table}: the check {CHECK} was {', '.join(changes)}, not well, broken, well")
    return sentences
