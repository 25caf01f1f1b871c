"""One entry of a JAAS configuration, the text that Kafka's Java clients take as `sasl.jaas.config`.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="a \\"secret\\"";

A value in quotes has Java's escapes: a backslash before a quote, a backslash, or one of `n r t f b`. (Source: Kafka's
JaasConfig, which reads it by a StreamTokenizer.)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "b": "\b"}
_WRITTEN = {"\\": "\\\\", '"': '\\"', **{char: f"\\{name}" for name, char in _ESCAPES.items()}}
_HEAD = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.IGNORECASE)
_OPTION = re.compile(r"""\s+([\w.\-]+)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)""", re.DOTALL)
_END = re.compile(r"\s*;\s*")


@dataclass(frozen=True)
class JaasEntry:
    """A login module and its options.

    Attributes:
        module: The module's class.
        options: Its options; a password may be among them, so they are not printed.
    """

    module: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.module.rpartition(".")[2]

    def text(self) -> str:
        """The entry as `sasl.jaas.config` has it.

        Example:
            >>> print(JaasEntry("x.PlainLoginModule", {"username": "alice", "password": 'a "b"'}).text())
            x.PlainLoginModule required username="alice" password="a \\"b\\"";
        """
        options = "".join(f' {name}="{_escaped(value)}"' for name, value in self.options.items())
        return f"{self.module} required{options};"


def parse_jaas(text: str) -> JaasEntry:
    """Reads an entry.

    Raises:
        ValueError: It is none, or there are several. The message does not quote it.

    Example:
        >>> parse_jaas("x.PlainLoginModule required username='alice' password=secret;").options["password"]
        'secret'
    """
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("it does not begin with a login module's class and 'required'")
    options, position = dict[str, str](), head.end()
    while (option := _OPTION.match(text, position)) is not None:
        options[option[1]] = _unquoted(option[2])
        position = option.end()
    end = _END.match(text, position)
    if end is None:
        known = f"behind {', '.join(options)}" if options else "behind the login module"
        raise ValueError(f'NAME="VALUE" or a semicolon was to come {known}')
    if end.end() < len(text):
        raise ValueError("it has several entries, and a client has one")
    return JaasEntry(head[1], options)


def _escaped(value: str) -> str:
    return "".join(_WRITTEN.get(char, char) for char in value)


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), value[1:-1], flags=re.DOTALL)
