"""Forms that texts of values have, as Java's regular expressions, by the rules of docs/reference/values.md: for
parsers, and for the check `expect.text_of`."""

DECIMAL = r"[+-]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?"
"""A number with a fraction."""
NO_DECIMAL = "(?i:NaN|[+-]?Inf(?:inity)?)"
"""IEEE 754's values that are no numbers, which Spark accepts in JSON, too."""
_DAY = "[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}"
_MIDNIGHT = r"[T ]00:00(?::00(?:[.,]0++)?)?[ ]?(?:Z|UTC|GMT|[+-]00(?::?00)?)?"
_CLOCK = r"[0-9]{1,2}:[0-9]{1,2}(?::[0-9]{1,2}(?:[.,][0-9]*+)?)?"


def whole(form: str) -> str:
    """A pattern of texts that have a form, and nothing else but blanks around it."""
    return rf"\A[ \t]*+(?:{form})[ \t]*+\z"


DATE = whole(f"{_DAY}(?:{_MIDNIGHT})?")
"""A date, also with midnight."""
LOCAL_TIME = whole(f"{_DAY}(?:[T ]{_CLOCK})?")
"""A date, with its time of day or without, and no zone."""
MINUTES = r"\A(\S{8,10}[T ][0-9]{1,2}:[0-9]{1,2})([ \t]*+[A-Z+-])"
"""What begins with a date, minutes and a zone: Spark accepts a zone behind seconds alone."""


def decimal_of(scale: int) -> str:
    """A pattern of numbers without digits beyond a scale, except zeros; an exponent may not move digits there."""
    zero = r"0*+(?:\.0*+)?(?:[eE][+-]?[0-9]++)?"
    great = rf"[0-9]*+(?:\.[0-9]{{0,{scale}}}0*+)?(?:[eE]\+?[0-9]++)?"
    small = [rf"[0-9]*+(?:\.[0-9]{{0,{scale - power}}}0*+)?[eE]-0*+{power}" for power in range(1, scale + 1)]
    return whole(rf"[+-]?(?:{'|'.join([zero, great, *small])})")
