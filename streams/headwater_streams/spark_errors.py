"""What Spark says is wrong, for a person."""

from pyspark.errors import PySparkException


def first_sentence(error: PySparkException) -> str:
    """The error's first line, without its code."""
    message = (error.getMessage() or str(error)).strip().splitlines()[0]
    return message.split(" SQLSTATE")[0]
