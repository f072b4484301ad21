"""What holds for every test."""

import asyncio
import base64
import datetime
import os
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# Tests that start containers, networks, clusters or a Slurm share costly fixtures: each kind stays
# in one process, one test after the other. They wait more than they compute, so the kinds run
# side by side; the longest begins first.
_TOGETHER = ("tests/cluster/", "tests/node/", "tests/slurm/", "tests/network/")

# An example that takes long on a busy machine says nothing about what is tested. What is judged is
# the change, so every run tries the same examples; `make fuzz` looks for new ones.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("MOTLEY_EXAMPLES", "same"))


def pytest_configure() -> None:
    # looptime asks for the current loop before synchronous tests too; on Python 3.11 that makes
    # a loop nobody closes, unless it was said that there is none.
    asyncio.set_event_loop(None)


class _ByFixtures(LoadScopeScheduling):
    """Which tests must run in one process when several share the work (`-n`)."""

    def _split_scope(self, nodeid: str) -> str:
        kinds = (kind for kind in _TOGETHER if nodeid.startswith(kind))
        return next(kinds, nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long kinds first: at the end only short files are left to share out."""
    last = len(_TOGETHER)

    def place(item: pytest.Item) -> int:
        kinds = (n for n, kind in enumerate(_TOGETHER) if item.nodeid.startswith(kind))
        return next(kinds, last)

    items.sort(key=place)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Files stay whole, and so do the kinds of tests that share costly fixtures."""
    return _ByFixtures(config, log)


class CertificateSigner:
    """An authority of its own, which answers a request with whatever a test wants."""

    def __init__(self, name: str = "root") -> None:
        self._key = ed25519.Ed25519PrivateKey.generate()
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        constraint = x509.BasicConstraints(ca=True, path_length=None)
        self.anchor = self._pem(self._key.public_key(), 0.0, 4e9, constraint)

    def issue(self, stub: str, begins: float, lasts_s: float = 86400.0) -> str:
        """A certificate for the key in a certificate request (DER in base64)."""
        request = x509.load_der_x509_csr(base64.b64decode(stub))
        constraint = x509.BasicConstraints(ca=False, path_length=None)
        return self._pem(request.public_key(), begins, begins + lasts_s, constraint)

    def _pem(self, key: Any, begins: float, ends: float, constraint: x509.BasicConstraints) -> str:
        first, last = (datetime.datetime.fromtimestamp(t, datetime.UTC) for t in (begins, ends))
        made = x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=self._name,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=first,
            not_valid_after=last,
        ).add_extension(constraint, critical=True)
        signed = made.sign(self._key, None)
        return signed.public_bytes(serialization.Encoding.PEM).decode()


@pytest.fixture
def certificate_signer() -> type[CertificateSigner]:
    """Makes authorities: `certificate_signer("name").anchor`, `.issue(…)`."""
    return CertificateSigner
