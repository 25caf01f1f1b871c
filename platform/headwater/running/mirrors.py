"""How far the mirrors of a home are, as each saves it once a second; no broker is asked."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MIRROR_COLUMNS = ("from", "to", "topic", "records", "lag", "lost", "state")
"""Of `mirror_rows`."""

_FRESH_S = 15.0
"""A mirror that saved nothing for so long does not run."""


def mirror_folder(home: Path) -> Path:
    """Where mirrors save how far they are."""
    return home / "mirror"


def saved_mirrors(home: Path) -> list[dict[str, Any]]:
    """What each mirror saved last, with `running`; files that are none are passed over."""
    found = []
    for path in sorted(mirror_folder(home).glob("*.json")):
        try:
            status = json.loads(path.read_text(encoding="utf-8"))
            status["running"] = time.time() - status["at_ms"] / 1000 < _FRESH_S and not status["ended"]
        except (OSError, ValueError, KeyError, TypeError):
            continue
        found.append(status)
    return found


def mirror_rows(mirrors: Iterable[dict[str, Any]]) -> list[list[Any]]:
    """A line for each topic of each mirror."""
    return [
        [
            mirror["source"],
            mirror["target"],
            topic["topic"] if topic["topic"] == topic["target"] else f"{topic['topic']} as {topic['target']}",
            topic["records"],
            "unknown" if topic["lag"] is None else topic["lag"],
            topic["lost"],
            _state(mirror, topic),
        ]
        for mirror in mirrors
        for topic in mirror["topics"]
    ]


def mirror_problems(mirrors: Iterable[dict[str, Any]]) -> list[str]:
    """A sentence for each topic or partition that does not go on."""
    mirrors = [mirror for mirror in mirrors if mirror["running"]]
    refused = [
        f"mirror of {mirror['source']}: {why}" for mirror in mirrors for why in mirror.get("refused", ())
    ]
    return refused + [
        f"mirror of {mirror['source']}: topic {topic['topic']}, partition {partition['partition']}: "
        f"{partition['halted']}"
        for mirror in mirrors
        for topic in mirror["topics"]
        for partition in topic["partitions"]
        if partition["halted"]
    ]


def _state(mirror: dict[str, Any], topic: dict[str, Any]) -> str:
    if not mirror["running"]:
        return "stopped"
    if any(partition["halted"] for partition in topic["partitions"]):
        return "halted"
    if mirror.get("away"):  # what it saved last of the lag is of before that
        return f"waits: {mirror['away']}"
    if topic["lag"]:
        return "behind"
    return "waits for an open transaction" if topic["open"] else "up to date"
