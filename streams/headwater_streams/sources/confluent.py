"""The header of Confluent's wire format, which values have where a schema registry is used.

It is a zero octet, then the schema's id as four octets, most significant first, then the format's own part.
(Source: Confluent's "Schema Registry wire format".)
"""

HEADER_BYTES = 5
NO_HEADER = "the value does not begin with the header of Confluent's wire format"
