"""Options of the API server that guard it: how much it takes on, what it records, what it encrypts.

They keep kube-apiserver's names, so that its manuals and manifests apply.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


class Guard(NamedTuple):
    """What the options said."""

    max_requests: int
    audit_path: str
    audit_max_size_mb: int
    audit_max_backups: int
    audit_max_age_days: int
    audit_policy: Path | None
    encryption: Path | None


def options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options; the command gets them as `guard`."""

    @click.option(
        "--max-requests-inflight",
        type=click.IntRange(min=1),
        default=120,
        show_default=True,
        help="Reads served at once; with the next option the seats that classes of users share.",
    )
    @click.option(
        "--max-mutating-requests-inflight",
        type=click.IntRange(min=0),
        default=80,
        show_default=True,
        help="Writes served at once; added to the option before.",
    )
    @click.option(
        "--audit-log-path",
        default="",
        metavar="FILE|-",
        help="Write an audit log there, one JSON line per event; - is standard output.",
    )
    @click.option(
        "--audit-log-maxsize",
        type=click.IntRange(min=0),
        default=100,
        show_default=True,
        help="Megabytes after which the audit log is rotated; 0: never.",
    )
    @click.option(
        "--audit-log-maxbackup",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Rotated audit logs to keep; 0: all.",
    )
    @click.option(
        "--audit-log-maxage",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Days to keep rotated audit logs; 0: for ever.",
    )
    @click.option(
        "--audit-policy-file",
        type=_FILE,
        help="What is audited (audit.k8s.io/v1 Policy); without it: who did what, save for health.",
    )
    @click.option(
        "--encryption-provider-config",
        type=_FILE,
        help="Encrypt objects at rest as this EncryptionConfiguration says.",
    )
    @functools.wraps(command)
    def with_guard(
        max_requests_inflight: int,
        max_mutating_requests_inflight: int,
        audit_log_path: str,
        audit_log_maxsize: int,
        audit_log_maxbackup: int,
        audit_log_maxage: int,
        audit_policy_file: Path | None,
        encryption_provider_config: Path | None,
        **others: Any,
    ) -> None:
        if audit_policy_file is not None and not audit_log_path:
            raise click.UsageError("--audit-policy-file needs --audit-log-path")
        guard = Guard(
            max_requests_inflight + max_mutating_requests_inflight,
            audit_log_path,
            audit_log_maxsize,
            audit_log_maxbackup,
            audit_log_maxage,
            audit_policy_file,
            encryption_provider_config,
        )
        command(guard=guard, **others)

    return with_guard
