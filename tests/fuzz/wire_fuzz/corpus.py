"""The sessions that are kept because they led to something: one file for each API, one outcome a line."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

from headwater_broker.wire import APIS
from wire_fuzz.sessions import Session

FOLDER = Path(__file__).resolve().parents[1] / "corpus"
_LARGEST_BYTES = 400
"""Of a session that is kept."""

_MOST_BYTES = 270_000
"""Of all that are kept, as they are written."""

ANY_API = -1

Outcome = tuple[int, bool, str]
"""API key, whether the version is flexible, and error codes or why the connection was closed."""


class Corpus:
    """For each outcome the first session that led to it, or one that is far smaller."""

    def __init__(self) -> None:
        self._kept: dict[Outcome, Session] = {}

    @classmethod
    def stored(cls, folder: Path = FOLDER) -> Corpus:
        """The one in the tree."""
        corpus = cls()
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_text(encoding="ascii").splitlines():
                fields = json.loads(line)
                key, is_flexible, code = fields.pop("outcome")
                corpus._kept[key, is_flexible, code] = Session.from_json(fields)
        return corpus

    @property
    def sessions(self) -> list[Session]:
        """Each once."""
        return list(dict.fromkeys(self._kept.values()))

    def any(self, rng: random.Random) -> Session | None:
        """One of them."""
        return rng.choice(list(self._kept.values())) if self._kept else None

    def offer(self, session: Session, outcomes: Iterable[Outcome]) -> None:
        """Keeps a small session for what it led to."""
        for outcome in outcomes if session.size <= _LARGEST_BYTES else ():
            kept = self._kept.get(outcome)
            if kept is None or 2 * session.size < kept.size:
                self._kept[outcome] = session

    def save(self, folder: Path = FOLDER) -> None:
        """Writes the files anew; where they would become too large, without the largest sessions."""
        lines = {outcome: _line(outcome, session) for outcome, session in self._kept.items()}
        by_size = sorted(lines, key=lambda outcome: (len(lines[outcome]), outcome))
        sizes = accumulate(len(lines[outcome]) for outcome in by_size)
        kept = [outcome for outcome, size in zip(by_size, sizes, strict=True) if size <= _MOST_BYTES]
        files: dict[str, list[str]] = {}
        for outcome in sorted(kept):
            name = APIS[outcome[0]].name if outcome[0] in APIS else "any"
            files.setdefault(name, []).append(lines[outcome])
        folder.mkdir(parents=True, exist_ok=True)
        for name, of_api in files.items():
            (folder / f"{name}.jsonl").write_text("".join(of_api), encoding="ascii")


def _line(outcome: Outcome, session: Session) -> str:
    return json.dumps({"outcome": outcome, **session.to_json()}, separators=(",", ":")) + "\n"
