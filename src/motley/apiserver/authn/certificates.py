"""Client certificates: the common name is the user, the organisations are the groups.

TLS has already verified the chain against the cluster's authority; what is read here is only
who the certificate names. A certificate comes again with every request of its connection, so
the reading is remembered by its bytes.
"""

import hashlib
from functools import lru_cache

from cryptography import x509
from cryptography.x509.oid import NameOID

from motley.apiserver.authn.user import AUTHENTICATED, CREDENTIAL_ID, User


@lru_cache(maxsize=4096)
def user_of(certificate_der: bytes) -> User | None:
    """The user a verified certificate names; None when it names nobody."""
    subject = x509.load_der_x509_certificate(certificate_der).subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        return None
    groups = [str(o.value) for o in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    fingerprint = f"X509SHA256={hashlib.sha256(certificate_der).hexdigest()}"
    return User(
        str(names[0].value),
        tuple(dict.fromkeys([*groups, AUTHENTICATED])),
        extra=((CREDENTIAL_ID, (fingerprint,)),),
    )
