"""Certificates of Ingresses: from Secrets to files that nginx may be told of.

A pair that does not fit, or cannot be read, is refused here, with the reason: given to nginx, it
would stand in the way of every other host's change. Files are named after what is in them, so a
renewed certificate is another file, and a changed name in the configuration is the reload.
"""

import base64
import binascii
import hashlib
import ssl
from collections.abc import Iterable
from pathlib import Path

from motley.api.views.base import Key
from motley.api.views.core import Secret
from motley.lib import journal
from motley.network.paths.sites import Certificate, Certificates, Refused

log = journal.get(__name__)


class Store:
    """The files of one gateway."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[Key, tuple[str, Certificate | Refused]] = {}

    def read(self, secrets: Iterable[Secret]) -> Certificates:
        """Every Secret's certificate, checked; what was checked before is not checked again."""
        known: dict[Key, tuple[str, Certificate | Refused]] = {}
        for secret in secrets:
            version = f"{secret.metadata.uid}/{secret.metadata.resource_version}"
            before = self._known.get(secret.key)
            if before is not None and before[0] == version:
                known[secret.key] = before
            else:
                known[secret.key] = (version, self._keep(secret))
        self._known = known
        return {key: found for key, (_, found) in known.items()}

    def _keep(self, secret: Secret) -> Certificate | Refused:
        parts = []
        for name in ("tls.crt", "tls.key"):
            try:
                parts.append(base64.b64decode(secret.data.get(name, ""), validate=True))
            except binascii.Error:
                return Refused(f"{name} is not base64")
            if not parts[-1]:
                return Refused(f"it has no {name}")
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        base = self._directory / hashlib.sha256(b"\0".join(parts)).hexdigest()[:32]
        files = base.with_suffix(".crt"), base.with_suffix(".key")
        for path, data in zip(files, parts, strict=True):
            path.touch(mode=0o600)
            path.write_bytes(data)
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files, password=lambda: "")
        except (ssl.SSLError, OSError) as error:
            for path in files:
                path.unlink(missing_ok=True)
            return Refused(f"the certificate and its key cannot be used ({error})")
        return Certificate(str(files[0]), str(files[1]))

    def forget_unused(self) -> None:
        """Delete the files of no Secret; to be called when nginx has left them."""
        used = set()
        for _, found in self._known.values():
            if isinstance(found, Certificate):
                used |= {found.certificate, found.key}
        for path in self._directory.glob("*.*"):
            if str(path) not in used:
                path.unlink(missing_ok=True)
                log.debug("certificate file removed", path=path)
