"""Principals from the subjects of client certificates (`ssl.principal.mapping.rules`, KIP-371)."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_RULES = re.compile(r"\s*(?:DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_EMAIL_OID = "1.2.840.113549.1.9.1"

Subject = Sequence[Sequence[tuple[str, str]]]
"""A subject as `ssl.SSLSocket.getpeercert` gives it: the certificate's order, names spelt out."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """Takes names that match a pattern; one without a pattern takes all as they are.

    Attributes:
        pattern: What the whole subject must match.
        replacement: The name, with `$1` for the pattern's groups.
        case: "L" for lower case, "U" for upper case, "" for neither.
    """

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """The principal's name, None where this rule is not about it."""
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        result = re.sub(r"\$(\d)", lambda group: match[int(group[1])] or "", self.replacement)
        return {"L": result.lower(), "U": result.upper()}.get(self.case, result)


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """Reads rules such as `RULE:^CN=(.*?),.*$/$1/L,DEFAULT`.

    Raises:
        ValueError: They are no such rules.
    """
    rules = []
    position = 0
    while position < len(text):
        match = _RULES.match(text, position)
        if match is None or match.end() == position:
            raise ValueError(f"{text[position:]!r}: write RULE:pattern/replacement/[L|U], or DEFAULT")
        if match[1] is None:
            rules.append(MappingRule())
        else:
            try:
                rules.append(MappingRule(re.compile(match[1]), match[2], match[3]))
            except re.error as error:
                raise ValueError(f"{match[1]!r} is no regular expression: {error}") from error
        position = match.end()
    return tuple(rules) or (MappingRule(),)


def map_name(rules: Sequence[MappingRule], name: str) -> str | None:
    """A principal's name by the first rule that is about the subject; None where no rule is."""
    for rule in rules:
        mapped = rule.apply(name)
        if mapped is not None:
            return mapped
    return None


def distinguished_name(subject: Subject) -> str:
    """The subject as RFC 2253 has it and Java prints it: the last part first."""
    return ",".join("+".join(_attribute(*pair) for pair in part) for part in reversed(subject))


def _attribute(kind: str, value: str) -> str:
    if kind == "emailAddress":
        # Java knows no short name for it and prints the DER of an IA5String.
        data = value.encode("ascii", errors="replace")
        return f"{_EMAIL_OID}=#16{len(data):02x}{data.hex()}"
    escaped = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT_NAMES.get(kind, kind)}={escaped}"
