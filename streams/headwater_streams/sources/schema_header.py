"""Values whose schema is named in a header of the record, as newer serializers of Confluent's can do it.

The header `__value_schema_id` has an octet of 1, the schema's GUID in 16 octets, and, for Protobuf, the path to the
message in its file. The value has no prefix then. (Source: confluent-kafka's HeaderSchemaIdSerializer.)
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from headwater_streams.sources.headers import header_value

_HEADER = "__value_schema_id"
_GUID_END = 17
_NO_ID = b"\0\0\0\0\0"


def guid_of(headers: Column) -> Column:
    """The GUID of a value's schema in 32 hexadecimal digits; NULL for a record that has none."""
    named = header_value(headers, _HEADER)
    is_guid = (F.hex(F.substring(named, 1, 1)) == "01") & (F.octet_length(named) >= _GUID_END)
    return F.when(is_guid, F.lower(F.hex(F.substring(named, 2, 16))))


def with_prefix(raw: Column, headers: Column) -> Column:
    """The value as it would be with a prefix in place of a header, for formats that do not look the schema up."""
    path = F.substring(header_value(headers, _HEADER), F.lit(_GUID_END + 1), F.lit(2**31 - 1))
    return F.when(guid_of(headers).isNotNull(), F.concat(F.lit(_NO_ID), path, raw)).otherwise(raw)
