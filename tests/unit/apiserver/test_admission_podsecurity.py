"""The Pod Security Standards, level by level."""

import pytest

from motley.apiserver.admission.podsecurity import levels
from motley.apiserver.admission.podsecurity.checks import evaluate
from motley.apiserver.admission.podsecurity.levels import LATEST, Policy

PREFIX = "pod-security.kubernetes.io"
CLEAN = {
    "containers": [
        {
            "name": "c",
            "image": "x",
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
    ],
    "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
}


def problems(level, minor=LATEST, annotations=None, **spec):
    merged = {"containers": [{"name": "c", "image": "x"}], **spec}
    return [str(v) for v in evaluate(Policy(level, minor), merged, annotations or {})]


def container(**context):
    return {"containers": [{"name": "c", "image": "x", "securityContext": context}]}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"hostNetwork": True, "hostPID": True},
            "host namespaces (hostNetwork=true, hostPID=true)",
        ),
        (
            container(privileged=True),
            'privileged (container "c" must not set securityContext.privileged=true)',
        ),
        ({"volumes": [{"name": "v", "hostPath": {}}]}, None),
        (
            {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]},
            'hostPath volumes (volume "v")',
        ),
        (
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            {"securityContext": {"seLinuxOptions": {"user": "x", "type": "bad"}}},
            "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: "
            'type "bad"; user may not be set)',
        ),
        (
            container(seccompProfile={"type": "Unconfined"}),
            'seccompProfile (container "c" must not set securityContext.seccompProfile.type to '
            '"Unconfined")',
        ),
        (
            container(appArmorProfile={"type": "Unconfined"}),
            'forbidden AppArmor profile (container "c" must not set AppArmor profile type to '
            '"Unconfined")',
        ),
        (
            container(capabilities={"add": ["SYS_TIME", "NET_ADMIN", "CHOWN"]}),
            'non-default capabilities (container "c" must not include "NET_ADMIN", "SYS_TIME" in '
            "securityContext.capabilities.add)",
        ),
        (
            container(windowsOptions={"hostProcess": True}),
            'hostProcess (container "c" must not set securityContext.windowsOptions.hostProcess'
            "=true)",
        ),
    ],
)
def test_baseline_forbids_known_escalations(spec, problem):
    assert problems("baseline", **spec) == ([problem] if problem else [])
    assert problems("privileged", **spec) == []


def test_host_ports_and_probed_hosts_are_named():
    ports = {"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}
    probing = {"name": "d", "livenessProbe": {"httpGet": {"host": "10.0.0.1", "port": 1}}}

    assert problems("baseline", containers=[ports, probing]) == [
        'hostPort (container "c" uses hostPort 80)',
        'probe or lifecycle host (container "d" uses probe or lifecycle host "10.0.0.1")',
    ]
    assert len(problems("baseline", minor=33, containers=[ports, probing])) == 1


def test_restricted_lists_everything_that_is_missing():
    assert problems("restricted") == [
        'allowPrivilegeEscalation != false (container "c" must set '
        "securityContext.allowPrivilegeEscalation=false)",
        'unrestricted capabilities (container "c" must set '
        'securityContext.capabilities.drop=["ALL"])',
        'runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true)',
        'seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to '
        '"RuntimeDefault" or "Localhost")',
    ]
    assert problems("restricted", **CLEAN) == []
    root = {**CLEAN, "securityContext": {**CLEAN["securityContext"], "runAsUser": 0}}
    assert problems("restricted", **root) == ["runAsUser=0 (pod must not set runAsUser=0)"]
    assert problems("restricted", minor=22, **root) == []


def test_users_of_their_own_relax_some_rules():
    own = {**container(procMount="Unmasked"), "hostUsers": False}

    assert problems("baseline", **own) == []
    assert [p.partition(" (")[0] for p in problems("restricted", **own)] == [
        "allowPrivilegeEscalation != false",
        "unrestricted capabilities",
        "procMount",
        "seccompProfile",
    ]
    assert problems("baseline", minor=34, **own)  # not before 1.35


def test_labels_are_read_and_checked():
    found = levels.of({f"{PREFIX}/enforce": "baseline", f"{PREFIX}/warn-version": "v1.24"})

    assert str(found.enforce) == "baseline:latest"
    assert str(found.warn) == "privileged:v1.24"
    assert levels.of({f"{PREFIX}/enforce": "typo"}).enforce.level == "restricted"
    wrong = levels.errors({f"{PREFIX}/enforce": "x", f"{PREFIX}/audit-version": "1.2"})
    assert [str(e) for e in wrong] == [
        f'metadata.labels[{PREFIX}/enforce]: Invalid value: "x": must be one of privileged, '
        "baseline, restricted",
        f'metadata.labels[{PREFIX}/audit-version]: Invalid value: "1.2": must be "latest" or '
        '"v1.x"',
    ]


async def label(api, **labels):
    marked = {f"{PREFIX}/{mode}": level for mode, level in labels.items()}
    return await api.patch("/api/v1/namespaces/demo", {"metadata": {"labels": marked}})


async def test_a_namespace_refuses_warns_and_lets_templates_pass(api, a_pod):
    assert (await label(api, enforce="baseline", warn="restricted")).code == 200

    refused = await api.create("/api/v1/namespaces/demo/pods", a_pod(hostNetwork=True))
    warned = await api.create("/api/v1/namespaces/demo/pods", a_pod())
    labels = {"app": "d"}
    template = {"metadata": {"labels": labels}, "spec": a_pod(hostNetwork=True)["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    deployment = {"metadata": {"name": "d"}, "spec": spec}
    templated = await api.create("/apis/apps/v1/namespaces/demo/deployments", deployment)

    assert refused.code == 403
    assert refused.message == (
        'pods "p" is forbidden: violates PodSecurity "baseline:latest": '
        "host namespaces (hostNetwork=true)"
    )
    assert warned.code == 201
    [warning] = warned.warnings
    assert 'would violate PodSecurity \\"restricted:latest\\"' in warning
    assert templated.code == 201
    assert "host namespaces" in templated.warnings[0]


async def test_raising_the_level_warns_about_pods_that_are_there(api, a_pod):
    for name in ("a", "b"):
        await api.create("/api/v1/namespaces/demo/pods", a_pod(name, hostPID=True))

    raised = await label(api, enforce="baseline")
    wrong = await label(api, enforce="bogus")

    assert [w.removeprefix("299 - ") for w in raised.warnings] == [
        '"existing pods in namespace \\"demo\\" violate the new PodSecurity enforce level '
        '\\"baseline:latest\\""',
        '"a (and 1 other pod): host namespaces"',
    ]
    assert wrong.code == 422
    assert wrong.json["details"]["causes"][0]["field"] == f"metadata.labels[{PREFIX}/enforce]"
