"""The audit log: who did what, when, and what came of it."""

from motley.apiserver.audit.auditlog import AuditLog, Options
from motley.apiserver.audit.auditor import Auditor
from motley.apiserver.audit.trail import (
    Trail,
    annotate,
    authenticated,
    decided,
    impersonating,
    is_audited,
    panicked,
    part,
    requested,
)

__all__ = [
    "AuditLog",
    "Auditor",
    "Options",
    "Trail",
    "annotate",
    "authenticated",
    "decided",
    "impersonating",
    "is_audited",
    "panicked",
    "part",
    "requested",
]
