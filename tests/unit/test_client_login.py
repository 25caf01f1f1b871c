"""How clients reach a cluster: Kafka's own properties into a login, and the login into the words of both clients."""

from dataclasses import replace
from pathlib import Path

import pytest

from headwater_streams.sources.client_login import (
    MECHANISMS,
    ClientLogin,
    LoginError,
    jaas_of,
    lacking,
    with_properties,
)
from headwater_streams.sources.client_properties import (
    java_properties,
    java_secrets,
    rdkafka_properties,
    secrets_text,
)
from headwater_streams.sources.jaas import JaasEntry, parse_jaas

PACKAGE = "org.apache.kafka.common.security"
ODD = 'a "q" \\ ${x:y} = : # \' ; é\n\t end '
SECRETS = {"password": ODD, "client_secret": "s3cret-2", "key": "s3cret-3", "key_password": "s3cret-4"}
FILES = {"ca.pem": "the CA", "both.pem": "key and certificate"}


def login(properties: dict[str, str]) -> ClientLogin:
    return with_properties(ClientLogin(), properties, FILES.__getitem__)


# -- JAAS ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["plain", "", ODD, '"', "\\", "\\n", "'", "a;b"])
def test_jaas_of_any_value_is_read_as_it_was(value: str) -> None:
    entry = JaasEntry(f"{PACKAGE}.plain.PlainLoginModule", {"username": "alice", "password": value})
    assert parse_jaas(entry.text()) == entry


@pytest.mark.parametrize(
    "text",
    [
        f"{PACKAGE}.plain.PlainLoginModule required username='alice' password='se cret';",
        f'  {PACKAGE}.plain.PlainLoginModule REQUIRED\n  username="alice"\n  password = "se cret" ;\n',
    ],
)
def test_jaas_of_other_hands_is_read(text: str) -> None:
    assert parse_jaas(text).options == {"username": "alice", "password": "se cret"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "s3cret",
        'x.Y required password="s3cret"',
        'x.Y required "s3cret";',
        'x.Y required a="s3cret"; x.Y required;',
    ],
)
def test_jaas_that_is_none_is_refused_without_what_it_holds(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as refused:
        parse_jaas(text)
    assert "s3cret" not in str(refused.value)


def test_jaas_does_not_print_its_options() -> None:
    assert "s3cret" not in repr(JaasEntry("x.Y", {"password": "s3cret"}))


# -- Kafka's properties ----------------------------------------------------------------------------------


def test_properties_of_a_cloud_service_are_a_login() -> None:
    got = login(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PACKAGE}.plain.PlainLoginModule required username="KEY" password="SECRET";',
            "client.dns.lookup": "use_all_dns_ips",
        }
    )
    assert got == ClientLogin(
        protocol="SASL_SSL",
        mechanism="PLAIN",
        username="KEY",
        password="SECRET",
        more={"client.dns.lookup": "use_all_dns_ips"},
    )


def test_properties_of_pem_stores_are_read_and_not_passed_on() -> None:
    got = login(
        {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": "both.pem",
            "ssl.key.password": "s3cret",
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert (got.ca, got.certificate, got.key) == ("the CA", "key and certificate", "key and certificate")
    assert (got.key_password, got.checks_hostname, got.more) == ("s3cret", False, {})


def test_properties_of_oauth_are_a_login() -> None:
    jaas = (
        f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="s" scope="kafka";'
    )
    got = login(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": jaas,
            "sasl.oauthbearer.token.endpoint.url": "https://x/token",
            "sasl.login.callback.handler.class": f"{PACKAGE}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        }
    )
    assert (got.client_id, got.client_secret, got.scope) == ("id", "s", "kafka")
    assert (got.token_url, got.more, got.who) == ("https://x/token", {}, "id")


JAAS_OF_OAUTH = f'{PACKAGE}.oauthbearer.OAuthBearerLoginModule required clientId="id" clientSecret="s"'


@pytest.mark.parametrize(
    "properties",
    [
        {
            "sasl.jaas.config": (
                f'{JAAS_OF_OAUTH} extension_logicalCluster="lkc-1" extension_identityPoolId="pool-2" '
                'ssl.truststore.type="PEM" ssl.truststore.location="ca.pem";'
            )
        },
        {
            "sasl.jaas.config": f'{JAAS_OF_OAUTH} ssl.truststore.location="ca.pem";',
            "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool-2",
        },
    ],
)
def test_properties_of_oauth_may_have_extensions_in_the_words_of_either_client(
    properties: dict[str, str],
) -> None:
    """Confluent Cloud refuses a token without its logicalCluster."""
    protocol = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
    got = replace(login(protocol | properties), token_url="https://x")
    assert got.extensions == {"logicalCluster": "lkc-1", "identityPoolId": "pool-2"}
    assert (got.protocol, got.token_ca) == ("SASL_SSL", "ca.pem")
    extensions = rdkafka_properties(got)["sasl.oauthbearer.extensions"]
    assert extensions == "logicalCluster=lkc-1,identityPoolId=pool-2"
    assert (
        with_properties(ClientLogin(), {"sasl.jaas.config": jaas_of(got)}, str).extensions == got.extensions
    )


def test_properties_that_refer_to_secrets_elsewhere_are_refused() -> None:
    """The reference itself would be the password."""
    file = {"sasl.password": "${env:PASSWORD}", "acks": "all"}
    assert with_properties(ClientLogin(), file, str, passes_over_others=True).password == "${env:PASSWORD}"
    file |= {"config.providers": "env", "config.providers.env.class": "x.EnvVarConfigProvider"}
    with pytest.raises(LoginError, match=r"^sasl\.password refers to a secret by config\.providers"):
        with_properties(ClientLogin(), file, str, passes_over_others=True)


def test_properties_win_over_the_login_before() -> None:
    before = ClientLogin(username="bob", password="x", more={"client.id": "a"})
    got = with_properties(before, {"sasl.username": "alice", "fetch.min.bytes": "5"}, str)
    assert (got.username, got.password) == ("alice", "x")
    assert got.more == {"client.id": "a", "fetch.min.bytes": "5"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            {"sasl.mechansim": "PLAIN"},
            "there is no client property sasl.mechansim: did you mean sasl.mechanism?",
        ),
        ({"group.id": "x"}, "group.id is set by Headwater itself"),
        (
            {"bootstrap.servers": "x"},
            "bootstrap.servers is set by Headwater itself: name the brokers by bootstrap",
        ),
        (
            {"security.protocol": "TLS"},
            "security.protocol is 'TLS', and clients here have PLAINTEXT, SSL, SASL_PLAIN",
        ),
        (
            {"sasl.mechanism": "GSSAPI"},
            "sasl.mechanism is 'GSSAPI', and clients here have PLAIN, SCRAM-SHA-256",
        ),
        ({"ssl.truststore.location": "trust.jks"}, "ssl.truststore.type is JKS, and librdkafka"),
        ({"ssl.keystore.type": "PKCS12"}, "ssl.keystore.type is PKCS12, and librdkafka"),
        (
            {"sasl.jaas.config": 'com.sun.security.auth.module.Krb5LoginModule required keyTab="s3cret";'},
            "sasl.jaas.config has Krb5LoginModule, and clients here have PlainLoginModule, ScramLoginModule",
        ),
        (
            {
                "sasl.jaas.config": f"{PACKAGE}.scram.ScramLoginModule required password='s3cret' tokenauth=true;"
            },
            "sasl.jaas.config has the option tokenauth, and clients here have username, password of ScramLoginModule",
        ),
        (
            {
                "sasl.jaas.config": f'{JAAS_OF_OAUTH} ssl.truststore.type="JKS" ssl.truststore.location="a.jks";'
            },
            "sasl.jaas.config has the option ssl.truststore.type, and clients here have clientId, clientSecret, scope",
        ),
        (
            {"sasl.oauthbearer.extensions": "lkc-1"},
            "sasl.oauthbearer.extensions is to be NAME=VALUE,NAME=VALUE, and has 'lkc-1'",
        ),
        ({"sasl.jaas.config": "s3cret"}, "sasl.jaas.config is no JAAS entry: it does not begin"),
        (
            {"sasl.login.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler"},
            "a Java class that librdkafka cannot call",
        ),
    ],
)
def test_properties_that_cannot_be_kept_are_refused_in_a_sentence(
    properties: dict[str, str], message: str
) -> None:
    with pytest.raises(LoginError) as refused:
        login(properties)
    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("incomplete", "names"),
    [
        (ClientLogin(), []),
        (ClientLogin(protocol="SASL_SSL"), ["mechanism", "username", "password"]),
        (ClientLogin(protocol="SASL_SSL", mechanism="PLAIN", username="a"), ["password"]),
        (
            ClientLogin(protocol="SASL_SSL", mechanism="OAUTHBEARER", client_id="a"),
            ["token_url", "client_secret"],
        ),
        (ClientLogin(protocol="SSL", mechanism="PLAIN"), []),
    ],
)
def test_login_that_lacks_something_says_what(incomplete: ClientLogin, names: list[str]) -> None:
    assert lacking(incomplete) == names


# -- both clients' words ---------------------------------------------------------------------------------

WHOLE = ClientLogin(
    protocol="SASL_SSL",
    mechanism="SCRAM-SHA-512",
    username="alice",
    password=ODD,
    ca="the CA",
    certificate="the certificate",
    key="s3cret-3",
    key_password="s3cret-4",
    more={"request.timeout.ms": "5000", "max.poll.records": "10"},
)


def test_rdkafka_gets_the_login_in_its_own_words() -> None:
    assert rdkafka_properties(WHOLE) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": ODD,
        "ssl.ca.pem": "the CA",
        "ssl.certificate.pem": "the certificate",
        "ssl.key.pem": "s3cret-3",
        "ssl.key.password": "s3cret-4",
        "socket.timeout.ms": "5000",
    }
    assert rdkafka_properties(ClientLogin()) == {}


def test_java_gets_references_in_place_of_secrets(tmp_path: Path) -> None:
    properties = java_properties(WHOLE, tmp_path)
    assert properties == {
        "request.timeout.ms": "5000",
        "max.poll.records": "10",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.truststore.type": "PEM",
        "ssl.keystore.type": "PEM",
        "config.providers": "headwater",
        "config.providers.headwater.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        **{name: f"${{headwater:{tmp_path}:{name}}}" for name in java_secrets(WHOLE)},
    }
    assert java_properties(ClientLogin(), None) == {}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_secret_is_in_what_java_is_given_nor_printed(mechanism: str) -> None:
    whole = replace(WHOLE, mechanism=mechanism, token_url="https://x", client_id="id", **SECRETS)
    given, printed = java_properties(whole, Path("/proc/1/fd/2")), repr(whole)
    for secret in SECRETS.values():
        assert secret not in "".join(given.values())
        assert secret not in printed
        assert repr(secret) not in printed


def test_secrets_that_a_protocol_does_not_need_are_not_handed_out() -> None:
    assert java_secrets(replace(WHOLE, protocol="PLAINTEXT")) == {}
    assert set(java_secrets(replace(WHOLE, protocol="SASL_PLAINTEXT"))) == {"sasl.jaas.config"}
    assert "sasl.password" not in rdkafka_properties(replace(WHOLE, protocol="SSL"))


def test_oauth_in_both_clients_words() -> None:
    oauth = ClientLogin(
        protocol="SASL_SSL",
        mechanism="OAUTHBEARER",
        token_url="https://x/token",
        client_id="id",
        client_secret="s3cret",
        scope="kafka",
        token_ca="/etc/ca.pem",
    )
    assert rdkafka_properties(oauth) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://x/token",
        "sasl.oauthbearer.client.id": "id",
        "sasl.oauthbearer.client.secret": "s3cret",
        "sasl.oauthbearer.scope": "kafka",
        "https.ca.location": "/etc/ca.pem",
    }
    assert parse_jaas(jaas_of(oauth)).options == {
        "clientId": "id",
        "clientSecret": "s3cret",
        "scope": "kafka",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/etc/ca.pem",
    }
    java = java_properties(oauth, Path("/f"))
    assert java["sasl.oauthbearer.token.endpoint.url"] == "https://x/token"
    assert java["sasl.login.callback.handler.class"].endswith(".OAuthBearerLoginCallbackHandler")


def test_secrets_text_is_one_line_each() -> None:
    text = secrets_text({"a": "x\ny", "b": " \\ z", "c": "é"})
    assert text == "a=x\\ny\nb=\\ \\\\ z\nc=é\n"
