"""A pass's few rejected records, kept as it meets them, so that the batch need not be read again for its quarantine.

They come out of the pass as one observed text, a line of JSON for each. It costs a little for every row, so a stage
asks for it where the batch before had rejected some; where there are more than are kept, or larger ones, all are read
again.
"""

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.internal import InternalFunction

from headwater_streams.sources.coordinates import ROW_COLUMNS, TIMESTAMP
from headwater_streams.sources.decode import HEADERS, KEY, RAW

KEPT = "kept"
"""The name under which they are observed."""
MOST_KEPT = 2048
_COLUMNS = (*ROW_COLUMNS, KEY, RAW, HEADERS)
_TEXT, _MOST_CHARACTERS = "_rejected_text", 8192


def with_texts(rows: DataFrame, rejected: Column) -> DataFrame:
    """Decoded records, with the text of each rejected one beside it."""
    # The time as a number: JSON's texts of it would be of milliseconds.
    values = [F.unix_micros(name).alias(name) if name == TIMESTAMP else F.col(name) for name in _COLUMNS]
    return rows.withColumn(_TEXT, F.when(rejected, F.to_json(F.struct(*values))))


def kept() -> Column:
    """The aggregate that keeps the texts that `with_texts` gave."""
    short = F.when(F.length(_TEXT) <= _MOST_CHARACTERS, F.col(_TEXT))
    return F.array_join(InternalFunction.collect_top_k(short, MOST_KEPT, False), "\n").alias(KEPT)


def records_of(text: str, rejected: int, located: DataFrame) -> DataFrame | None:
    """The records that were kept, as `located` has them; None where these are not all that were rejected."""
    lines = text.split("\n") if text else []
    if len(lines) != rejected:
        return None
    fields = [
        T.StructField(name, T.LongType() if name == TIMESTAMP else located.schema[name].dataType)
        for name in _COLUMNS
    ]
    texts = located.sparkSession.createDataFrame(pa.table({_TEXT: lines}))
    records = texts.select(F.from_json(_TEXT, T.StructType(fields)).alias("record")).select("record.*")
    return records.withColumn(TIMESTAMP, F.timestamp_micros(TIMESTAMP))
