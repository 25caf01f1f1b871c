"""What can go wrong while mirroring."""

from confluent_kafka import KafkaException

from headwater.errors import UserError


class MirrorError(UserError):
    """The mirror cannot begin, or cannot go on; what is mirrored stays."""


class HaltedError(Exception):
    """One partition cannot go on until somebody does something; the others do.

    Its text is the sentence for people.
    """


class AwayError(Exception):
    """A cluster does not answer, or not as it will in a moment: to be tried again."""


def text_of_error(error: AwayError | KafkaException) -> str:
    """What is wrong, in a sentence."""
    return str(error) if isinstance(error, AwayError) else str(error.args[0].str())
