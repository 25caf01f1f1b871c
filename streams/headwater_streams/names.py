"""Names that people choose: how one stands in SQL."""


def quoted(name: str) -> str:
    """A name as Spark's SQL has it, whatever characters it has.

    Example:
        >>> print(quoted("Product.Id"), quoted("a`b"))
        `Product.Id` `a``b`
    """
    return f"`{name.replace('`', '``')}`"
