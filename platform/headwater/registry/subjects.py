"""Names of subjects: `:.context:name`, and a plain `name` in the default context. Each context counts its ids apart.

A context by itself, `:.context:`, has a configuration and a mode that hold for its subjects. Those of `:.__GLOBAL:`
hold wherever nothing nearer does.
"""

DEFAULT_CONTEXT = "."
EVERYWHERE = ":.__GLOBAL:"
_ANY_CONTEXT = ":*:"
_RESERVED = ("__GLOBAL", "__EMPTY", "*")


def parts_of(subject: str | None) -> tuple[str, str]:
    """The context of a subject, and its name in it."""
    if subject is None or not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject or ""
    context, _, name = subject[1:].partition(":")
    return context, name


def context_of(subject: str | None) -> str:
    """The context of a subject."""
    return parts_of(subject)[0]


def prefix_of(context: str) -> str:
    """What the subjects of a context begin with."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def plain(subject: str) -> str:
    """A subject by the one name that it is kept by: `:.:clicks` is `clicks`, and `:.web` the context `:.web:`."""
    context, name = parts_of(subject)
    return prefix_of(context) + name


def within(context: str, subject: str) -> str:
    """A subject in a context, if its name does not say another."""
    return subject if subject.startswith((":.", _ANY_CONTEXT)) else prefix_of(context) + subject


def beside(subject: str, other: str) -> str:
    """The subject that `other` means where it is a reference or an alias of `subject`."""
    return plain(within(context_of(subject), other))


def scopes_of(subject: str | None) -> tuple[str | None, ...]:
    """Where settings of a subject stand, the nearest first; None is for all subjects of the default context."""
    context, name = parts_of(subject)
    own = (subject,) if name else ()
    around = (None,) if context == DEFAULT_CONTEXT else (prefix_of(context),)
    return (*own, *around, EVERYWHERE)


def is_in(subject: str, scope: str | None) -> bool:
    """Whether a subject is one, or in the context that `scope` is; None and `:.__GLOBAL:` have all."""
    context, name = parts_of(scope)
    if scope is None or scope == EVERYWHERE:
        return True
    return subject == scope if name else context_of(subject) == context


def begins_with(subject: str, prefix: str) -> bool:
    """Whether a subject is one of those that are asked for; `:*:name` asks for such names in all contexts."""
    if prefix.startswith(_ANY_CONTEXT):
        return parts_of(subject)[1].startswith(prefix.removeprefix(_ANY_CONTEXT))
    return subject.startswith(prefix)


def is_valid(subject: str) -> bool:
    """Whether schemas may be registered under a name."""
    _, name = parts_of(subject)
    # Control characters would stand in keys, and in the terminal of whoever lists the subjects.
    is_text = not any(ord(each) < 32 or 127 <= ord(each) < 160 for each in subject)
    is_name = bool(name) and name == name.strip() and name not in _RESERVED
    return is_text and is_name and not subject.startswith(EVERYWHERE)
