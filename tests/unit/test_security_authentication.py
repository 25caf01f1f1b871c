"""Saying who one is: SCRAM, PLAIN, certificates' subjects, tokens, and the listeners where it is asked."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from headwater_broker.security import Principal
from headwater_broker.security.errors import AuthenticationFailedError
from headwater_broker.security.plain import PlainServer, plain_passwords
from headwater_broker.security.scram import Account, ScramCredential, ScramMechanism, ScramServer
from headwater_broker.security.ssl_names import distinguished_name, map_name, parse_mapping_rules
from headwater_broker.security.tokens import DelegationToken, token_password
from headwater_broker.server import ListenerSpec, UsageError, parse_listeners, parse_settings
from headwater_broker.server.tls import TlsSettings

USER = Principal("User", "user")
SHA_256 = ScramMechanism.SHA_256

# -- SCRAM -----------------------------------------------------------------------------------------------


def account(iterations: int = 4096) -> Account:
    """RFC 7677's example: the user `user` with the password `pencil`."""
    salt = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    return Account(USER, ScramCredential.of_password(SHA_256, salt, "pencil", iterations))


def server(found: Account | None = None) -> ScramServer:
    return ScramServer(SHA_256, lambda _name, _is_token: found, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")


CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def test_scram_exchange_is_that_of_rfc_7677() -> None:
    exchange = server(account())
    assert exchange.step(CLIENT_FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.principal is None
    assert exchange.step(CLIENT_FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert exchange.principal == USER


@pytest.mark.parametrize(
    "messages",
    [
        [b""],
        [b"\xff\xfe"],
        [b"y,,n=user,r=abc"],
        [b"p=tls-unique,,n=user,r=abc"],
        [b"n,,r=abc"],
        [b"n,,n=us=2er,r=abc"],
        [b"n,a=other,n=user,r=abc"],
        # Each attribute once, in its place: whose name counts must not depend on who reads.
        [b"n,,n=admin,n=user,r=abc"],
        [b"n,,n=user,n=admin,r=abc"],
        [b"n,,n=user,r=abc,n=admin"],
        [b"n,,n=user,r=abc,r=abd"],
        [b"n,,n=user,r=abc,tokenauth=false,tokenauth=true"],
        [b"n,,r=abc,n=user"],
        [b"n,,n=user,x=y,r=abc"],
        [b"n,,m=x,n=user,r=abc"],
        [b"n,a=user,a=user,n=user,r=abc"],
        [b"n,n=user,r=abc"],
        [b"n,a=,n=user,r=abc"],
        [b"n,,a=admin,n=user,r=abc"],
        [b"n,,n=,r=abc"],
        [b"n,,n=user,r="],
        [b"n,,n=user,r=a b"],
        [b"n,,n=user,r=abc,"],
        [b"n,,n=user,r=abc,x"],
        [b"n,,n=user,r=abc,x="],
        [b"n,,n=us\0er,r=abc"],
        [b"n,,n=us=3d,r=abc"],
        ["n,,n=us\u00e9r,r=abc".encode()],
        [b" n,,n=user,r=abc"],
        [CLIENT_FIRST + b"\0"],
        [CLIENT_FIRST, b""],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b",r=", b",r=x,r=")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b",p=", b",r=x,p=")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b",p=", b",c=biws,p=")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b",p=", b",p=AAAA,p=")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"c=biws,", b"")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"c=biws", b"c=bi_ws")],
        [CLIENT_FIRST, CLIENT_FINAL + b",p=AAAA"],
        [CLIENT_FIRST, CLIENT_FINAL + b"\n"],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"dHzb", b"dHzc")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"r=rOpr", b"r=rOps")],
        [CLIENT_FIRST, CLIENT_FINAL.replace(b"c=biws", b"c=eSws")],
        [CLIENT_FIRST, CLIENT_FINAL[:-8]],
        [CLIENT_FIRST, CLIENT_FINAL.partition(b",p=")[0]],
    ],
)
def test_scram_whoever_does_not_prove_it_is_refused(messages: list[bytes]) -> None:
    exchange = server(account())
    for message in messages[:-1]:
        exchange.step(message)
    with pytest.raises(AuthenticationFailedError):
        exchange.step(messages[-1])
    assert exchange.principal is None


def test_scram_extension_that_is_signed_is_passed_over() -> None:
    exchange = server(account())
    first = exchange.step(CLIENT_FIRST + b",x=1,yy=a=b")
    signed = CLIENT_FIRST[3:] + b",x=1,yy=a=b," + first + b"," + CLIENT_FINAL.partition(b",p=")[0] + b",z=2"
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
    proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
    exchange.step(signed[signed.index(b"c=biws") :] + b",p=" + b64encode(proof))
    assert exchange.principal == USER


def test_scram_unknown_user_and_too_few_iterations_are_refused_alike() -> None:
    reasons = set()
    for found in (None, account(iterations=100)):
        with pytest.raises(AuthenticationFailedError) as refused:
            server(found).step(CLIENT_FIRST)
        reasons.add(str(refused.value))
    assert len(reasons) == 1


def test_scram_name_with_commas_and_equals_signs_is_found() -> None:
    asked: list[tuple[str, bool]] = []

    def lookup(name: str, is_token: bool) -> Account:
        asked.append((name, is_token))
        return account()

    ScramServer(SHA_256, lookup, "n").step(b"n,,n=a=2Cb=3Dc,r=abc,tokenauth=true")
    assert asked == [("a,b=c", True)]


@pytest.mark.parametrize("mechanism", list(ScramMechanism))
def test_scram_credential_is_kept_as_kafka_writes_it(mechanism: ScramMechanism) -> None:
    credential = ScramCredential.of_password(mechanism, b"salt", "secret", 8192)
    text = str(credential)
    assert text.startswith(f"salt={b64encode(b'salt').decode()},stored_key=")
    assert text.endswith(",iterations=8192")
    assert ScramCredential.parse(text) == credential
    assert "secret" not in repr(credential)
    assert b64encode(credential.stored_key).decode() not in repr(credential)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "salt=x",
        "salt=,stored_key=,server_key=,iterations=many",
        "salt=,stored_key=,server_key=,iterations=4_096",
        "a=b,c",
    ],
)
def test_scram_credential_malformed_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        ScramCredential.parse(text)


# -- PLAIN -----------------------------------------------------------------------------------------------


def test_plain_right_password_comes_in() -> None:
    exchange = PlainServer({"alice": "a:b"})
    assert exchange.step(b"\0alice\0a:b") == b""
    assert exchange.principal == Principal("User", "alice")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0alice\0",
        b"\0\0x",
        b"\0alice\0wrong",
        b"\0bob\0x",
        b"bob\0alice\0a:b",
        b"\0alice\0a:b\0",
        b"\0alice\0a:b\0admin",
        b"\0\0alice\0a:b",
        b"alice\0\0alice\0a:b",
        b"\xff",
    ],
)
def test_plain_anything_else_is_refused(token: bytes) -> None:
    exchange = PlainServer({"alice": "a:b"})
    with pytest.raises(AuthenticationFailedError):
        exchange.step(token)
    assert exchange.principal is None


def test_plain_passwords_are_those_of_the_jaas_text() -> None:
    text = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required\n"
        '  username="admin" password="x"\n  user_admin="x" user_a.b-c="semi;colon \\"quoted\\"" user_d=plain;'
    )
    assert plain_passwords(text) == {"admin": "x", "a.b-c": 'semi;colon "quoted"', "d": "plain"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "org.apache.kafka.common.security.scram.ScramLoginModule required user_a=b;",
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_a="secret" stray;',
    ],
)
def test_plain_jaas_text_malformed_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(ValueError, match=r"name=|user_NAME=") as refused:
        plain_passwords(text)
    assert "secret" not in str(refused.value)


# -- certificates ----------------------------------------------------------------------------------------

SUBJECT = (
    (("countryName", "NZ"),),
    (("organizationName", "Head, water"),),
    (("organizationalUnitName", "Tests"), ("userId", "7")),
    (("commonName", "Alice"),),
)


def test_ssl_name_is_rfc_2253s() -> None:
    assert distinguished_name(SUBJECT) == r"CN=Alice,OU=Tests+UID=7,O=Head\, water,C=NZ"
    assert distinguished_name(((("emailAddress", "a@b"),),)) == "1.2.840.113549.1.9.1=#1603614062"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", r"CN=Alice,OU=Tests+UID=7,O=Head\, water,C=NZ"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U,DEFAULT", "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?)\\+.*$/$2-$1/", "Tests-Alice"),
        ("RULE:^CN=(Bob),.*$/$1/, RULE:^CN=(.*?),.*$/user $1/", "user Alice"),
        ("RULE:^CN=(Bob)$/$1/", None),
    ],
)
def test_ssl_name_is_mapped_by_the_first_rule_that_is_about_it(rules: str, name: str | None) -> None:
    assert map_name(parse_mapping_rules(rules), distinguished_name(SUBJECT)) == name


@pytest.mark.parametrize(
    "rules", ["NONE", "RULE:^CN=(.*", "RULE:^CN=((.*$/$1/L", "RULE:a/b/X", "DEFAULT DEFAULT"]
)
def test_ssl_mapping_rules_malformed_are_refused(rules: str) -> None:
    with pytest.raises(ValueError):
        parse_mapping_rules(rules)


# -- tokens ----------------------------------------------------------------------------------------------


def test_token_is_kept_as_kafka_writes_it_and_its_secret_is_not() -> None:
    owner, renewer = Principal("User", "CN=a,b"), Principal("User", "bob")
    token = DelegationToken("id", owner, renewer, (renewer,), 1, 3, 2)
    stored = token.to_json()
    assert stored["owner"] == "User%3ACN%3Da%2Cb"
    assert DelegationToken.from_json(stored) == token
    assert DelegationToken.from_json({**stored, "version": 2}).requester == owner
    secret = hmac.new(b"key", b"id", hashlib.sha512).digest()
    assert token_password("key", "id") == b64encode(secret).decode()
    assert token_password("key", "id") not in str(stored)
    assert token.is_expired(3)
    assert not token.is_expired(2)
    with pytest.raises(ValueError, match="owner"):
        DelegationToken.from_json({"version": 3})


# -- listeners -------------------------------------------------------------------------------------------


def test_listeners_are_read_with_what_clients_are_told() -> None:
    assert parse_listeners({"listeners": "PLAINTEXT://:9092"}) == (
        ListenerSpec("PLAINTEXT", "PLAINTEXT", "0.0.0.0", 9092),
    )
    public, internal, hidden = parse_listeners(
        {
            "listeners": "internal://[::1]:1, PUBLIC://:2,HIDDEN://h:3",
            "advertised.listeners": "PUBLIC://kafka.example:443,INTERNAL://10.0.0.1:1",
            "listener.security.protocol.map": "PUBLIC:sasl_ssl,INTERNAL:PLAINTEXT,HIDDEN:SSL",
            "inter.broker.listener.name": "internal",
        }
    )
    assert public == ListenerSpec("PUBLIC", "SASL_SSL", "0.0.0.0", 2, ("kafka.example", 443))
    assert public.has_sasl
    assert public.has_tls
    assert internal == ListenerSpec("INTERNAL", "PLAINTEXT", "::1", 1, ("10.0.0.1", 1))
    assert (hidden.name, hidden.is_advertised, hidden.has_tls) == ("HIDDEN", False, True)


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"listeners": "PLAINTEXT:9092"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:99999"}, "NAME://host:port"),
        ({"listeners": "MINE://h:1"}, "listener.security.protocol.map=MINE:"),
        ({"listeners": "SSL://h:1,SSL://h:2"}, "named twice"),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:1"}, "port 1 is named twice"),
        ({"listeners": "SSL://h:1", "advertised.listeners": "PLAINTEXT://h:1"}, "not one of listeners"),
        ({"listeners": "SSL://h:1", "advertised.listeners": "SSL://:1"}, "clients can reach"),
        ({"listeners": "SSL://h:1", "inter.broker.listener.name": "X"}, "inter.broker.listener.name=X"),
        ({"listeners": "A://h:1", "listener.security.protocol.map": "A:TLS"}, "NAME:PROTOCOL"),
    ],
)
def test_listeners_that_make_no_sense_are_refused_with_the_reason(
    properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_listeners(properties)


# -- properties ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({}, "name the PEM file"),
        ({"ssl.keystore.location": "FILE", "ssl.keystore.type": "JKS"}, "openssl pkcs12"),
        ({"ssl.keystore.location": "/no/such/file"}, "No such file"),
        ({"ssl.keystore.location": "FILE"}, "no PEM of a private key"),
        (
            {"ssl.keystore.key": "nonsense", "ssl.keystore.certificate.chain": "nonsense"},
            "no PEM of a private key",
        ),
    ],
)
def test_tls_keystore_that_cannot_be_used_is_refused_with_the_reason(
    properties: dict[str, str], reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "keystore"
    file.write_bytes(b"\xfe\xed\xfe\xed not PEM")
    given = {name: str(file) if value == "FILE" else value for name, value in properties.items()}
    with pytest.raises(UsageError, match=f"listener SSL.*{reason}"):
        TlsSettings(parse_settings(given), "SSL")


def test_settings_of_a_listener_win_over_those_of_all() -> None:
    settings = parse_settings(
        {
            "connections.max.reauth.ms": "1",
            "listener.name.Internal.connections.max.reauth.ms": "2",
            "listener.name.internal.scram-sha-256.connections.max.reauth.ms": "3",
        }
    )

    def reauth(listener: str, mechanism: str | None = None) -> str | None:
        return settings.of_listener(listener, "connections.max.reauth.ms", mechanism)

    assert reauth("PUBLIC") == reauth("PUBLIC", "PLAIN") == "1"
    assert reauth("INTERNAL") == reauth("INTERNAL", "PLAIN") == "2"
    assert reauth("INTERNAL", "SCRAM-SHA-256") == "3"
    for wrong in ("num.partitions", "max.connections.per.ip"):
        with pytest.raises(UsageError, match=wrong):
            parse_settings({f"listener.name.internal.{wrong}": "1"})
    with pytest.raises(UsageError, match=r"listener\.name\.internal\.max\.connections=many"):
        parse_settings({"listener.name.internal.max.connections": "many"})


def test_settings_that_name_kafkas_authorizer_refuse_what_no_rule_allows() -> None:
    name = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer"}
    assert parse_settings({}).allow_everyone_if_no_acl_found
    assert not parse_settings(name).allow_everyone_if_no_acl_found
    assert parse_settings({**name, "allow.everyone.if.no.acl.found": "true"}).allow_everyone_if_no_acl_found
