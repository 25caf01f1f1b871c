"""The header that every request starts with, parsed by hand because every request has one."""

from struct import Struct
from typing import NamedTuple

from headwater_broker.wire.apis import API_VERSIONS, APIS
from headwater_broker.wire.errors import MalformedFrame
from headwater_broker.wire.primitives import StructError, skip_tags

_FIXED = Struct(">hhih")
_FIXED_SIZE = _FIXED.size


class RequestHeader(NamedTuple):
    """Who asks what, and where in the frame the body starts.

    Attributes:
        api_key: The API asked for; not checked against the table.
        api_version: Its version; not checked against the table.
        correlation_id: Echoed in the response.
        client_id: What the client calls itself, undecoded; None if it says nothing.
        body_position: Position of the body in the frame.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: bytes | None
    body_position: int


def parse_request_header(frame: memoryview) -> RequestHeader:
    """Parses the header of a frame (without its length prefix).

    The client id is a two-byte-length string in both header versions; version 2, which flexible requests
    have, adds tagged fields. Of an unknown API or version no tags are read, since the layout is not known.

    Raises:
        MalformedFrame: The frame is shorter than its header.
    """
    try:
        api_key, api_version, correlation_id, length = _FIXED.unpack_from(frame)
        position = _FIXED_SIZE
        client_id = None
        if length >= 0:
            position += length
            if position > len(frame):
                raise MalformedFrame(f"client id of {length} bytes in a frame of {len(frame)}")
            client_id = frame[_FIXED_SIZE:position].tobytes()
        api = APIS.get(api_key)
        if (
            api is not None
            and api.flexible_from is not None
            and api.flexible_from <= api_version <= api.highest
        ):
            position = skip_tags(frame, position)
    except (StructError, IndexError) as error:
        raise MalformedFrame(f"frame of {len(frame)} bytes ends within its header") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, position)


def response_header_size(api_key: int, flexible: bool) -> int:
    """Bytes of the response header: the correlation id, then (flexible only) an empty set of tagged fields.

    ApiVersions never has the tags, so that a client that does not know the broker yet can read it.
    """
    return 5 if flexible and api_key != API_VERSIONS else 4
