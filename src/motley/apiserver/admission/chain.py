"""The plugins of a server, in kube-apiserver's order.

Order matters: a plugin sees what those before it made of the object, and of two refusals the
earlier one is told.
"""

from collections.abc import Collection, Sequence
from random import Random
from typing import Any

from motley.apiserver.admission import Admission
from motley.apiserver.admission.ingressclass import DefaultIngressClass
from motley.apiserver.admission.limitranger import LimitRanger
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.namespaces import NamespaceLifecycle
from motley.apiserver.admission.podsecurity.plugin import PodSecurity
from motley.apiserver.admission.policy.authorizer import Decides
from motley.apiserver.admission.policy.mutating import MutatingAdmissionPolicy
from motley.apiserver.admission.policy.validating import ValidatingAdmissionPolicy
from motley.apiserver.admission.priority import Priority
from motley.apiserver.admission.qosclass import QosClass
from motley.apiserver.admission.resourcequota import ResourceQuota
from motley.apiserver.admission.runtimeclass import RuntimeClass
from motley.apiserver.admission.serviceaccount import ServiceAccount
from motley.apiserver.admission.storage import (
    DefaultStorageClass,
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
)
from motley.apiserver.admission.taintnodes import TaintNodesByCondition
from motley.apiserver.admission.tolerationseconds import DefaultTolerationSeconds
from motley.apiserver.admission.verticalautoscaler import VerticalPodAutoscaler
from motley.apiserver.admission.webhook.caller import Caller, session
from motley.apiserver.admission.webhook.plugins import (
    MutatingAdmissionWebhook,
    ValidatingAdmissionWebhook,
)
from motley.apiserver.authz.restriction import NodeRestriction
from motley.apiserver.authz.signers import (
    CertificateApproval,
    CertificateSigning,
    CertificateSubjectRestriction,
    ClusterTrustBundleAttest,
)

NAMES = (
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "NodeRestriction",
    "TaintNodesByCondition",
    "PodSecurity",
    "Priority",
    "DefaultTolerationSeconds",
    "DefaultStorageClass",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "RuntimeClass",
    "CertificateApproval",
    "CertificateSigning",
    "ClusterTrustBundleAttest",
    "CertificateSubjectRestriction",
    "DefaultIngressClass",
    "VerticalPodAutoscaler",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
)


def build(
    lookup: Lookup,
    rng: Random,
    *,
    first: Sequence[Any] = (),
    allocators: Sequence[Any] = (),
    disabled: Collection[str] = (),
    mount_token: bool = True,
    authorizer: Decides | None = None,
) -> Admission:
    """The chain; `disabled` names plugins to leave out, and must know them.

    Those in `first` are no matter of choice and come before all others. `authorizer` answers what
    conditions and policies ask about rights.
    """
    if unknown := set(disabled) - set(NAMES):
        raise ValueError(f"unknown admission plugins: {', '.join(sorted(unknown))}")
    caller = Caller(lookup, session)
    plugins = (
        NamespaceLifecycle(lookup),
        LimitRanger(lookup),
        ServiceAccount(lookup, rng, mount_token=mount_token),
        NodeRestriction(lookup, authorizer),
        TaintNodesByCondition(),
        PodSecurity(lookup),
        Priority(lookup),
        DefaultTolerationSeconds(),
        DefaultStorageClass(lookup),
        StorageObjectInUseProtection(),
        PersistentVolumeClaimResize(lookup),
        RuntimeClass(lookup),
        CertificateApproval(authorizer),
        CertificateSigning(authorizer),
        ClusterTrustBundleAttest(authorizer),
        CertificateSubjectRestriction(),
        DefaultIngressClass(lookup),
        VerticalPodAutoscaler(lookup),
        MutatingAdmissionPolicy(lookup, authorizer),
        MutatingAdmissionWebhook(lookup, caller, rng, authorizer),
        ValidatingAdmissionPolicy(lookup, authorizer),
        ValidatingAdmissionWebhook(lookup, caller, rng, authorizer),
        ResourceQuota(lookup),
    )
    chosen = [plugin for plugin in plugins if plugin.name not in disabled]
    return Admission(
        [*first, *chosen], [QosClass(), *allocators], close=caller.aclose, wrote=lookup.wrote
    )
