"""What is wrong between a broker and a client, as a sentence: by what librdkafka, Java and the port say."""

import pytest

from headwater_streams.base.errors import RefusedError, UnavailableError
from headwater_streams.sources.client_faults import Complaint, Trouble, diagnosis, refusal, trouble_in
from headwater_streams.sources.client_login import ClientLogin
from headwater_streams.sources.kafka_cluster import KafkaCluster
from headwater_streams.sources.listener_probe import Listener, read_mechanisms

PLAIN_TEXT = ClientLogin()
TLS = ClientLogin(protocol="SSL")
SASL = ClientLogin(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="s3cret")
BOTH = ClientLogin(protocol="SASL_SSL", mechanism="SCRAM-SHA-512", username="alice", password="s3cret")
OAUTH = ClientLogin(
    protocol="SASL_SSL",
    mechanism="OAUTHBEARER",
    token_url="https://x/token",
    client_id="id",
    client_secret="s3cret",
)

# As librdkafka 2.16 gave them over our broker, and Kafka's Java client 3.9 over it and over Apache Kafka's.
TEXTS = {
    Trouble.WRONG_PASSWORD: [
        (
            "sasl_plaintext://b:1/bootstrap: SASL authentication error: Authentication failed: Invalid username or "
            "password (after 5ms in state AUTH_REQ)"
        ),
        (
            "sasl_plaintext://b:1/bootstrap: SASL authentication error: Authentication failed during authentication "
            "due to "
            "invalid credentials with SASL mechanism SCRAM-SHA-256 (after 32ms in state AUTH_REQ)"
        ),
        "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username",
    ],
    Trouble.OTHER_MECHANISM: [
        (
            "sasl_plaintext://b:1/bootstrap: SASL SCRAM-SHA-512 mechanism handshake failed: Broker: Unsupported SASL "
            "mechanism: broker's supported mechanisms: PLAIN,SCRAM-SHA-256 (after 37ms in state AUTH_HANDSHAKE)"
        )
    ],
    Trouble.NO_SASL_THERE: [
        (
            "sasl_plaintext://b:1/bootstrap: SASL PLAIN mechanism handshake failed: Broker: Request not valid in "
            "current "
            "SASL state: broker's supported mechanisms:  (after 4ms in state AUTH_HANDSHAKE)"
        )
    ],
    Trouble.NO_TLS_THERE: [
        "ssl://b:1/bootstrap: SSL handshake failed: error:0A00010B:SSL routines::wrong version number",
        "javax.net.ssl.SSLException: Unsupported or unrecognized SSL message",
    ],
    Trouble.UNTRUSTED: [
        (
            "sasl_ssl://b:1/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: "
            "broker certificate could not be verified, verify that ssl.ca.location is correctly configured (after "
            "9ms in "
            "state SSL_HANDSHAKE)"
        ),
        "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed: PKIX path building failed",
    ],
    Trouble.CERTIFICATE_REFUSED: [
        (
            "ssl://b:1/bootstrap: Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL "
            "alert number 116 (after 1ms in state APIVERSION_QUERY)"
        ),
        (
            "ssl://b:1/bootstrap: Receive failed: error:0A000418:SSL routines::tlsv1 alert unknown ca: SSL alert "
            "number 48 "
            "(after 1ms in state APIVERSION_QUERY)"
        ),
    ],
    Trouble.NO_TOKEN: [
        "Failed to acquire SASL OAUTHBEARER token: Failed to connect to 127.0.0.1:1 after 0 ms: Could not connect"
    ],
}
AWAY = [
    "127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)",
    "no.such.host:9092/bootstrap: Failed to resolve 'no.such.host:9092': Name or service not known",
    "1/1 brokers are down",
    "ssl://b:1/bootstrap: Disconnected: SSL connection closed by peer (after 1ms in state SSL_HANDSHAKE)",
    (
        "ssl://b:1/bootstrap: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a "
        "PLAINTEXT broker listener? (after 0ms in state SSL_HANDSHAKE)"
    ),
    (
        "b:1/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect security.protocol "
        "configuration (connecting to a SSL listener?) or broker version is < 0.10 (see api.version.request)"
    ),
]


@pytest.mark.parametrize(
    ("trouble", "text"), [(trouble, text) for trouble, texts in TEXTS.items() for text in texts]
)
def test_trouble_is_seen_in_the_texts_of_both_clients(trouble: Trouble, text: str) -> None:
    assert trouble_in(text) is trouble


@pytest.mark.parametrize("text", AWAY)
def test_trouble_is_not_seen_where_a_broker_is_away(text: str) -> None:
    assert trouble_in(text) is None
    assert diagnosis(TLS, [Complaint("_TRANSPORT", text)], None) is None


@pytest.mark.parametrize(
    ("login", "listener", "trouble"),
    [
        (PLAIN_TEXT, Listener(has_tls=True), Trouble.TLS_THERE),
        (SASL, Listener(has_tls=True, mechanisms=("PLAIN",)), Trouble.TLS_THERE),
        (TLS, Listener(has_tls=False, mechanisms=()), Trouble.NO_TLS_THERE),
        (BOTH, Listener(has_tls=True, certificate_fault="self-signed certificate"), Trouble.UNTRUSTED),
        (PLAIN_TEXT, Listener(has_tls=False, mechanisms=("PLAIN",)), Trouble.SASL_THERE),
        (TLS, Listener(has_tls=True, mechanisms=("PLAIN",)), Trouble.SASL_THERE),
        (SASL, Listener(has_tls=False, mechanisms=()), Trouble.NO_SASL_THERE),
        (BOTH, Listener(has_tls=True, mechanisms=("PLAIN",)), Trouble.OTHER_MECHANISM),
    ],
)
def test_port_says_what_connections_do_not(login: ClientLogin, listener: Listener, trouble: Trouble) -> None:
    found = diagnosis(login, [], listener)
    assert found is not None
    assert found[0] is trouble


def test_port_that_fits_leaves_it_to_the_connections() -> None:
    there = Listener(has_tls=False, mechanisms=("PLAIN",))
    assert diagnosis(SASL, [], there) is None
    wrong = Complaint("_AUTHENTICATION", TEXTS[Trouble.WRONG_PASSWORD][0])
    later = Complaint("_ALL_BROKERS_DOWN", "1/1 brokers are down")
    assert diagnosis(SASL, [wrong, later], there) == (Trouble.WRONG_PASSWORD, wrong.text)


def test_port_that_says_nothing_is_a_broker_that_is_away() -> None:
    assert diagnosis(BOTH, [], Listener()) is None
    assert diagnosis(PLAIN_TEXT, [], Listener(has_tls=False)) is None


@pytest.mark.parametrize(
    ("login", "trouble", "text", "sentence"),
    [
        (
            BOTH,
            Trouble.WRONG_PASSWORD,
            "SASL authentication error",
            (
                "the broker at b:1 refuses 'alice' with this password (SCRAM-SHA-512): client.sasl_username and "
                "client.sasl_password say who this client is"
            ),
        ),
        (
            PLAIN_TEXT,
            Trouble.SASL_THERE,
            "",
            (
                "the broker at b:1 asks who its clients are, and client.security_protocol is PLAINTEXT: set "
                "SASL_PLAINTEXT, client.sasl_mechanism, client.sasl_username and client.sasl_password"
            ),
        ),
        (
            PLAIN_TEXT,
            Trouble.TLS_THERE,
            "",
            (
                "the broker at b:1 speaks TLS, and client.security_protocol is PLAINTEXT: set SSL, or SASL_SSL with a "
                "user"
            ),
        ),
        (
            SASL,
            Trouble.TLS_THERE,
            "",
            "the broker at b:1 speaks TLS, and client.security_protocol is SASL_PLAINTEXT: set SASL_SSL",
        ),
        (
            TLS,
            Trouble.NO_TLS_THERE,
            "",
            (
                "the broker at b:1 does not speak TLS, and client.security_protocol is SSL: set PLAINTEXT, or name "
                "another "
                "port"
            ),
        ),
        (
            SASL,
            Trouble.NO_SASL_THERE,
            "",
            (
                "the broker at b:1 does not ask who its clients are, and client.security_protocol is "
                "SASL_PLAINTEXT: set "
                "PLAINTEXT, or name another port"
            ),
        ),
        (
            BOTH,
            Trouble.OTHER_MECHANISM,
            TEXTS[Trouble.OTHER_MECHANISM][0],
            "the broker at b:1 does not take SCRAM-SHA-512 (client.sasl_mechanism): it takes PLAIN, SCRAM-SHA-256",
        ),
        (
            TLS,
            Trouble.UNTRUSTED,
            "unable to get local issuer certificate",
            (
                "the broker at b:1 shows a certificate of an authority that is not trusted here (unable to get local "
                "issuer certificate): client.ssl_ca_location is to name the PEM file of its authority"
            ),
        ),
        (
            ClientLogin(protocol="SSL", ca="another"),
            Trouble.UNTRUSTED,
            "self-signed certificate in certificate chain",
            (
                "the broker at b:1 shows a certificate of an authority that is not trusted here (self-signed "
                "certificate "
                "in certificate chain): client.ssl_ca_location names other authorities than its"
            ),
        ),
        (
            TLS,
            Trouble.UNTRUSTED,
            "IP address mismatch, certificate is not valid for '127.0.0.1'.",
            (
                "the broker at b:1 shows the certificate of another host (IP address mismatch, certificate is not "
                "valid "
                "for '127.0.0.1'): name the broker as its certificate does, in advertised.listeners, too"
            ),
        ),
        (
            TLS,
            Trouble.UNTRUSTED,
            "certificate has expired",
            "the broker at b:1 shows a certificate that is not valid now (certificate has expired)",
        ),
        (
            TLS,
            Trouble.CERTIFICATE_REFUSED,
            TEXTS[Trouble.CERTIFICATE_REFUSED][0],
            (
                "the broker at b:1 takes clients with a certificate alone: client.ssl_certificate_location and "
                "client.ssl_key_location name this one's"
            ),
        ),
        (
            OAUTH,
            Trouble.NO_TOKEN,
            TEXTS[Trouble.NO_TOKEN][0],
            (
                "no token for 'id' comes from https://x/token (Failed to acquire SASL OAUTHBEARER token: Failed to "
                "connect "
                "to 127.0.0.1:1 after 0 ms: Could not connect): client.oauth_url, client.oauth_client_id and "
                "client.oauth_client_secret say where one is had"
            ),
        ),
    ],
)
def test_refusal_says_what_is_wrong_and_which_setting_mends_it(
    login: ClientLogin, trouble: Trouble, text: str, sentence: str
) -> None:
    assert refusal("b:1", login, "client", trouble, text) == sentence


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to connect to 127.0.0.1:1 after 0 ms: Could not connect to server", UnavailableError),
        ("Could not resolve host: login.example.org", UnavailableError),
        ("Operation timed out after 30000 milliseconds with 0 bytes received", UnavailableError),
        ('{"error":"invalid_client","error_description":"Client secret wrong"}', RefusedError),
        ("Server did not provide an error string", RefusedError),
        ('Expected JSON response with "access_token" field', RefusedError),
    ],
)
def test_server_of_tokens_that_is_away_is_waited_for(text: str, kind: type[Exception]) -> None:
    """As librdkafka 2.16 says it; of an answer 503 it says nothing, and tries again by itself."""
    said = Complaint("_AUTHENTICATION", f"Failed to acquire SASL OAUTHBEARER token: {text}")
    fault = KafkaCluster("b:1", OAUTH).fault([said], asks_port=False)
    assert type(fault) is kind
    assert str(fault).startswith("no token for 'id' comes from https://x/token (")


def test_refusal_quotes_no_whole_page() -> None:
    page = f"Failed to acquire SASL OAUTHBEARER token: <html>{'x' * 10_000}"
    assert len(refusal("b:1", OAUTH, "client", Trouble.NO_TOKEN, page)) < 600


@pytest.mark.parametrize("trouble", Trouble)
@pytest.mark.parametrize("login", [PLAIN_TEXT, TLS, SASL, BOTH, OAUTH])
def test_refusal_of_every_kind_is_one_sentence_without_a_secret(login: ClientLogin, trouble: Trouble) -> None:
    said = refusal("b:1", login, "cluster.pay", trouble, "b:1/1: why\nso (after 3ms in state UP)")
    assert "s3cret" not in said
    assert "\n" not in said
    assert "after 3ms" not in said


@pytest.mark.parametrize(
    ("answer", "mechanisms"),
    [
        (
            b"\0\0\0\1" + b"\0\x21" + b"\0\0\0\2" + b"\0\5PLAIN" + b"\0\rSCRAM-SHA-512",
            ("PLAIN", "SCRAM-SHA-512"),
        ),
        (b"\0\0\0\1" + b"\0\x22" + b"\0\0\0\0", ()),
        (b"HTTP/1.1 400 Bad Request", None),
        (b"\0\0\0\1" + b"\0\x21" + b"\0\0\0\2" + b"\0\5PLAIN", None),
    ],
)
def test_mechanisms_are_read_from_a_handshakes_answer(
    answer: bytes, mechanisms: tuple[str, ...] | None
) -> None:
    assert read_mechanisms(answer) == mechanisms
