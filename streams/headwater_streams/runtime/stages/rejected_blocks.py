"""Where a pass's rejected records stand, so that few others are decoded when these are read again.

A pass notes the blocks of offsets with a rejected record in a bitmap of a fixed size: it stays small however many are
rejected. Blocks beyond its size share bits, so that a reader may get more records than needed, never fewer.
"""

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headwater_streams.sources.coordinates import OFFSET, PARTITION

BLOCKS = "blocks"
_PLACES = 8 * 4096  # what `bitmap_construct_agg` holds
_SHIFT = 5  # blocks of 32: a batch of a million offsets, Headwater's default, fills the bitmap
_APART = 20_251  # near the golden section of the places: partitions that are about as long have blocks of their own


def noted(rejected: Column) -> Column:
    """The aggregate that notes where the records for which a condition holds stand."""
    return F.bitmap_construct_agg(F.when(rejected, _place())).alias(BLOCKS)


def standing_in(located: DataFrame, blocks: bytes) -> DataFrame:
    """The records that stand in the blocks noted, and maybe others."""
    words = np.frombuffer(blocks, dtype="<i8")
    # One literal, of an array: it is handed to the code that Spark makes of a plan, which stays the same.
    noted_words = F.split(F.lit(",".join(map(str, words))), ",").cast("array<bigint>")
    word = F.get(noted_words, F.shiftright(_place(), 6).cast("int"))
    return located.filter(F.getbit(word, (_place() % 64).cast("int")) == 1)


def _place() -> Column:
    # A row of a full join that has no left side has no place, and is to be found all the same.
    at = [F.coalesce(F.col(name), F.lit(0)) for name in (OFFSET, PARTITION)]
    block = F.shiftright(at[0], _SHIFT) + at[1] * _APART
    return block.bitwiseAND(F.lit(_PLACES - 1))
