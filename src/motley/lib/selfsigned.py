"""A certificate for a port nobody has given one for, as kube-scheduler makes itself one.

It keeps listeners out; it proves nothing about who answers. The key never touches the disk for
longer than it takes to load it.
"""

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

from motley.lib.clock import SYSTEM, Clock

_VALID_DAYS = 365


def context(name: str, *, clock: Clock = SYSTEM) -> ssl.SSLContext:
    """A server's TLS context with a new key. Raises ModuleNotFoundError without cryptography."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.fromtimestamp(clock.now(), UTC)
    names: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
    ]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="motley-serving-") as file:
        file.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        file.flush()
        made.load_cert_chain(file.name)
    return made
