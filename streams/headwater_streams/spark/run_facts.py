"""What a generation's checkpoint was made with: `<checkpoint>/headwater.json`, written at each start of the job.

    {"spark": "4.1.3", "kind": "window", "targets": {"gold.delays": "<Delta's id of the table>"},
     "keys": ["carrier"], "mode": "update",
     "inputs": {"departures": {"kind": "topic", "ids": {"departures": "<KIP-516>"}, ...}},
     "operator": "TumblingWindow(...)", "state": ["Aggregate ... "], "columns": {"carrier": "string"},
     "shuffle_partitions": "2", "state_store": "org.apache...", "dedup": "ByOffset(...)", "fingerprint": "9f2c...",
     "_crc32": "<of all before>"}

A job that differs from it cannot always go on with the state that Spark kept; `runtime.compatibility` says when it can.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater_streams.base.record import Part, Record
from headwater_streams.spark.checkpoint import last_planned
from headwater_streams.storage.damage import FACTS_FILE
from headwater_streams.storage.files import exists
from headwater_streams.storage.records import read_record


@dataclass(frozen=True, kw_only=True)
class InputFacts(Part):
    """One input.

    Attributes:
        kind: `"topic"` or `"table"`.
        ids: The topics or the table, each with its id; None where it is not known.
        watermark: The delay, as it is declared.
        columns: The types of its columns.
    """

    WHAT = "the facts of an input"

    kind: str
    ids: Mapping[str, str | None]
    watermark: str | None
    columns: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The facts as they are stored."""
        return {
            "kind": self.kind,
            "ids": dict(self.ids),
            "watermark": self.watermark,
            "columns": dict(self.columns),
        }

    @classmethod
    def from_json(cls, value: Any) -> "InputFacts":
        """The facts as they were stored."""
        return cls(**cls.checked(value))

    @property
    def source(self) -> str:
        """`"topic departures"`, `"topics east, west"` or `"table silver.departures"`."""
        return f"{self.kind}{'s' if len(self.ids) > 1 else ''} {', '.join(self.ids)}"


@dataclass(frozen=True, kw_only=True)
class RunFacts(Record):
    """What decides whether a checkpoint and a job belong together; see the module.

    Attributes:
        spark: Spark's version.
        kind: The kind of stage.
        targets: The tables, the one with the state first, each with Delta's id; None while it does not exist.
        keys: The target's keys.
        mode: The target's mode.
        inputs: The inputs by parameter.
        operator: The stateful operator's spec; how a dimension orders changes; empty for row jobs.
        state: Each node of the plan that keeps state, with its expressions and their types; see `JobPlan`.
        columns: The types of the result's columns.
        shuffle_partitions: The number of pieces of the state.
        state_store: The class that stores it.
        dedup: The deduplication.
        fingerprint: A digest of the function and its declaration.
    """

    WHAT = "the facts of a run"

    spark: str
    kind: str
    targets: Mapping[str, str | None]
    keys: tuple[str, ...]
    mode: str
    inputs: Mapping[str, InputFacts]
    operator: str
    state: tuple[str, ...]
    columns: Mapping[str, str]
    shuffle_partitions: str
    state_store: str
    dedup: str
    fingerprint: str

    def to_json(self) -> dict[str, Any]:
        """The facts as they are stored."""
        return self.version_key() | {
            "spark": self.spark,
            "kind": self.kind,
            "targets": dict(self.targets),
            "keys": list(self.keys),
            "mode": self.mode,
            "inputs": {name: each.to_json() for name, each in self.inputs.items()},
            "operator": self.operator,
            "state": list(self.state),
            "columns": dict(self.columns),
            "shuffle_partitions": self.shuffle_partitions,
            "state_store": self.state_store,
            "dedup": self.dedup,
            "fingerprint": self.fingerprint,
        }

    @classmethod
    def from_json(cls, value: Any) -> "RunFacts":
        """The facts as they were stored."""
        stored = dict(cls.checked(value))
        stored.pop(cls.FORMAT_KEY, None)
        inputs = {name: InputFacts.from_json(facts) for name, facts in stored["inputs"].items()}
        return cls(
            **{**stored, "keys": tuple(stored["keys"]), "state": tuple(stored["state"]), "inputs": inputs}
        )

    @property
    def topic_ids(self) -> dict[str, str | None]:
        """The topics of all inputs, each with its own id."""
        topics = [each for each in self.inputs.values() if each.kind == "topic"]
        return {name: topic_id for each in topics for name, topic_id in each.ids.items()}


def facts_of_last_run(checkpoint: Path) -> RunFacts | None:
    """What the checkpoint was made with; None where no batch has begun, or a Headwater older than this file made it.

    Raises:
        DamagedFileError: The file is not what was written.
        NewerFileError: A newer Headwater wrote it.
    """
    path = checkpoint / FACTS_FILE
    if last_planned(checkpoint) is None or not exists(path):
        return None
    return read_record(path, RunFacts)
