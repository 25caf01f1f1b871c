"""The clusters of the settings: `[client]`, which is meant where none is named, and each `[cluster.NAME]`.

A login comes from three places; the last one wins: a file of Kafka's own properties, the table of such properties, and
our own keys. Secrets come from the environment, or from a file that only its owner may read.
"""

import re
from base64 import b64decode
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from headwater.config.load import is_open, variable_of
from headwater.config.settings import ClientSettings, Settings
from headwater.errors import UsageError, reason
from headwater_streams.sources.client_login import ClientLogin, LoginError, lacking, with_properties
from headwater_streams.sources.kafka_cluster import KafkaCluster

_CLIENT = "client"
_BROKERS = "bootstrap.servers"
_KEYS = {
    "protocol": "security_protocol",
    "mechanism": "sasl_mechanism",
    "username": "sasl_username",
    "password": "sasl_password",
    "token_url": "oauth_url",
    "client_id": "oauth_client_id",
    "client_secret": "oauth_client_secret",
    "scope": "oauth_scope",
    "token_ca": "oauth_ca_location",
    "ca": "ssl_ca_location",
    "certificate": "ssl_certificate_location",
    "key": "ssl_key_location",
    "key_password": "ssl_key_password",
}
"""The attributes of a login, and our own keys for them."""
_PEMS = {"ca": "CERTIFICATE", "certificate": "CERTIFICATE", "key": "PRIVATE KEY"}
"""Those whose keys name PEM files, and what is wanted of each."""
_BEGINS_A_PEM = "-----BEGIN "
_PBES2 = bytes.fromhex("06092a864886f70d01050d")  # the scheme's name in ASN.1, 1.2.840.113549.1.5.13
_ENCODED_OTHERWISE = ("-----BEGIN RSA PRIVATE KEY", "-----BEGIN EC PRIVATE KEY", "-----BEGIN DSA PRIVATE KEY")
# The bundles of authorities of Linux distributions and of macOS, in the order in which librdkafka looks for them. One
# of them is named to both clients, for the brokers and for a server of tokens: Java has authorities of its own, without
# those that a company has added here.
_BUNDLES = (
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-bundle.crt",
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


def section_of(settings: Settings, bootstrap: str | None) -> str:
    """The section that says how brokers are reached: `client`, or that of the cluster whose name stands for them."""
    return f"cluster.{bootstrap}" if bootstrap and bootstrap in settings.cluster else _CLIENT


def named_cluster(settings: Settings, name: str, *, environ_bundle: str = "") -> KafkaCluster:
    """A cluster that topics name.

    Args:
        settings: The settings.
        name: Its name.
        environ_bundle: The file of the authorities that the environment names (SSL_CERT_FILE), if it does.

    Raises:
        UsageError: There is no such cluster, or its settings are wrong.
    """
    client = settings.cluster.get(name)
    if client is None:
        near = get_close_matches(name, settings.cluster, n=1)
        there = ", ".join(f"[cluster.{each}]" for each in settings.cluster)
        hint = f"did you mean {near[0]}?" if near else f"there are {there}" if there else "there is none"
        raise UsageError(f"the settings have no section [cluster.{name}]: {hint}")
    section = f"cluster.{name}"
    address = address_of(client, section)
    if not address:
        raise UsageError(
            f"{section}.bootstrap ({variable_of(section).replace('-', '_')}_BOOTSTRAP) is to name the cluster's brokers"
        )
    return KafkaCluster(address, login_of(client, section, environ_bundle), name, section)


def default_cluster(
    settings: Settings, bootstrap: str | None, own_stack: str, *, environ_bundle: str = ""
) -> KafkaCluster:
    """The cluster that is meant where none is named.

    Args:
        settings: The settings.
        bootstrap: What --bootstrap names: brokers, or a cluster of the settings by its name; if nothing, they are those
            of `client.bootstrap`, else the home's own stack.
        own_stack: The address of the home's running stack, which speaks plain text; empty where none runs.
        environ_bundle: As in `named_cluster`.

    Raises:
        UsageError: The settings are wrong, or have no such cluster.
    """
    section = section_of(settings, bootstrap)
    if section != _CLIENT:
        assert bootstrap is not None
        return replace(named_cluster(settings, bootstrap, environ_bundle=environ_bundle), name="")
    if bootstrap and ":" not in bootstrap and (near := get_close_matches(bootstrap, settings.cluster, n=1)):
        raise UsageError(
            f"{bootstrap}: the settings have no [cluster.{bootstrap}], did you mean {near[0]}? Brokers are "
            "HOST:PORT"
        )
    address = bootstrap or address_of(settings.client, section) or own_stack
    if address and address == own_stack:
        return KafkaCluster(address)
    return KafkaCluster(address, login_of(settings.client, section, environ_bundle))


def address_of(client: ClientSettings, section: str = _CLIENT) -> str:
    """The brokers that a section names; empty where it names none.

    Raises:
        UsageError: Its file of properties cannot be read.
    """
    return client.bootstrap or _of_file(client, section).get(_BROKERS, "").strip()


def login_of(client: ClientSettings, section: str = _CLIENT, environ_bundle: str = "") -> ClientLogin:
    """The login that a section describes.

    Raises:
        UsageError: A setting is wrong, or one that it needs is missing; the message holds no secret.
    """
    try:
        login = with_properties(ClientLogin(), _of_file(client, section), _pem, passes_over_others=True)
        login = with_properties(login, client.kafka, _pem)
        login = replace(login, **_own(client))
        bundle = next((path for path in (environ_bundle, *_BUNDLES) if path and Path(path).is_file()), "")
        if login.has_tls and not login.ca:
            login = replace(login, ca=_pem(bundle) if bundle else "")
        if login.token_url.startswith("https:") and not login.token_ca and bundle:
            _pem(bundle)
            login = replace(login, token_ca=str(Path(bundle).resolve()))
    except LoginError as error:
        raise UsageError(f"the section {section} of the settings: {error}") from None
    _require_whole(login, section)
    # One file may have the key and the certificates.
    login = replace(login, **_pem_blocks(login, section))
    if login.key:
        _require_key(login.key, section)
    return login


def _pem_blocks(login: ClientLogin, section: str) -> dict[str, Any]:
    """Of each PEM text of a login what it is for, by the login's attributes.

    Raises:
        UsageError: A text has nothing of the kind.
    """
    texts = {name: getattr(login, name) for name in _PEMS if getattr(login, name)}
    blocks = {name: _blocks(text, _PEMS[name]) for name, text in texts.items()}
    for name in (name for name, found in blocks.items() if not found):
        whose = "authorities" if name == "ca" else f"client's {name}"
        raise UsageError(
            f"the section {section} of the settings: the PEM text of the {whose} has no {_PEMS[name].lower()}"
        )
    return blocks


def _blocks(text: str, kind: str) -> str:
    """The blocks of a kind in a PEM text, such as `CERTIFICATE`."""
    blocks = re.finditer(rf"-----BEGIN ([A-Z ]*{kind})-----.+?-----END \1-----", text, re.DOTALL)
    return "".join(f"{block[0]}\n" for block in blocks)


def _own(client: ClientSettings) -> dict[str, Any]:
    """Our own keys that are set, by the login's attributes."""
    given = {}
    for attribute, key in _KEYS.items():
        value = getattr(client, key)
        text: str = value.get_secret_value() if isinstance(value, SecretStr) else value
        if text:
            given[attribute] = _pem(text) if attribute in _PEMS else text
    if client.oauth_ca_location:  # both clients read the file themselves
        _pem(client.oauth_ca_location)
        given["token_ca"] = str(Path(client.oauth_ca_location).expanduser().resolve())
    return given


def _of_file(client: ClientSettings, section: str) -> dict[str, str]:
    """The properties of `properties`, a file of Kafka's clients."""
    if not client.properties:
        return {}
    path = Path(client.properties).expanduser()
    try:
        if is_open(path):
            raise UsageError(
                f"{section}.properties: others than the owner may read {path}, which may hold secrets: "
                f"chmod 600 {path} (of a mounted secret: defaultMode 0440)"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is no UTF-8"
        raise UsageError(f"{section}.properties: cannot read {path}: {why}") from None
    try:
        return parsed_properties(text)
    except ValueError as error:
        raise UsageError(f"{section}.properties: {path}: {error}") from None


def _require_whole(login: ClientLogin, section: str) -> None:
    """Sees to it that a login has what its protocol and its mechanism need.

    Raises:
        UsageError: It has not; the message has the names of our own keys.
    """
    keys = [f"{section}.{_KEYS[name]}" for name in lacking(login)]
    if keys:
        names = " and ".join(f"{key} ({variable_of(key).replace('-', '_')})" for key in keys)
        raise UsageError(f"{section}.security_protocol is {login.protocol}, which needs {names}, too")
    if bool(login.certificate) != bool(login.key):
        has, lacks = ("certificate", "key") if login.certificate else ("key", "certificate")
        raise UsageError(
            f"the section {section} of the settings: the client's {has} is given, and its {lacks} is not"
        )


def _require_key(key: str, section: str) -> None:
    """Kafka's Java client reads keys in PKCS #8 alone, and of encrypted ones those of its older schemes.

    Raises:
        UsageError: The key is in another encoding.
    """
    what = "is not in PKCS #8" if any(each in key for each in _ENCODED_OTHERWISE) else ""
    encrypted = _blocks(key, "ENCRYPTED PRIVATE KEY")
    if encrypted and _PBES2 in b64decode("".join(encrypted.splitlines()[1:-1])):
        what = "is encrypted by PBES2"
    if what:
        raise UsageError(
            f"the section {section} of the settings: the client's key {what}, which Kafka's Java client cannot read: "
            "openssl pkcs8 -topk8 -nodes -in KEY -out NEW writes it in plain text, for a file of mode 600, or with -v1 "
            "PBE-SHA1-3DES in place of -nodes encrypted"
        )


def _pem(path: str) -> str:
    """The text of a PEM file.

    Raises:
        LoginError: It cannot be read, or is none.
    """
    try:
        text = Path(path).expanduser().read_text(encoding="utf-8")
    except UnicodeDecodeError:
        text = ""
    except OSError as error:
        raise LoginError(f"cannot read {path}: {reason(error)}") from None
    if _BEGINS_A_PEM not in text:
        raise LoginError(
            f"{path} is no PEM file, which has a line {_BEGINS_A_PEM}...: openssl writes it as one"
        )
    return text


def parsed_properties(text: str) -> dict[str, str]:
    """A file of Java's properties.

    Raises:
        ValueError: An escape is none. The message does not quote it.

    Example:
        >>> parsed_properties("# who\\nsasl.mechanism = PLAIN\\nssl.cipher.suites=a,\\\\\\n  b\\n")
        {'sasl.mechanism': 'PLAIN', 'ssl.cipher.suites': 'a,b'}
    """
    properties, pending = dict[str, str](), ""
    for raw in text.splitlines():
        line = pending + raw.lstrip(" \t\f")
        pending = ""
        if not line or line[0] in "#!":
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:  # it goes on in the next line
            pending = line[:-1]
            continue
        name, value = _name_and_value(line)
        properties[name] = value
    if pending:
        name, value = _name_and_value(pending)
        properties[name] = value
    return properties


def _name_and_value(line: str) -> tuple[str, str]:
    end, is_escaped = 0, False
    for end, char in enumerate(line):  # noqa: B007 - where it ends is what is wanted
        if is_escaped:
            is_escaped = False
        elif char == "\\":
            is_escaped = True
        elif char in "=: \t\f":
            break
    else:
        return _unescaped(line), ""
    rest = line[end:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return _unescaped(line[:end]), _unescaped(rest)


_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _unescaped(text: str) -> str:
    parts, position = [], 0
    while position < len(text):
        char = text[position]
        if char == "\\" and position + 1 < len(text):
            position += 1
            char = text[position]
            if char == "u":
                digits = text[position + 1 : position + 5]
                if not re.fullmatch("[0-9a-fA-F]{4}", digits):
                    raise ValueError(
                        "\\u is to have four hexadecimal digits behind it; a backslash itself is \\\\"
                    )
                parts.append(chr(int(digits, 16)))
                position += 5
                continue
            char = _CONTROL.get(char, char)
        parts.append(char)
        position += 1
    return "".join(parts)
