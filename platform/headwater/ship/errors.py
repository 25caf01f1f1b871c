"""What can go wrong while shipping."""

from headwater.errors import UserError


class ShipError(UserError):
    """The shipper cannot go on; what was not acknowledged is sent again by its next run."""


class ReplacedError(Exception):
    """What was read of a file is no longer in it: it was truncated, or written anew."""


class StoppedError(Exception):
    """The shipper was asked to stop while it waited for the broker."""


class ProducerLostError(Exception):
    """The producer is of no further use; a new one starts from the saved progress."""
