"""How clients reach a cluster: who they are, whom they trust, and further properties by Kafka's own names.

There are two clients, and they name the same things differently: librdkafka, which asks for topics and offsets, and
Kafka's Java client in Spark, which reads. `ClientLogin` is what both are made from; see `client_properties`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

from headwater_streams.sources.jaas import JaasEntry, parse_jaas

PLAINTEXT, TLS, SASL, SASL_TLS = "PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"
PROTOCOLS = (PLAINTEXT, TLS, SASL, SASL_TLS)
PLAIN, OAUTH = "PLAIN", "OAUTHBEARER"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (PLAIN, *SCRAM, OAUTH)


_Value = str | bool | Mapping[str, str]


class LoginError(ValueError):
    """A property is wrong; the message names it and holds no secret."""


@dataclass(frozen=True)
class ClientLogin:
    """What a client is and trusts. Secrets are not printed.

    Attributes:
        protocol: One of `PROTOCOLS`.
        mechanism: With SASL, one of `MECHANISMS`.
        username: Of PLAIN and SCRAM.
        password: Of PLAIN and SCRAM.
        token_url: Of OAUTHBEARER: where a token is got with the client's credentials.
        client_id: Of OAUTHBEARER.
        client_secret: Of OAUTHBEARER.
        scope: Of OAUTHBEARER; may be empty.
        extensions: Of OAUTHBEARER: what goes to the broker with a token, as Confluent Cloud's `logicalCluster`.
        token_ca: The file of the authorities whom the client trusts for `token_url`; empty: each client's own.
        ca: The PEM text of the authorities that may have signed the brokers' certificates; empty: the system's.
        certificate: The PEM text of the client's own certificate, with those between it and its authority.
        key: The PEM text of its private key.
        key_password: What the key is encrypted with; may be empty.
        checks_hostname: Whether a broker's certificate must name the host that was asked for.
        more: Further properties of clients, by Kafka's names.
    """

    protocol: str = PLAINTEXT
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    token_url: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    token_ca: str = ""
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    key_password: str = field(default="", repr=False)
    checks_hostname: bool = True
    more: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_tls(self) -> bool:
        """Whether it speaks TLS."""
        return self.protocol in (TLS, SASL_TLS)

    @property
    def has_sasl(self) -> bool:
        """Whether it says who it is by SASL."""
        return self.protocol in (SASL, SASL_TLS)

    @property
    def who(self) -> str:
        """Whom it says that it is, for messages; empty where it does not say."""
        if not self.has_sasl:
            return ""
        return self.client_id if self.mechanism == OAUTH else self.username


def lacking(login: ClientLogin) -> list[str]:
    """The attributes that a login's SASL needs and that are empty.

    Example:
        >>> lacking(ClientLogin(protocol="SASL_SSL", mechanism="PLAIN", username="alice"))
        ['password']
    """
    if not login.has_sasl:
        return []
    of_oauth, of_users = ("token_url", "client_id", "client_secret"), ("mechanism", "username", "password")
    needed = of_oauth if login.mechanism == OAUTH else of_users
    return [name for name in needed if not getattr(login, name)]


def with_properties(
    login: ClientLogin,
    properties: Mapping[str, str],
    read: Callable[[str], str],
    *,
    passes_over_others: bool = False,
) -> ClientLogin:
    """A login with properties by Kafka's names, which win over what it has.

    Args:
        login: What is known already.
        properties: The properties, those of Kafka's Java clients; of librdkafka's its names for users, passwords and
            PEM files are taken, too.
        read: Reads a PEM file.
        passes_over_others: Whether to pass over what is no property of a client, or Headwater's own, as Kafka's tools
            do with a file that has more in it.

    Raises:
        LoginError: One is unknown, is Headwater's own, or cannot be kept by both clients.
    """
    rest = dict(properties)
    if passes_over_others:
        rest = {name: value for name, value in rest.items() if name in _KNOWN - _OURS.keys()}
        referring = next((name for name, value in rest.items() if "${" in value), None)
        if referring is not None and properties.get("config.providers", "").strip():
            raise LoginError(
                f"{referring} refers to a secret by config.providers, which only Kafka's Java clients have: give it by "
                "the environment, or write it into the file itself"
            )
    for name in sorted(rest):
        _check_name(name)
    _check_stores(rest)
    changes: dict[str, _Value] = {}

    def take(attribute: str, *names: str) -> None:
        for name in names:
            if name in rest:
                changes[attribute] = rest.pop(name).strip()

    take("protocol", "security.protocol")
    if "protocol" in changes:
        changes["protocol"] = str(changes["protocol"]).upper()  # both clients take small letters, too
    take("mechanism", "sasl.mechanism", "sasl.mechanisms")
    if "sasl.jaas.config" in rest:
        changes |= _of_jaas(rest.pop("sasl.jaas.config"))
    take("username", "sasl.username")
    take("password", "sasl.password")
    take("token_url", "sasl.oauthbearer.token.endpoint.url")
    take("client_id", "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.credentials.client.id")
    take(
        "client_secret", "sasl.oauthbearer.client.secret", "sasl.oauthbearer.client.credentials.client.secret"
    )
    take("scope", "sasl.oauthbearer.scope")
    if "sasl.oauthbearer.extensions" in rest:
        changes["extensions"] = _extensions(rest.pop("sasl.oauthbearer.extensions"))
    take("key_password", "ssl.key.password")
    take("ca", "ssl.truststore.certificates", "ssl.ca.pem")
    take("certificate", "ssl.keystore.certificate.chain", "ssl.certificate.pem")
    take("key", "ssl.keystore.key", "ssl.key.pem")
    files = {
        "ca": ("ssl.truststore.location", "ssl.ca.location"),
        "certificate": ("ssl.keystore.location", "ssl.certificate.location"),
        "key": ("ssl.keystore.location", "ssl.key.location"),
    }
    for attribute, names in files.items():
        for name in names:
            if rest.get(name):
                changes[attribute] = read(rest[name])
    check = rest.pop("ssl.endpoint.identification.algorithm", None)
    if check is not None:
        changes["checks_hostname"] = check.strip().lower() not in ("", "none")
    for name in _TAKEN:
        rest.pop(name, None)
    changed = replace(login, **changes, more={**login.more, **rest})  # type: ignore[arg-type]
    for name, value, allowed in (
        ("security.protocol", changed.protocol, PROTOCOLS),
        ("sasl.mechanism", changed.mechanism, ("", *MECHANISMS)),
    ):
        if value not in allowed:
            choices = ", ".join(filter(None, allowed))
            raise LoginError(f"{name} is {value!r}, and clients here have {choices}")
    return changed


def _extensions(text: str) -> dict[str, str]:
    """Extensions as librdkafka has them, `logicalCluster=lkc-1,identityPoolId=pool-2`."""
    extensions = {}
    for each in filter(None, map(str.strip, text.split(","))):
        name, separator, value = each.partition("=")
        if not separator or not name:
            raise LoginError(f"sasl.oauthbearer.extensions is to be NAME=VALUE,NAME=VALUE, and has {each!r}")
        extensions[name] = value
    return extensions


def _of_jaas(text: str) -> dict[str, _Value]:
    try:
        entry = parse_jaas(text)
    except ValueError as error:
        raise LoginError(f"sasl.jaas.config is no JAAS entry: {error}") from None
    names = _MODULES.get(entry.name)
    if names is None:
        raise LoginError(
            f"sasl.jaas.config has {entry.name}, and clients here have {', '.join(_MODULES)}: librdkafka, which asks "
            "for topics and offsets, knows no other"
        )
    known: dict[str, _Value] = {}
    extensions: dict[str, str] = {}
    for name, value in entry.options.items():
        if name in names:
            known[names[name]] = value
        elif names is _OAUTH and name.startswith(_EXTENSION):
            extensions[name.removeprefix(_EXTENSION)] = value
        elif (name, value.upper()) != ("ssl.truststore.type", "PEM"):
            raise LoginError(
                f"sasl.jaas.config has the option {name}, and clients here have {', '.join(names)} of {entry.name}: "
                "librdkafka, which asks for topics and offsets, keeps no other"
            )
    return known | ({"extensions": extensions} if extensions else {})


_EXTENSION = "extension_"
_USER = {"username": "username", "password": "password"}
_OAUTH = {
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "scope": "scope",
    "ssl.truststore.location": "token_ca",
}
_MODULES: Mapping[str, Mapping[str, str]] = {
    "PlainLoginModule": _USER,
    "ScramLoginModule": _USER,
    "OAuthBearerLoginModule": _OAUTH,
}


def jaas_of(login: ClientLogin) -> str:
    """The login as `sasl.jaas.config`."""
    package = "org.apache.kafka.common.security"
    if login.mechanism != OAUTH:
        kind = "plain.Plain" if login.mechanism == PLAIN else "scram.Scram"
        options = {"username": login.username, "password": login.password}
        return JaasEntry(f"{package}.{kind}LoginModule", options).text()
    options = {"clientId": login.client_id, "clientSecret": login.client_secret}
    if login.scope:
        options["scope"] = login.scope
    options |= {f"{_EXTENSION}{name}": value for name, value in login.extensions.items()}
    if login.token_ca:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": login.token_ca}
    return JaasEntry(f"{package}.oauthbearer.OAuthBearerLoginModule", options).text()


_OAUTH_HANDLERS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
    "org.apache.kafka.common.security.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
)


def _check_stores(properties: Mapping[str, str]) -> None:
    for store in ("ssl.truststore", "ssl.keystore"):
        kind = properties.get(f"{store}.type", "JKS" if f"{store}.location" in properties else "PEM")
        if kind.strip().upper() != "PEM":
            raise LoginError(
                f"{store}.type is {kind}, and librdkafka, which asks for topics and offsets, reads PEM files alone: "
                f"write it as PEM (keytool -exportcert -rfc, or openssl pkcs12), and set {store}.type = PEM"
            )
    handler = properties.get("sasl.login.callback.handler.class", _OAUTH_HANDLERS[0])
    if handler not in _OAUTH_HANDLERS:
        raise LoginError(
            f"sasl.login.callback.handler.class is {handler}, a Java class that librdkafka cannot call; a login is "
            "PLAIN, SCRAM, OAUTHBEARER with client credentials, or a certificate"
        )


def _check_name(name: str) -> None:
    if name in _OURS:
        raise LoginError(f"{name} is set by Headwater itself{_OURS[name]}")
    if name not in _KNOWN:
        near = get_close_matches(name, sorted(_KNOWN - _OURS.keys()), n=1)
        hint = f"did you mean {near[0]}?" if near else "it takes the names of Kafka's Java clients"
        raise LoginError(f"there is no client property {name}: {hint}")


_OURS: Mapping[str, str] = {
    "bootstrap.servers": ": name the brokers by bootstrap, or by --bootstrap",
    "isolation.level": ": records of transactions are read once these are committed",
    "client.rack": ", to be told of records that cannot be read",
    "config.providers": ", to keep secrets out of Spark's plans",
    **dict.fromkeys(
        (
            "allow.auto.create.topics",
            "auto.offset.reset",
            "enable.auto.commit",
            "group.id",
            "group.instance.id",
            "group.protocol",
            "interceptor.classes",
            "key.deserializer",
            "key.serializer",
            "value.deserializer",
            "value.serializer",
        ),
        "",
    ),
}

# What `with_properties` puts into a login, so that it is not passed on as well.
_TAKEN = (
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.password",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.method",
)
_LOGIN_NAMES = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.jaas.config",
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
    "ssl.key.password",
    "ssl.truststore.certificates",
    "ssl.ca.pem",
    "ssl.keystore.certificate.chain",
    "ssl.certificate.pem",
    "ssl.keystore.key",
    "ssl.key.pem",
    "ssl.endpoint.identification.algorithm",
)

RDKAFKA_NAMES: Mapping[str, str] = {
    "batch.size": "batch.size",
    "check.crcs": "check.crcs",
    "client.dns.lookup": "client.dns.lookup",
    "client.id": "client.id",
    "compression.type": "compression.type",
    "connections.max.idle.ms": "connections.max.idle.ms",
    "enable.idempotence": "enable.idempotence",
    "enable.metrics.push": "enable.metrics.push",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "linger.ms": "linger.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "metadata.max.age.ms": "metadata.max.age.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "reconnect.backoff.max.ms": "reconnect.backoff.max.ms",
    "reconnect.backoff.ms": "reconnect.backoff.ms",
    "request.timeout.ms": "socket.timeout.ms",
    "retry.backoff.max.ms": "retry.backoff.max.ms",
    "retry.backoff.ms": "retry.backoff.ms",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.ms": "socket.connection.setup.timeout.ms",
}
"""Properties of Kafka's Java clients that librdkafka has, too, with its names for them."""

_JAVA_ALONE = (
    "auto.include.jmx.reporter",
    "buffer.memory",
    "default.api.timeout.ms",
    "delivery.timeout.ms",
    "exclude.internal.topics",
    "fetch.max.wait.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.poll.interval.ms",
    "max.poll.records",
    "max.request.size",
    "metadata.max.idle.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.header.urlencode",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "security.providers",
    "socket.connection.setup.timeout.max.ms",
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
)
_KNOWN = frozenset({*_LOGIN_NAMES, *_TAKEN, *RDKAFKA_NAMES, *_JAVA_ALONE, *_OURS})
