"""Media types of requests and answers, negotiated as Confluent's server does it, which leaves it to Jersey."""

from headwater.registry.errors import RegistryError

ANSWERED = (
    *("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json"),
    "application/json",
)
"""What is answered, the preferred one first. All of them are JSON."""
_READ = (*ANSWERED, "application/octet-stream")


def answered_as(accept: str) -> str | None:
    """The media type of the answer; None if the client takes none of them.

    The weight that the client gives decides, then the registry's preference. A weight of 0 is no refusal.

    Args:
        accept: The header `Accept`; empty for none.
    """
    ranges = [each for each in accept.split(",") if each.strip()] or ["*/*"]
    weights = {
        kind: max((_weight(each) for each in ranges if _meets(each, kind)), default=None) for kind in ANSWERED
    }
    taken = {kind: weight for kind, weight in weights.items() if weight is not None}
    return max(taken, key=lambda kind: taken[kind], default=None)


def check(content_type: str, accept: str) -> None:
    """Makes sure that a request may have a body of its type, and that its answer is one that the client takes.

    Args:
        content_type: The header `Content-Type`; empty for none. It is judged where there is no body, too.
        accept: The header `Accept`; empty for none.

    Raises:
        RegistryError: It may not, or it is none.
    """
    if content_type and not any(_meets(content_type, each) for each in _READ):
        raise RegistryError(
            415, f"HTTP 415 Unsupported Media Type: send Content-Type: {ANSWERED[0]}, not {content_type}"
        )
    if answered_as(accept) is None:
        raise RegistryError(
            406, f"HTTP 406 Not Acceptable: send Accept: {ANSWERED[0]}, or leave it out, not {accept}"
        )


def _meets(media_range: str, kind: str) -> bool:
    name = media_range.partition(";")[0].strip().lower()
    wanted = ("*", "*") if name == "*" else tuple(name.split("/"))  # old Java clients send a `*` alone
    return len(wanted) == 2 and all(a in ("*", b) for a, b in zip(wanted, kind.split("/"), strict=True))


def _weight(media_range: str) -> float:
    """The `q` of a media range; of one that is no number 0, so that it is the last choice."""
    for each in media_range.split(";")[1:]:
        name, _, value = each.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
