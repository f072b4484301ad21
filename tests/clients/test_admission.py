"""Admission as kubectl's users meet it: a server process, real certificates, real refusals."""

import json

import pytest


def apply(kubectl, document, *options, fails=False):
    return kubectl("apply", "-f", "-", *options, stdin=json.dumps(document), fails=fails)


def pod(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "nginx"}], **spec},
    }


def test_limits_of_a_namespace_fill_in_and_hold(kubectl):
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "500m"},
            "defaultRequest": {"cpu": "100m"},
            "max": {"cpu": "1"},
        }
    ]
    kind = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "lr"}}
    apply(kubectl, {**kind, "spec": {"limits": limits}})
    apply(kubectl, pod("small"))
    greedy = pod("greedy")
    greedy["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "2"}}

    shown = kubectl("get", "pod", "small", "-o", "jsonpath={.spec.containers[0].resources}").json
    refused = apply(kubectl, greedy, fails=True)

    assert shown == {"limits": {"cpu": "500m"}, "requests": {"cpu": "100m"}}
    assert (
        'pods "greedy" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    ) in refused.err


def test_pod_security_warns_and_refuses(kubectl):
    prefix = "pod-security.kubernetes.io"
    labels = [f"{prefix}/enforce=baseline", f"{prefix}/warn=restricted"]
    kubectl("label", "namespace", kubectl.namespace, *labels)

    warned = apply(kubectl, pod("plain"))
    refused = apply(kubectl, pod("host", hostNetwork=True), fails=True)

    assert 'Warning: would violate PodSecurity "restricted:latest"' in warned.err
    assert (
        'violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)' in refused.err
    )


def test_a_policy_in_cel_refuses_and_can_be_taken_back(kubectl):
    name = f"no-latest-{kubectl.namespace}"
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = "object.spec.template.spec.containers.all(c, !c.image.endsWith(':latest'))"
    group = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy = {
        **group,
        "kind": "ValidatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": expression, "message": "pin your images"}],
        },
    }
    selector = {"matchLabels": {"kubernetes.io/metadata.name": kubectl.namespace}}
    binding = {
        **group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "spec": {
            "policyName": name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        },
    }
    apply(kubectl, policy)
    apply(kubectl, binding)

    refused = kubectl("create", "deployment", "web", "--image", "nginx:latest", fails=True)
    kubectl("create", "deployment", "web", "--image", "nginx:1.27")
    kubectl("delete", "validatingadmissionpolicybinding", name)
    kubectl("create", "deployment", "other", "--image", "nginx:latest")

    assert f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: pin" in (
        refused.err
    )


def test_a_server_side_dry_run_shows_what_admission_would_make(kubectl):
    shown = apply(kubectl, pod("dry"), "--dry-run=server", "-o", "json").json

    assert shown["spec"]["priority"] == 0
    assert shown["spec"]["serviceAccountName"] == "default"
    assert len(shown["spec"]["tolerations"]) == 2


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_some_namespaces_are_immortal(kubectl, name):
    assert "this namespace may not be deleted" in kubectl("delete", "ns", name, fails=True).err


def test_system_priority_classes_are_there_and_stay(kubectl):
    shown = kubectl("get", "priorityclass", "-o", "name").out

    assert "system-cluster-critical" in shown
    assert "system-node-critical" in shown
    refused = kubectl("delete", "priorityclass", "system-node-critical", fails=True)
    assert "this is a system priority class and cannot be deleted" in refused.err
