"""Where rows stand in their topics, in arrays: which of them are in some stretches of offsets."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Stretches = Mapping[tuple[str, int], Sequence[tuple[int, int]]]
"""Half-open stretches of offsets, by topic and partition."""


def inside(rows: pa.Table, pairs: Stretches) -> np.ndarray:
    """True at the rows whose coordinates are in half-open stretches of offsets; a row without coordinates is in none.

    Args:
        rows: `_topic, _partition, _offset`.
        pairs: The stretches, by topic and partition.
    """
    partitions, at = rows["_partition"].to_numpy(), rows["_offset"].to_numpy()
    mask = np.zeros(len(at), dtype=bool)
    for (topic, partition), stretches in pairs.items():
        of_topic: Any = pc.fill_null(pc.equal(rows["_topic"], topic), False).to_numpy()
        for start, end in stretches:
            mask |= of_topic & (partitions == partition) & (at >= start) & (at < end)
    return mask
