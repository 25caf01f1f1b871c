"""What a backfill changes: two versions of a table's rows compared by their keys, with samples and a digest."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

_SAMPLES = 5
_KINDS = ("added", "removed", "changed")
_JSON = {"ignoreNullFields": "false", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True)
class Diff:
    """A keyed diff.

    Attributes:
        keys: The columns that name a row.
        added, removed, changed, unchanged: How many rows.
        samples: Some rows of each kind, the first by their keys: `{"key", "before", "after"}`.
        digest: Names the diff: every row that differs goes into it.
    """

    keys: tuple[str, ...]
    added: int
    removed: int
    changed: int
    unchanged: int
    samples: dict[str, list[dict[str, Any]]]
    digest: str

    def to_json(self) -> dict[str, Any]:
        """The diff as it is stored and printed."""
        return {
            "keys": list(self.keys),
            "added": self.added,
            "removed": self.removed,
            "changed": self.changed,
            "unchanged": self.unchanged,
            "digest": self.digest,
            "samples": self.samples,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Diff":
        """The diff as it was stored."""
        return cls(**{**value, "keys": tuple(value["keys"])})


@dataclass(frozen=True)
class Content:
    """What a set of rows is, whatever their order: their number and the sum of their hashes."""

    rows: int
    hash_sum: str


def keyed_diff(before: DataFrame, after: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> Diff:
    """Compares rows by their keys.

    Args:
        before: The rows now.
        after: The rows that would replace them.
        keys: The columns that name a row; NULL equals NULL.
        columns: The columns that are compared.
    """
    joined = _side(before, keys, columns, "before").join(
        _side(after, keys, columns, "after"),
        _all_equal([(f"_before_{i}", f"_after_{i}") for i in range(len(keys))]),
        "full",
    )
    kind = (
        F.when(F.col("_before").isNull(), "added")
        .when(F.col("_after").isNull(), "removed")
        .when(F.col("_before") != F.col("_after"), "changed")
        .otherwise("unchanged")
    )
    rows = joined.select(
        kind.alias("kind"),
        F.coalesce("_before_key", "_after_key").alias("key"),
        F.col("_before").alias("before"),
        F.col("_after").alias("after"),
    )
    hashed = F.xxhash64("key", F.coalesce("before", F.lit("")), F.coalesce("after", F.lit("")))
    totals = rows.groupBy("kind").agg(
        F.count(F.lit(1)).alias("rows"), F.sum(hashed.cast("decimal(20,0)")).alias("hash")
    )
    counted = {row["kind"]: (row["rows"], str(row["hash"])) for row in totals.collect()}
    differing = {kind: counted[kind] for kind in _KINDS if kind in counted}
    digest = hashlib.sha256(json.dumps(differing, sort_keys=True).encode()).hexdigest()[:16]
    counts = {kind: counted.get(kind, (0, ""))[0] for kind in (*_KINDS, "unchanged")}
    samples = _samples(rows) if differing else {}
    return Diff(tuple(keys), samples=samples, digest=digest, **counts)


def content(rows: DataFrame) -> Column:
    """A row's hash over all its columns, NULLs and nested values included."""
    flags = [F.col(f"`{f.name}`").isNull() for f in rows.schema.fields]
    return F.xxhash64(*[_hashable(f) for f in rows.schema.fields], *flags).cast("decimal(20,0)")


def content_of(rows: DataFrame, affected: Column) -> tuple[Content, Content]:
    """What the affected rows are, and what the others are."""
    hashed = content(rows)
    found = rows.agg(
        F.count_if(affected).alias("inside"),
        F.count_if(~affected).alias("outside"),
        F.sum(F.when(affected, hashed)).alias("inside_hash"),
        F.sum(F.when(~affected, hashed)).alias("outside_hash"),
    ).first()
    assert found is not None
    return (
        Content(found["inside"], str(found["inside_hash"] or 0)),
        Content(found["outside"], str(found["outside_hash"] or 0)),
    )


def _side(rows: DataFrame, keys: Sequence[str], columns: Sequence[str], side: str) -> DataFrame:
    named = [F.col(f"`{key}`").alias(f"_{side}_{i}") for i, key in enumerate(keys)]
    return rows.select(*named, _json(keys).alias(f"_{side}_key"), _json(columns).alias(f"_{side}"))


def _json(columns: Sequence[str]) -> Column:
    """The columns as one JSON text: comparable whatever their types, and a sample that a person can read."""
    return F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns]), _JSON)


def _all_equal(pairs: Sequence[tuple[str, str]]) -> Column:
    condition: Column = F.lit(True)
    for left, right in pairs:
        condition &= F.col(left).eqNullSafe(F.col(right))
    return condition


def _samples(rows: DataFrame) -> dict[str, list[dict[str, Any]]]:
    place = F.row_number().over(Window.partitionBy("kind").orderBy("key"))
    differing = rows.filter(F.col("kind") != "unchanged").withColumn("place", place)
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in differing.filter(F.col("place") <= _SAMPLES).orderBy("kind", "place").collect():
        sample = {name: json.loads(row[name]) for name in ("key", "before", "after") if row[name] is not None}
        samples.setdefault(row["kind"], []).append(sample)
    return samples


def _hashable(field: T.StructField) -> Column:
    column = F.col(f"`{field.name}`")
    return F.to_json(column, _JSON) if "map<" in field.dataType.simpleString() else column
