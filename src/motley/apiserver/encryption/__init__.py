"""Encryption at rest: what `--encryption-provider-config` says, and the seal that does it."""

from motley.apiserver.encryption.config import load
from motley.apiserver.encryption.sealer import Sealer

__all__ = ["Sealer", "load"]
