"""What can go wrong between bytes and messages."""


class WireError(Exception):
    """Base class of everything that this package raises."""


class MalformedFrame(WireError):  # noqa: N818 - named by what it is, as callers read it
    """The peer sent bytes that are no message: the connection cannot go on, nobody else is concerned."""
