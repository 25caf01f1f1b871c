"""Why a broker and a client do not come together, as a sentence that says what is wrong and which setting mends it.

librdkafka says of its connections why they end, in texts of its own and of OpenSSL's, and its requests then end as if
nobody had answered. What these texts leave out the port itself says, see `listener_probe`. Kafka's Java client, in
Spark, raises classes of its own. All come to a `Trouble` here.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headwater_streams.sources.client_login import OAUTH, ClientLogin
from headwater_streams.sources.listener_probe import Listener


@dataclass(frozen=True)
class Complaint:
    """What a connection of librdkafka's complained of: the error's name and its text."""

    name: str
    text: str


class Trouble(Enum):
    """What is wrong between a client and a broker."""

    WRONG_PASSWORD = "wrong password"  # noqa: S105
    OTHER_MECHANISM = "other mechanism"
    NO_TOKEN = "no token"  # noqa: S105
    SASL_THERE = "SASL there"
    NO_SASL_THERE = "no SASL there"
    TLS_THERE = "TLS there"
    NO_TLS_THERE = "no TLS there"
    UNTRUSTED = "untrusted certificate"
    CERTIFICATE_REFUSED = "client's certificate"
    HANDSHAKE = "handshake"


# The first that fits counts. The texts are those of librdkafka 2.16 with OpenSSL 3, and of Kafka's Java client 3.9.
# librdkafka also guesses at a connection that is closed early, "connecting to a SSL listener?": a broker that stops or
# starts closes one so, too. Whether it is TLS the port says.
_RULES: Sequence[tuple[Trouble, re.Pattern[str]]] = [
    (trouble, re.compile("|".join(texts), re.IGNORECASE))
    for trouble, texts in {
        Trouble.NO_TLS_THERE: ("wrong version number", "Unsupported or unrecognized SSL"),
        Trouble.CERTIFICATE_REFUSED: ("alert certificate required", "alert unknown ca", "alert bad certificate",
                                      "alert certificate", "alert unsupported certificate", "certificate_required",
                                      "(bad|unknown)_certificate", "unknown_ca"),
        Trouble.UNTRUSTED: ("certificate verify failed", "PKIX path", r"No (name|subject alternative \w+) matching",
                            "No subject alternative", "NotAfter"),
        Trouble.NO_SASL_THERE: ("not valid in current SASL state", "IllegalSaslState"),
        Trouble.OTHER_MECHANISM: ("unsupported SASL mechanism", "mechanism .* not (enabled|supported)"),
        Trouble.NO_TOKEN: ("OAUTHBEARER token", "token endpoint", "HttpAccessTokenRetriever"),
        Trouble.WRONG_PASSWORD: ("authentication (failed|error|failure)", "invalid credentials",
                                 "SaslAuthenticationException"),
        Trouble.HANDSHAKE: ("SSL handshake failed(?!: Disconnected)", "SslAuthenticationException",
                            "SSLHandshakeException"),
    }.items()
]  # fmt: skip
_OFFERED = re.compile(r"supported mechanisms: *\[?([\w\-, ]+)|enabled mechanisms are \[([\w\-, ]+)\]")
_NO_TOKEN_NOW = re.compile(
    r"could( not|n't) (resolve|connect)|failed to connect|timed out|timeout|connection (reset|refused)|recv failure"
    r"|empty reply",
    re.IGNORECASE,
)
_MOST_CHARS = 300
"""Of what another program says: a server of tokens may answer with a page."""
_CONNECTION = re.compile(r"^(?:\w+://)?\S+/(?:bootstrap|\d+): ")
_AFTER = re.compile(r"\s*\(after \d+ms in state [^)]*\)")


def trouble_in(text: str) -> Trouble | None:
    """What a text says is wrong; None where it says nothing of the kind, as of a broker that is away.

    Example:
        >>> trouble_in("SASL authentication error: Authentication failed: Invalid username or password")
        <Trouble.WRONG_PASSWORD: 'wrong password'>
    """
    return next((trouble for trouble, pattern in _RULES if pattern.search(text)), None)


def diagnosis(
    login: ClientLogin, complaints: Sequence[Complaint], listener: Listener | None
) -> tuple[Trouble, str] | None:
    """What is wrong, and the words that say so; None where brokers are away, or nothing says what it is.

    Args:
        login: The client.
        complaints: What its connections complained of, oldest first.
        listener: What the port speaks; None where none takes connections.
    """
    if listener is not None:
        if listener.has_tls is not None and listener.has_tls != login.has_tls:
            return (Trouble.TLS_THERE if listener.has_tls else Trouble.NO_TLS_THERE), ""
        if listener.certificate_fault:
            return Trouble.UNTRUSTED, listener.certificate_fault
        if listener.mechanisms is not None and bool(listener.mechanisms) != login.has_sasl:
            return (Trouble.NO_SASL_THERE if login.has_sasl else Trouble.SASL_THERE), ""
        if listener.mechanisms and login.mechanism not in listener.mechanisms:
            return Trouble.OTHER_MECHANISM, f"supported mechanisms: {', '.join(listener.mechanisms)}"
    # The newest that says something: of several brokers one may be away.
    for complaint in reversed(complaints):
        trouble = trouble_in(complaint.text)
        if trouble is not None:
            return trouble, complaint.text
    return None


def may_pass(trouble: Trouble, text: str) -> bool:
    """Whether it may go away while nobody mends the settings: a server of tokens is away, as a broker may be.

    Example:
        >>> may_pass(Trouble.NO_TOKEN, "Could not resolve host: login"), may_pass(Trouble.NO_TOKEN, "invalid_client")
        (True, False)
    """
    return trouble is Trouble.NO_TOKEN and bool(_NO_TOKEN_NOW.search(text))


def refusal(bootstrap: str, login: ClientLogin, section: str, trouble: Trouble, text: str) -> str:
    """The sentence for a client and a broker that do not come together.

    Args:
        bootstrap: The brokers.
        login: The client.
        section: The section of the settings that has the login, such as `client`.
        trouble: What is wrong.
        text: The words that said so.
    """
    there, ours = f"the broker at {bootstrap}", f"{section}.security_protocol is {login.protocol}"
    with_tls, secure = ("SSL", "SASL_SSL") if login.has_tls else ("PLAINTEXT", "SASL_PLAINTEXT")
    cause = _cause(text)
    because = f" ({cause})" if cause else ""
    match trouble:
        case Trouble.UNTRUSTED:
            return _untrusted(there, login, section, cause)
        case Trouble.WRONG_PASSWORD:
            if not login.has_sasl:
                return f"{there} refuses this client{because}; {ours}"
            if login.mechanism == OAUTH:
                return f"{there} refuses the token of {login.who!r}{because}"
            return (
                f"{there} refuses {login.who!r} with this password ({login.mechanism}): {section}.sasl_username and "
                f"{section}.sasl_password say who this client is"
            )
        case Trouble.OTHER_MECHANISM:
            return f"{there} does not take {login.mechanism} ({section}.sasl_mechanism){_offered(text)}"
        case Trouble.NO_TOKEN:
            return (
                f"no token for {login.who!r} comes from {login.token_url}{because}: {section}.oauth_url, "
                f"{section}.oauth_client_id and {section}.oauth_client_secret say where one is had"
            )
        case Trouble.SASL_THERE:
            return (
                f"{there} asks who its clients are, and {ours}: set {secure}, {section}.sasl_mechanism, "
                f"{section}.sasl_username and {section}.sasl_password"
            )
        case Trouble.NO_SASL_THERE:
            return (
                f"{there} does not ask who its clients are, and {ours}: set {with_tls}, or name another port"
            )
        case Trouble.TLS_THERE:
            kind = "SASL_SSL" if login.has_sasl else "SSL, or SASL_SSL with a user"
            return f"{there} speaks TLS, and {ours}: set {kind}"
        case Trouble.NO_TLS_THERE:
            kind = "SASL_PLAINTEXT" if login.has_sasl else "PLAINTEXT"
            return f"{there} does not speak TLS, and {ours}: set {kind}, or name another port"
        case Trouble.CERTIFICATE_REFUSED if not login.certificate:
            return (
                f"{there} takes clients with a certificate alone: {section}.ssl_certificate_location and "
                f"{section}.ssl_key_location name this one's"
            )
        case Trouble.CERTIFICATE_REFUSED:
            return f"{there} refuses this client's certificate{because}: {section}.ssl_certificate_location names it"
        case Trouble.HANDSHAKE:
            return f"{there} and this client do not agree on TLS{because}"


def _untrusted(there: str, login: ClientLogin, section: str, cause: str) -> str:
    because = f" ({cause})" if cause else ""
    if "mismatch" in cause.lower() or "No name matching" in cause or "No subject alternative" in cause:
        return (
            f"{there} shows the certificate of another host{because}: name the broker as its certificate does, in "
            "advertised.listeners, too"
        )
    if "expired" in cause or "not yet valid" in cause or "NotAfter" in cause:
        return f"{there} shows a certificate that is not valid now{because}"
    file = f"{section}.ssl_ca_location"
    remedy = "names other authorities than its" if login.ca else "is to name the PEM file of its authority"
    return f"{there} shows a certificate of an authority that is not trusted here{because}: {file} {remedy}"


def _offered(text: str) -> str:
    match = _OFFERED.search(text)
    names = (match[1] or match[2]).strip() if match else ""
    return f": it takes {', '.join(re.split(', *', names))}" if names else ""


def _cause(text: str) -> str:
    """A text in a line, without the connection that it is about."""
    line = " ".join(_AFTER.sub("", _CONNECTION.sub("", text)).split()).rstrip(".")
    return line if len(line) <= _MOST_CHARS else f"{line[:_MOST_CHARS]}..."
