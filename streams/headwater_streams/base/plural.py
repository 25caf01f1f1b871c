"""Numbers of things as a person reads them."""


def quantity(count: int, one: str, many: str | None = None) -> str:
    """A number and its thing: `"1 batch"`, `"2,000 batches"`.

    Args:
        count: How many.
        one: The word for one of them, with the words around it, such as `"late row"` or `"row differs"`.
        many: The word for none or several; by default `one` with an s.
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
