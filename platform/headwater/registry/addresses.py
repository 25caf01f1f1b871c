"""A context in a request's address, as in `/contexts/.web/subjects/clicks/versions`, which means `:.web:clicks`."""

from dataclasses import replace

from headwater.registry.errors import RegistryError
from headwater.registry.request import Request
from headwater.registry.subjects import DEFAULT_CONTEXT, plain, within

_SETTINGS = (("config",), ("mode",))
_LISTS = (("subjects",), ("schemas",))


def addressed(request: Request) -> Request:
    """The request by the names that subjects are kept by, whatever its address.

    Raises:
        RegistryError: The context's name is none.
    """
    context = DEFAULT_CONTEXT
    if request.path[:1] == ("contexts",) and len(request.path) > 2:
        context = context_named(request.path[1])
        request = _within(context, replace(request, path=request.path[2:]))
    place = request.subject_place
    if place is None:
        return request
    subject = plain(within(context, request.path[place]))
    if not subject and request.path[:place] in _SETTINGS:  # the default context by itself
        return replace(request, path=request.path[:place])
    return request.with_subject(subject)


def _within(context: str, request: Request) -> Request:
    """The request with its parameters, and settings of all subjects, in a context."""
    if request.path in _SETTINGS and context != DEFAULT_CONTEXT:
        return replace(request, path=(*request.path, within(context, "")))
    name = "subject" if request.path[:2] == ("schemas", "ids") else "subjectPrefix"
    if name == "subject" or request.path in _LISTS:
        value = within(context, request.text(name) or "")
        return replace(request, query={**request.query, name: (value,)})
    return request


def context_named(name: str) -> str:
    """The context that stands in an address, which may leave its colons and its dot out.

    Raises:
        RegistryError: It is no name of one.
    """
    bare = name.removeprefix(":").removesuffix(":")
    if ":" in bare:
        raise RegistryError(400, f"Context name '{name}' cannot contain a colon")
    return bare if bare.startswith(".") else f".{bare}"
