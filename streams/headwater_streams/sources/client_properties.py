"""A login in the words of each client: librdkafka's, and those of Kafka's Java client in Spark.

What Spark is given as an option stands in its plans, which its pages, its event log and `explain` print; it hides an
option only if its name matches `spark.redaction.regex`. So a secret is not given to Spark: its option is a reference,
`${headwater:FILE:NAME}`, and Kafka's client looks it up in the file itself, by a provider that it brings (KIP-297).
"""

from collections.abc import Mapping
from pathlib import Path

from headwater_streams.sources.client_login import (
    OAUTH,
    PLAINTEXT,
    RDKAFKA_NAMES,
    ClientLogin,
    jaas_of,
)

_PROVIDER = "headwater"
_PROVIDER_CLASS = "org.apache.kafka.common.config.provider.FileConfigProvider"
_TOKENS_BY_HTTP = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_WRITTEN = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}


def rdkafka_properties(login: ClientLogin) -> dict[str, str]:
    """The login for librdkafka."""
    named = {
        "security.protocol": login.protocol if login.protocol != PLAINTEXT else "",
        **(_rdkafka_sasl(login) if login.has_sasl else {}),
        **(_rdkafka_tls(login) if login.has_tls else {}),
    }
    more = {RDKAFKA_NAMES[name]: value for name, value in login.more.items() if name in RDKAFKA_NAMES}
    return {**more, **{name: value for name, value in named.items() if value}}


def _rdkafka_sasl(login: ClientLogin) -> dict[str, str]:
    if login.mechanism == OAUTH:
        return {
            "sasl.mechanism": login.mechanism,
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": login.token_url,
            "sasl.oauthbearer.client.id": login.client_id,
            "sasl.oauthbearer.client.secret": login.client_secret,
            "sasl.oauthbearer.scope": login.scope,
            "sasl.oauthbearer.extensions": ",".join(
                f"{name}={value}" for name, value in login.extensions.items()
            ),
            "https.ca.location": login.token_ca,
        }
    return {
        "sasl.mechanism": login.mechanism,
        "sasl.username": login.username,
        "sasl.password": login.password,
    }


def _rdkafka_tls(login: ClientLogin) -> dict[str, str]:
    return {
        "ssl.ca.pem": login.ca,
        "ssl.certificate.pem": login.certificate,
        "ssl.key.pem": login.key,
        "ssl.key.password": login.key_password,
        "ssl.endpoint.identification.algorithm": "" if login.checks_hostname else "none",
    }


def java_secrets(login: ClientLogin) -> dict[str, str]:
    """The login's properties for Kafka's Java clients that no plan may show, and those that are long."""
    named = {
        "sasl.jaas.config": jaas_of(login) if login.has_sasl else "",
        "ssl.truststore.certificates": login.ca if login.has_tls else "",
        "ssl.keystore.certificate.chain": login.certificate if login.has_tls else "",
        "ssl.keystore.key": login.key if login.has_tls else "",
        "ssl.key.password": login.key_password if login.has_tls and login.key else "",
    }
    return {name: value for name, value in named.items() if value}


def java_properties(login: ClientLogin, secrets: Path | None) -> dict[str, str]:
    """The login for Kafka's Java clients, without a secret.

    Args:
        login: The login.
        secrets: The file of its `java_secrets`, as `secrets_text` writes it; None where there are none.
    """
    properties = dict(login.more)
    if login.protocol != PLAINTEXT:
        properties["security.protocol"] = login.protocol
    if login.has_sasl:
        properties["sasl.mechanism"] = login.mechanism
        if login.mechanism == OAUTH:
            # Kafka's client 4.0 takes this URL only where org.apache.kafka.sasl.oauthbearer.allowed.urls, a property of
            # the JVM's, names it. Spark 4.2 has 3.9, which takes any.
            properties["sasl.oauthbearer.token.endpoint.url"] = login.token_url
            properties["sasl.login.callback.handler.class"] = _TOKENS_BY_HTTP
    names = java_secrets(login)
    if login.has_tls:
        if "ssl.truststore.certificates" in names:
            properties["ssl.truststore.type"] = "PEM"
        if "ssl.keystore.key" in names:
            properties["ssl.keystore.type"] = "PEM"
        if not login.checks_hostname:
            properties["ssl.endpoint.identification.algorithm"] = ""
    if names:
        assert secrets is not None
        properties["config.providers"] = _PROVIDER
        properties[f"config.providers.{_PROVIDER}.class"] = _PROVIDER_CLASS
        properties |= {name: f"${{{_PROVIDER}:{secrets}:{name}}}" for name in names}
    return properties


def secrets_text(secrets: Mapping[str, str]) -> str:
    """Properties as a file of Java's, in UTF-8.

    Example:
        >>> secrets_text({"ssl.key.password": "a\\nb"})
        'ssl.key.password=a\\\\nb\\n'
    """
    lines = []
    for name, value in secrets.items():
        text = "".join(_WRITTEN.get(char, char) for char in value)
        lines.append(f"{name}={text if not text.startswith(' ') else chr(92) + text}\n")
    return "".join(lines)
