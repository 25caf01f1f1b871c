"""How many rows of a batch may fail a check before it is broken: a share of them, or so many."""

import re
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite

_SHARE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:%|percent)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AtMost:
    """A bound on the rows that fail; one of the two is None.

    Attributes:
        share: At most this share of the rows that are judged, exactly.
        rows: At most so many rows.
    """

    share: Fraction | None = None
    rows: int | None = None

    @classmethod
    def of(cls, value: "str | float | AtMost") -> "AtMost":
        """What a person writes: `"1 %"`, `0.01`, or a number of rows such as `10`.

        Raises:
            ValueError: It is none of these.

        Example:
            >>> AtMost.of("1 %") == AtMost.of(0.01), AtMost.of(10).rows
            (True, 10)
        """
        if isinstance(value, AtMost):
            return value
        if isinstance(value, str) and (written := _SHARE.fullmatch(value)):
            share = Fraction(written[1]) / 100
            if share < 1:
                return cls(share=share)
        elif isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            if 0 < value < 1:
                return cls(share=Fraction(str(value)))
            is_all = isinstance(value, float) and value == 1  # a share of 1, or one row
            if value >= 0 and value == int(value) and not is_all:
                return cls(rows=int(value))
        raise ValueError(
            f"at_most={value!r} is no share such as '1 %' or 0.01, nor a number of rows such as 10"
        )

    def allows(self, failed: int, judged: int) -> bool:
        """Whether so many of the judged rows may fail.

        Example:
            >>> one_percent = AtMost.of("1 %")
            >>> one_percent.allows(1, 100), one_percent.allows(1, 99)
            (True, False)
        """
        return failed <= self.rows if self.rows is not None else failed <= (self.share or 0) * judged

    def __str__(self) -> str:
        """As a person reads it."""
        if self.rows is not None:
            return f"{self.rows:,} {'row' if self.rows == 1 else 'rows'}"
        percent = float((self.share or Fraction()) * 100)
        return f"{percent:.10f}".rstrip("0").rstrip(".") + " %"
