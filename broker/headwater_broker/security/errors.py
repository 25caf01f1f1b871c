"""What goes wrong when somebody says who they are."""


class AuthenticationFailedError(Exception):
    """The client is not who it says, or does not speak the mechanism; the message may be sent to it."""
