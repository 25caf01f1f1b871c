"""What a backfill changes: two versions of a table's rows compared by their keys, with samples and a digest."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headwater_streams.base.json_values import exact_values
from headwater_streams.base.record import Part
from headwater_streams.sources.coordinates import OFFSET, PARTITION, PLACE, ROW, SOURCES, TOPIC
from headwater_streams.spark.columns import col, cols
from headwater_streams.spark.hashed import EXACT_JSON, hash_parts

SHOWN = 5
"""So many rows of a kind are shown, if nobody asks for more."""
_BUCKETS = 4096
_NUMBER, _BUCKET = "_number", "_bucket"
_LOOKED_AT = 10_000
"""Of so many rows of a kind, at least, the first are shown."""
_KINDS = ("added", "removed", "changed")
_HASHED_ALIKE = (T.StringType, T.IntegerType, T.LongType, T.DateType, T.TimestampType)
"""Values of these are hashed alike where they are equal, without their text, whose making costs more than the hash."""


@dataclass(frozen=True, kw_only=True)
class Diff(Part):
    """A keyed diff.

    Attributes:
        keys: The columns that name a row.
        added, removed, changed, unchanged: How many rows.
        samples: Some rows of each kind, the first by their keys, of some where there are many: `{"key", "before",
            "after"}`. A DECIMAL is a text, as `headwater sql` gives it.
        digest: Names the diff: every row that differs goes into it.
    """

    WHAT = "a diff"

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
        return cls(**{**cls.checked(value), "keys": tuple(value["keys"])})


@dataclass(frozen=True)
class Content:
    """What a set of rows is, whatever their order: their number and the sum of their hashes."""

    rows: int
    hash_sum: str


def keyed_diff(
    before: DataFrame, after: DataFrame, keys: Sequence[str], columns: Sequence[str], limit: int = SHOWN
) -> Diff:
    """Compares rows by their keys.

    Most backfills change few rows of many. So the rows are put into buckets by their keys, and where the hashes of a
    bucket's rows sum up to the same on both sides it is not looked at again; the rest is joined and compared. A row is
    unchanged whose text is the same, or whose hash.

    Args:
        before: The rows now.
        after: The rows that would replace them.
        keys: The columns that name a row; NULL equals NULL.
        columns: The columns that are compared.
        limit: The most rows of each kind in the samples.
    """
    if ROW in keys:
        before, after = _with_row(before), _with_row(after)
    bucket = _bucket(before, after, keys)
    before, after = (rows.withColumn(_BUCKET, bucket) for rows in (before, after))
    unchanged, differing = _buckets(before, after, keys, columns)
    if differing and any(_repeats(rows, keys) for rows in (before, after)):
        before, after = (_numbered(rows, keys, columns) for rows in (before, after))
        keys = (*keys, _NUMBER)
    counts = dict.fromkeys((*_KINDS, "unchanged"), 0) | {"unchanged": unchanged}
    hashes: dict[str, int] = {}
    kept: dict[str, list[tuple[int, int]]] = {}
    if differing:
        rows = _joined(before, after, keys, columns, differing)
        hashed = F.xxhash64("key", F.coalesce("before", F.lit("")), F.coalesce("after", F.lit("")))
        found = rows.groupBy("kind", "bucket").agg(
            F.count(F.lit(1)).alias("rows"), F.sum(hashed.cast("decimal(20,0)")).alias("hash")
        )
        for row in sorted(found.collect(), key=lambda row: row["bucket"]):
            counts[row["kind"]] += row["rows"]
            hashes[row["kind"]] = hashes.get(row["kind"], 0) + int(row["hash"])
            kept.setdefault(row["kind"], []).append((row["bucket"], row["rows"]))
    told = {kind: (counts[kind], str(hashes[kind])) for kind in _KINDS if kind in hashes}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]
    shown = {bucket for kind in told for bucket in _first(kept[kind], max(limit, _LOOKED_AT))}
    schemas = {"before": before.schema, "after": after.schema}
    samples = _samples(_joined(before, after, keys, columns, shown), limit, schemas) if told else {}
    return Diff(keys=tuple(key for key in keys if key != _NUMBER), samples=samples, digest=digest, **counts)


def _buckets(
    before: DataFrame, after: DataFrame, keys: Sequence[str], columns: Sequence[str]
) -> tuple[int, set[int]]:
    """How many rows are in buckets that are the same on both sides, and which buckets are not."""
    named = list(dict.fromkeys((*keys, *columns)))
    sides = []
    for rows, sign in ((before, -1), (after, 1)):
        hashed = _hash(rows, named)
        # A sum of halves never overflows, and needs no decimals.
        low, high = hashed.bitwiseAND(F.lit(0xFFFFFFFF)), F.shiftrightunsigned(hashed, 32)
        sides.append(
            rows.select(
                F.col(_BUCKET).alias("bucket"),
                F.lit(sign).alias("sign"),
                (low * sign).alias("low"),
                (high * sign).alias("high"),
            )
        )
    found = sides[0].union(sides[1]).groupBy("bucket")
    summed = found.agg(
        F.count_if(F.col("sign") < 0).alias("rows"),
        *[F.sum(name).alias(name) for name in ("sign", "low", "high")],
    ).collect()
    same = [row["rows"] for row in summed if not (row["sign"] or row["low"] or row["high"])]
    return sum(same), {row["bucket"] for row in summed if row["sign"] or row["low"] or row["high"]}


def _joined(
    before: DataFrame, after: DataFrame, keys: Sequence[str], columns: Sequence[str], buckets: set[int]
) -> DataFrame:
    """The rows of some buckets of both sides beside each other: `kind`, `bucket`, `key`, `before`, `after`."""
    joined = _side(before, keys, columns, "before", buckets).join(
        _side(after, keys, columns, "after", buckets),
        _all_equal([(f"_before_{i}", f"_after_{i}") for i in range(len(keys))]),
        "full",
    )
    kind = (
        F.when(F.col("_before").isNull(), "added")
        .when(F.col("_after").isNull(), "removed")
        .when(
            (F.col("_before") != F.col("_after")) & (F.col("_before_hash") != F.col("_after_hash")), "changed"
        )
        .otherwise("unchanged")
    )
    return joined.select(
        kind.alias("kind"),
        F.coalesce("_before_bucket", "_after_bucket").alias("bucket"),
        F.coalesce("_before_key", "_after_key").alias("key"),
        F.col("_before").alias("before"),
        F.col("_after").alias("after"),
    )


def _with_row(rows: DataFrame) -> DataFrame:
    """Rows with their places in their records. A row of before, when a record became one at most, is its record's
    first."""
    return rows.withColumn(ROW, F.coalesce(ROW, F.lit(0)) if ROW in rows.columns else F.lit(0).cast("long"))


def _repeats(rows: DataFrame, keys: Sequence[str]) -> bool:
    """Whether rows share their coordinates, as those of pairs do, or the records that a pair is made of, as pairs of
    rows that are several to a record do."""
    if tuple(keys) == PLACE:
        there, offsets = distinct_offsets(rows)
        return there != offsets
    if tuple(keys) in ((*PLACE, ROW), (SOURCES,)):
        return not rows.groupBy(*cols(keys)).count().filter(F.col("count") > 1).isEmpty()
    return False


def _numbered(rows: DataFrame, keys: Sequence[str], columns: Sequence[str]) -> DataFrame:
    """Rows of one key told apart by their order, so that each is compared with one of the other side."""
    of_key = Window.partitionBy(*cols(keys)).orderBy(_json(columns))
    return rows.withColumn(_NUMBER, F.row_number().over(of_key))


def _first(kept: Sequence[tuple[int, int]], looked_at: int) -> Iterator[int]:
    """Buckets with enough rows of a kind to show some; all of them where the kind is rare."""
    rows = 0
    for bucket, count in kept:
        yield bucket
        rows += count
        if rows >= looked_at:
            return


def distinct_offsets(rows: DataFrame) -> tuple[int, int]:
    """How many rows there are, and of how many offsets: counted exactly, by one bit for each offset."""
    word, bit = F.shiftright(OFFSET, 6), F.col(OFFSET).bitwiseAND(F.lit(63)).cast("int")
    words = rows.groupBy(TOPIC, PARTITION, word.alias("word")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bit_or(F.call_function("shiftleft", F.lit(1).cast("long"), bit)).alias("bits"),
    )
    found = words.agg(
        F.coalesce(F.sum("rows"), F.lit(0)).alias("rows"),
        F.coalesce(F.sum(F.bit_count("bits")), F.lit(0)).alias("offsets"),
    ).first()
    assert found is not None
    return found["rows"], found["offsets"]


def content(rows: DataFrame) -> Column:
    """A row's hash over all its columns, NULLs and nested values included."""
    return _hash(rows, rows.columns).cast("decimal(20,0)")


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


def _side(
    rows: DataFrame, keys: Sequence[str], columns: Sequence[str], side: str, buckets: set[int]
) -> DataFrame:
    named = [col(key).alias(f"_{side}_{i}") for i, key in enumerate(keys)]
    key, all_of_it = _json(keys), _json(columns)
    selected = rows.select(
        *named,
        F.col(_BUCKET).alias(f"_{side}_bucket"),
        key.alias(f"_{side}_key"),
        all_of_it.alias(f"_{side}"),
        # Of -0.0 and 0.0, which are equal, the texts differ; of a column whose type was changed, the hashes.
        _hash(rows, columns).alias(f"_{side}_hash"),
    )
    if len(buckets) == _BUCKETS:
        return selected
    return selected.filter(f"_{side}_bucket IN ({', '.join(map(str, sorted(buckets)))})")


def _bucket(before: DataFrame, after: DataFrame, keys: Sequence[str]) -> Column:
    """A row's bucket: as text by a key whose type was changed, so that it stays in it."""
    told_by = []
    for key in keys:
        value, kind = col(key), before.schema[key].dataType
        is_same = kind == after.schema[key].dataType and isinstance(kind, _HASHED_ALIKE)
        told_by.append(value if is_same else value.cast("string"))
    return F.pmod(F.xxhash64(*told_by), F.lit(_BUCKETS)).cast("int")


def _hash(rows: DataFrame, names: Sequence[str]) -> Column:
    """A hash of some columns of a row, by their own types."""
    return F.xxhash64(*[p for n in names for p in hash_parts(rows.schema[n].dataType, col(n))])


def _json(columns: Sequence[str]) -> Column:
    """The columns as one JSON text: comparable whatever their types, and a sample that a person can read."""
    return F.to_json(F.struct(*cols(columns)), EXACT_JSON)


def _all_equal(pairs: Sequence[tuple[str, str]]) -> Column:
    condition: Column = F.lit(True)
    for left, right in pairs:
        condition &= F.col(left).eqNullSafe(F.col(right))
    return condition


def _samples(
    rows: DataFrame, limit: int, schemas: Mapping[str, T.StructType]
) -> dict[str, list[dict[str, Any]]]:
    place = F.row_number().over(Window.partitionBy("kind").orderBy("key"))
    differing = rows.filter(F.col("kind") != "unchanged").withColumn("place", place)
    samples: dict[str, list[dict[str, Any]]] = {}
    for row in differing.filter(F.col("place") <= limit).orderBy("kind", "place").collect():
        of_key = schemas["after" if row["before"] is None else "before"]
        sample = {
            name: exact_values(row[name], schemas.get(name, of_key))
            for name in ("key", "before", "after")
            if row[name] is not None
        }
        samples.setdefault(row["kind"], []).append(sample)
    return samples
