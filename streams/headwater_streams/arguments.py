"""What a person easily gets wrong in the arguments of a declaration."""

from headwater_streams.errors import JobDefinitionError


def require_list(what: str, argument: str, given: object) -> None:
    """Sees to it that several names were given as a list: one text would be taken for a list of its letters.

    Raises:
        JobDefinitionError: It is one text.
    """
    if isinstance(given, str):
        raise JobDefinitionError(f"{what}: {argument}={given!r} is not a list; write [{given!r}]")
