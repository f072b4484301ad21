"""Which rules make up which level, since when, and what takes the place of what.

Invariant: reasons come in the order of these tables, baseline first, as kube-apiserver lists them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from motley.apiserver.admission.podsecurity import rules, strict
from motley.apiserver.admission.podsecurity.levels import Policy
from motley.apiserver.admission.podsecurity.rules import Pod, Violation

Document = dict[str, Any]


class Check(NamedTuple):
    """A rule of the standards."""

    rule: Callable[[Pod], Violation | None]
    since: int = 0
    replaces: Callable[[Pod], Violation | None] | None = None


BASELINE = (
    Check(rules.app_armor),
    Check(rules.capabilities_baseline),
    Check(rules.host_namespaces),
    Check(rules.host_path_volumes),
    Check(rules.host_ports),
    Check(rules.host_probes, since=34),
    Check(rules.privileged),
    Check(rules.proc_mount_baseline),
    Check(rules.se_linux_options),
    Check(rules.seccomp_baseline, since=19),
    Check(rules.sysctls),
    Check(rules.windows_host_process),
)
RESTRICTED = (
    Check(strict.allow_privilege_escalation, since=8),
    Check(strict.capabilities_restricted, since=22, replaces=rules.capabilities_baseline),
    Check(rules.proc_mount, since=35, replaces=rules.proc_mount_baseline),
    Check(strict.restricted_volumes, replaces=rules.host_path_volumes),
    Check(strict.run_as_non_root),
    Check(strict.run_as_user, since=23),
    Check(strict.seccomp_restricted, since=19, replaces=rules.seccomp_baseline),
)


def evaluate(policy: Policy, spec: Document, annotations: dict[str, str]) -> list[Violation]:
    """Every rule of the policy that a pod breaks."""
    if policy.level == "privileged":
        return []
    pod = Pod(spec, annotations, policy.minor)
    checks = [c for c in BASELINE if c.since <= policy.minor]
    if policy.level == "restricted":
        strict = [c for c in RESTRICTED if c.since <= policy.minor]
        replaced = {c.replaces for c in strict}
        checks = [*(c for c in checks if c.rule not in replaced), *strict]
    return [found for check in checks if (found := check.rule(pod)) is not None]
