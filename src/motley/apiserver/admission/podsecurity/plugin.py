"""The PodSecurity plugin: refuses pods, warns about them and about what would make such pods.

A pod that breaks the enforced level is refused. Templates (Deployments, Jobs …) only earn
warnings, because what counts is the pod. Raising a namespace's level warns about pods it has.
"""

from typing import Any

from motley.api import status
from motley.apiserver import audit
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.podsecurity import levels
from motley.apiserver.admission.podsecurity.checks import evaluate
from motley.apiserver.admission.podsecurity.levels import Policies, Policy

Document = dict[str, Any]

# Kubernetes looks at no more existing pods when a namespace's level is raised.
MAX_PODS_CHECKED = 3000

_TEMPLATES = {
    ("", "podtemplates"): ("template",),
    ("", "replicationcontrollers"): ("spec", "template"),
    ("apps", "daemonsets"): ("spec", "template"),
    ("apps", "deployments"): ("spec", "template"),
    ("apps", "replicasets"): ("spec", "template"),
    ("apps", "statefulsets"): ("spec", "template"),
    ("batch", "cronjobs"): ("spec", "jobTemplate", "spec", "template"),
    ("batch", "jobs"): ("spec", "template"),
}


class PodSecurity:
    """Applies the Pod Security Standards."""

    name = "PodSecurity"
    interests = (
        interest("create update", "pods"),
        interest("update", "pods", subresources="ephemeralcontainers"),
        interest("create update", *(f"{g}/{p}" if g else p for g, p in _TEMPLATES)),
        interest("create update", "namespaces"),
    )

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._namespaces = kind_of("", "namespaces")
        self._pods = kind_of("", "pods")

    async def validate(self, change: Change) -> None:
        """Refuse or warn."""
        if change.kind.plural == "namespaces":
            await self._namespace(change)
            return
        namespace = await self._lookup.get(self._namespaces, "", change.namespace)
        policies = levels.of(((namespace or {}).get("metadata") or {}).get("labels") or {})
        if all(p.level == "privileged" for p in policies):
            return
        if change.kind.plural == "pods":
            self._pod(change, policies)
        else:
            self._template(change, policies)

    def _pod(self, change: Change, policies: Policies) -> None:
        new = change.new or {}
        if change.old is not None and not change.subresource and not _matters(new, change.old):
            return
        spec, annotations = new.get("spec") or {}, new["metadata"].get("annotations") or {}
        audit.annotate(f"{levels.PREFIX}enforce-policy", str(policies.enforce))
        self._audit(policies.audit, spec, annotations)
        if broken := evaluate(policies.enforce, spec, annotations):
            listed = ", ".join(str(v) for v in broken)
            raise change.forbidden(f'violates PodSecurity "{policies.enforce}": {listed}')
        self._warn(change, policies.warn, spec, annotations)

    def _template(self, change: Change, policies: Policies) -> None:
        path = _TEMPLATES[change.kind.group, change.kind.plural]
        new, old = _at(change.new, path), _at(change.old, path)
        if not new or new == old:
            return
        annotations = (new.get("metadata") or {}).get("annotations") or {}
        self._audit(policies.audit, new.get("spec") or {}, annotations)
        self._warn(change, policies.warn, new.get("spec") or {}, annotations)

    @staticmethod
    def _audit(policy: Policy, spec: Document, annotations: Document) -> None:
        if broken := evaluate(policy, spec, annotations):
            listed = ", ".join(str(v) for v in broken)
            text = f'would violate PodSecurity "{policy}": {listed}'
            audit.annotate(f"{levels.PREFIX}audit-violations", text)

    @staticmethod
    def _warn(change: Change, policy: Policy, spec: Document, annotations: Document) -> None:
        if broken := evaluate(policy, spec, annotations):
            listed = ", ".join(str(v) for v in broken)
            change.warnings.append(f'would violate PodSecurity "{policy}": {listed}')

    async def _namespace(self, change: Change) -> None:
        labels = ((change.new or {}).get("metadata") or {}).get("labels") or {}
        before = ((change.old or {}).get("metadata") or {}).get("labels") or {}
        if labels == before:
            return
        wrong = levels.errors(labels)
        known = {str(e) for e in levels.errors(before)} if change.old is not None else set()
        if fresh := [e for e in wrong if str(e) not in known]:
            raise status.invalid("", "Namespace", change.name, fresh)
        enforce = levels.of(labels).enforce
        if change.old is not None and enforce != levels.of(before).enforce:
            change.warnings += await self.warnings_for(change.name, enforce)

    async def warnings_for(self, namespace: str, policy: Policy) -> list[str]:
        """What to say about the pods a namespace has, pods of one reason in one line."""
        if policy.level == "privileged":
            return []
        pods = await self._lookup.list(self._pods, namespace)
        first: dict[str, str] = {}
        count: dict[str, int] = {}
        for pod in pods[:MAX_PODS_CHECKED]:
            annotations = pod["metadata"].get("annotations") or {}
            broken = evaluate(policy, pod.get("spec") or {}, annotations)
            if broken:
                reasons = ", ".join(v.reason for v in broken)
                first.setdefault(reasons, str(pod["metadata"]["name"]))
                count[reasons] = count.get(reasons, 0) + 1
        warnings = []
        if len(pods) > MAX_PODS_CHECKED:
            warnings.append(
                "new PodSecurity enforce level only checked against the first "
                f"{MAX_PODS_CHECKED} of {len(pods)} existing pods"
            )
        if first:
            warnings.append(
                f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce '
                f'level "{policy}"'
            )
        return warnings + sorted(
            f"{name}{_others(count[reasons] - 1)}: {reasons}" for reasons, name in first.items()
        )


def _others(count: int) -> str:
    if not count:
        return ""
    return " (and 1 other pod)" if count == 1 else f" (and {count} other pods)"


def _at(found: Document | None, path: tuple[str, ...]) -> Document:
    for part in path:
        found = (found or {}).get(part)
    return found or {}


def _matters(new: Document, old: Document) -> bool:
    """Whether an update touches what the rules look at: only then it is judged again."""
    if new.get("spec") != old.get("spec"):
        return True
    return (new["metadata"].get("annotations") or {}) != (old["metadata"].get("annotations") or {})
