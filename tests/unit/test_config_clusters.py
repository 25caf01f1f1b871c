"""From the settings to a cluster: where brokers are named, where a login comes from, and what a mistake says."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from headwater.config import Settings
from headwater.config.clusters import default_cluster, login_of, named_cluster, parsed_properties
from headwater.config.settings import ClientSettings
from headwater.errors import UsageError
from headwater_streams.sources.client_login import jaas_of
from headwater_streams.sources.client_properties import rdkafka_properties

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n"
OWN = "127.0.0.1:9092"


def client(**values: Any) -> ClientSettings:
    return ClientSettings.model_validate(values)


def settings(**values: Any) -> Settings:
    return Settings.model_validate(values)


def test_default_cluster_is_the_one_that_is_named_first() -> None:
    both = settings(
        client={"bootstrap": "a:1", "security_protocol": "SSL"}, cluster={"pay": {"bootstrap": "b:1"}}
    )
    assert default_cluster(both, "c:1", OWN).bootstrap == "c:1"
    assert default_cluster(both, "c:1", OWN).login.protocol == "SSL"
    assert default_cluster(both, None, OWN).bootstrap == "a:1"
    assert default_cluster(settings(), None, OWN).bootstrap == OWN
    assert default_cluster(settings(), None, "").bootstrap == ""
    of_name = default_cluster(both, "pay", OWN)
    assert (of_name.bootstrap, of_name.login.protocol, of_name.name) == ("b:1", "PLAINTEXT", "")
    assert of_name.section == "cluster.pay"


def test_default_cluster_whose_name_is_misspelt_is_no_host() -> None:
    named = settings(cluster={"payments": {"bootstrap": "b:1"}})
    with pytest.raises(
        UsageError, match=r"the settings have no \[cluster\.paymets\], did you mean payments\?"
    ):
        default_cluster(named, "paymets", OWN)
    assert default_cluster(named, "payments.example.org:9092", OWN).bootstrap == "payments.example.org:9092"
    assert default_cluster(named, "localhost", OWN).bootstrap == "localhost"


@pytest.mark.parametrize("bootstrap", [None, OWN])
def test_default_cluster_of_the_homes_own_stack_is_spoken_to_in_plain_text(bootstrap: str | None) -> None:
    secured = settings(client={"security_protocol": "SSL"})
    assert default_cluster(secured, bootstrap, OWN).login.protocol == "PLAINTEXT"
    assert default_cluster(secured, "c:1", OWN).login.protocol == "SSL"


def test_named_cluster_takes_nothing_over_from_client() -> None:
    both = settings(
        client={"bootstrap": "a:1", "security_protocol": "SSL"},
        cluster={"pay": {"bootstrap": "b:1,c:1", "kafka": {"client.id": "x"}}},
    )
    pay = named_cluster(both, "pay")
    assert (pay.bootstrap, pay.name, pay.section) == ("b:1,c:1", "pay", "cluster.pay")
    assert (pay.login.protocol, pay.login.more) == ("PLAINTEXT", {"client.id": "x"})
    assert pay.named("orders") == "pay:orders"


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ({}, "the settings have no section [cluster.pay]: there is none"),
        ({"pays": {}}, "the settings have no section [cluster.pay]: did you mean pays?"),
        ({"eu-west": {}}, "the settings have no section [cluster.pay]: there are [cluster.eu-west]"),
        (
            {"pay": {}},
            "cluster.pay.bootstrap (HEADWATER_CLUSTER_PAY_BOOTSTRAP) is to name the cluster's brokers",
        ),
        (
            {"pay": {"bootstrap": "b:1", "kafka": {"group.id": "x"}}},
            "the section cluster.pay of the settings: group.id is set by Headwater itself",
        ),
    ],
)
def test_named_cluster_that_is_not_there_or_wrong_is_told(clusters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        named_cluster(settings(cluster=clusters), "pay")
    assert str(refused.value) == message


def test_login_of_our_keys_wins_over_kafkas_and_these_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.touch(mode=0o600)
    path.write_text(
        "# by a cloud service\nbootstrap.servers=b:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=x.PlainLoginModule required \\\n  username='of the file' password='s3cret';\nacks=all\n"
    )
    file = {"properties": str(path)}
    login = login_of(client(**file))
    assert (login.username, login.password, login.mechanism) == ("of the file", "s3cret", "PLAIN")
    assert login_of(client(**file, kafka={"sasl.username": "of the table"})).username == "of the table"
    over = client(**file, kafka={"sasl.username": "of the table"}, sasl_username="ours")
    assert (login_of(over).username, login_of(over).password) == ("ours", "s3cret")
    assert default_cluster(settings(client=file), None, OWN).bootstrap == "b:1"


@pytest.mark.parametrize("mode", [0o644, 0o620, 0o604])
def test_login_of_a_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "client.properties"
    path.write_text("sasl.password=s3cret\n")
    path.chmod(mode)
    with pytest.raises(UsageError, match=r"client\.properties: others than the owner may read .* chmod 600 "):
        login_of(client(properties=str(path)))


@pytest.mark.parametrize("value", ["C:\\users\\s3cret", "s3cret\\u12"])
def test_login_of_a_file_with_an_escape_that_is_none_is_told(tmp_path: Path, value: str) -> None:
    path = tmp_path / "client.properties"
    path.touch(mode=0o600)
    path.write_text(f"sasl.password={value}\n")
    with pytest.raises(
        UsageError, match=r"client\.properties: .*\\u is to have four hexadecimal digits"
    ) as refused:
        login_of(client(properties=str(path)))
    assert "s3cret" not in str(refused.value)


def test_login_of_pem_files(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(f"some words\n{CERTIFICATE}{CERTIFICATE}")
    (tmp_path / "both.pem").write_text(KEY + CERTIFICATE + CERTIFICATE)
    both = str(tmp_path / "both.pem")
    login = login_of(
        client(
            security_protocol="SSL",
            ssl_ca_location=str(tmp_path / "ca.pem"),
            ssl_certificate_location=both,
            ssl_key_location=both,
        )
    )
    assert login.ca.count("BEGIN CERTIFICATE") == 2
    assert (login.certificate.count("BEGIN CERTIFICATE"), login.certificate.count("KEY")) == (2, 0)
    assert login.key == KEY


def test_login_without_authorities_trusts_those_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "bundle.pem").write_text(CERTIFICATE)
    assert (
        login_of(client(security_protocol="SSL"), environ_bundle=str(tmp_path / "bundle.pem")).ca
        == CERTIFICATE
    )
    assert login_of(client(), environ_bundle=str(tmp_path / "bundle.pem")).ca == ""
    (tmp_path / "none.pem").write_text("no pem")
    with pytest.raises(UsageError, match=r"none\.pem is no PEM file"):
        login_of(client(security_protocol="SSL"), environ_bundle=str(tmp_path / "none.pem"))


def test_login_by_tokens_has_the_whole_path_of_their_servers_authorities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    assert login_of(client(oauth_ca_location="~/ca.pem")).token_ca == str(tmp_path / "ca.pem")
    with pytest.raises(UsageError, match=r"cannot read none\.pem"):
        login_of(client(oauth_ca_location="none.pem"))


def test_both_clients_trust_the_same_authorities_for_the_server_of_tokens(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(CERTIFICATE)
    kafka = {"sasl.mechanism": "OAUTHBEARER", "security.protocol": "SASL_SSL"}
    oauth = {"oauth_client_id": "id", "oauth_client_secret": "s", "kafka": kafka}
    login = login_of(client(oauth_url="https://x/token", **oauth), environ_bundle=str(bundle))
    assert login.token_ca == str(bundle)
    assert rdkafka_properties(login)["https.ca.location"] == str(bundle)
    assert f'ssl.truststore.location="{bundle}"' in jaas_of(login)
    plain = login_of(client(oauth_url="http://x/token", **oauth), environ_bundle=str(bundle))
    assert plain.token_ca == ""
    (tmp_path / "own.pem").write_text(CERTIFICATE)
    own = client(oauth_url="https://x/token", oauth_ca_location=str(tmp_path / "own.pem"), **oauth)
    assert login_of(own, environ_bundle=str(bundle)).token_ca == str(tmp_path / "own.pem")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"security_protocol": "SASL_SSL", "sasl_username": "alice"},
            (
                "client.security_protocol is SASL_SSL, which needs client.sasl_mechanism "
                "(HEADWATER_CLIENT_SASL_MECHANISM) "
                "and client.sasl_password (HEADWATER_CLIENT_SASL_PASSWORD), too"
            ),
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "none.pem"}, "cannot read none.pem: no such file"),
        ({"security_protocol": "SSL", "ssl_ca_location": "text"}, "text is no PEM file"),
        (
            {"security_protocol": "SSL", "ssl_certificate_location": "cert.pem"},
            "the client's certificate is given, and its key is not",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_certificate_location": "cert.pem",
                "ssl_key_location": "rsa.pem",
            },
            "the client's key is not in PKCS #8, which Kafka's Java client cannot read: openssl pkcs8 -topk8 -nodes",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_certificate_location": "cert.pem",
                "ssl_key_location": "pbes2.pem",
            },
            "the client's key is encrypted by PBES2",
        ),
        (
            {"security_protocol": "SSL", "ssl_ca_location": "rsa.pem"},
            "the section client of the settings: the PEM text of the authorities has no certificate",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_certificate_location": "cert.pem",
                "ssl_key_location": "cert.pem",
            },
            "the section client of the settings: the PEM text of the client's key has no private key",
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "client.security_protocol is SASL_SSL, which needs client.oauth_url (HEADWATER_CLIENT_OAUTH_URL)",
        ),
        ({"properties": "none.properties"}, "client.properties: cannot read none.properties: no such file"),
    ],
)
def test_login_that_cannot_be_is_refused(
    values: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text").write_text("no pem")
    Path("cert.pem").write_text(CERTIFICATE)
    scheme = b64encode(bytes.fromhex("30820100 3057 06092a864886f70d01050d 304a")).decode()
    Path("pbes2.pem").write_text(
        f"-----BEGIN ENCRYPTED PRIVATE KEY-----\n{scheme}\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    Path("rsa.pem").write_text(KEY.replace("PRIVATE", "RSA PRIVATE"))
    with pytest.raises(UsageError) as refused:
        login_of(client(**values))
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("a=1\n", {"a": "1"}),
        ("  a : 1\n! no\n\n#no\nb 2", {"a": "1", "b": "2"}),
        ("a=x\\\n   y\\\\\nb=1", {"a": "xy\\", "b": "1"}),
        ('a=\\u00e9\\t\\"q\\"', {"a": 'é\t"q"'}),
        ("a\\=b=c=d", {"a=b": "c=d"}),
        ("a", {"a": ""}),
        ("a=b  ", {"a": "b  "}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, properties: dict[str, str]) -> None:
    assert parsed_properties(text) == properties
