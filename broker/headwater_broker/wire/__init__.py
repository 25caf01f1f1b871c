"""Bytes to messages and back: Kafka's protocol, without I/O and without a clock.

A frame is a four-byte length, then a header (`header`), then a body. `apis` is the table of what is answered.
Produce and Fetch are parsed by hand (`produce`, `fetch`), since every event passes through them, and Produce
requests that repeat one another are not even parsed (`alike`); everything
else goes through kio's generated schemas (`codec`, `reader`).

Every function takes a memoryview of exactly one frame, so that no reader can pass its end, and raises
`MalformedFrame` when the peer's bytes are no message. Nothing is allocated by what a count promises.
"""

from headwater_broker.wire.apis import APIS, Api
from headwater_broker.wire.errors import MalformedFrame, WireError
from headwater_broker.wire.header import RequestHeader, parse_request_header

__all__ = ["APIS", "Api", "MalformedFrame", "RequestHeader", "WireError", "parse_request_header"]
