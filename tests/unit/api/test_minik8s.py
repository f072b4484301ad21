"""Minik8s' spellings, read as Kubernetes'."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.conversion import minik8s


def pod(**spec):
    return {"spec": {"containers": [{"name": "a", "image": "i"}], **spec}}


@pytest.mark.parametrize("meant", ["Always", "IfNotPresent", "Never"])
def test_pull_policies_have_another_name(meant):
    obj = pod(containers=[{"imagePullPolicy": f"Pull{meant}"}])

    said = minik8s.read_pods("pods", obj)

    assert obj["spec"]["containers"][0]["imagePullPolicy"] == meant
    assert said == [f'spec.containers[0].imagePullPolicy: "Pull{meant}" read as "{meant}"']


@pytest.mark.parametrize("meant", ["Always", "OnFailure", "Never"])
def test_restart_policies_have_another_name_in_templates_too(meant):
    obj = {"spec": {"template": {"spec": {"restartPolicy": f"Restart{meant}"}}}}

    said = minik8s.read_pods("replicasets", obj)

    assert obj["spec"]["template"]["spec"]["restartPolicy"] == meant
    assert said[0].startswith("spec.template.spec.restartPolicy: ")


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (True, "true"), (0.5, "0.5"), (-3, "-3")])
def test_a_variable_may_be_a_number_or_a_truth(value, text):
    obj = pod(initContainers=[{"env": [{"name": "x", "value": value}]}])

    said = minik8s.read_pods("pods", obj)

    assert obj["spec"]["initContainers"][0]["env"][0]["value"] == text
    assert said == [f'spec.initContainers[0].env[0].value: {text} read as "{text}"']


def test_mounts_of_volumes_that_nobody_declares_share_an_empty_one():
    mount = {"name": "share", "mountPath": "/s"}
    obj = pod(containers=[{"volumeMounts": [mount]}, {"volumeMounts": [mount]}])

    assert len(minik8s.read_pods("pods", obj)) == 1
    assert obj["spec"]["volumes"] == [{"name": "share", "emptyDir": {}}]


def test_with_some_volumes_declared_or_in_a_patch_a_missing_one_is_a_mistake():
    mounts = [{"volumeMounts": [{"name": "share", "mountPath": "/s"}]}]
    declared = pod(containers=mounts, volumes=[{"name": "other", "emptyDir": {}}])
    claimed = {
        "spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "share"}}],
            "template": pod(containers=mounts),
        }
    }

    assert minik8s.read_pods("pods", declared) == []
    assert minik8s.read_pods("statefulsets", claimed) == []
    assert minik8s.read_pods("pods", pod(containers=mounts), is_whole=False) == []


def test_an_affinity_without_a_topology_is_about_nodes():
    required, preferred = {"labelSelector": {}}, {"weight": 1, "podAffinityTerm": {}}
    obj = pod(
        affinity={
            "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [required]},
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [preferred]},
        }
    )

    assert len(minik8s.read_pods("pods", obj)) == 2
    assert required["topologyKey"] == "kubernetes.io/hostname"
    assert preferred["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"


def test_a_dns_becomes_a_route():
    dns = {
        "apiVersion": "v1",
        "kind": "DNS",
        "name": "test",
        "spec": {
            "serviceAddress": "10.8.0.1",
            "hostname": "a.b",
            "mappings": [
                {"address": "http://10.6.1.1:8080", "path": "/x"},
                {"address": "web", "path": "/y"},
                {"address": "web:99999999", "path": "/z"},
            ],
        },
    }

    minik8s.read_dns(dns)

    assert dns == {
        "apiVersion": "motley.io/v1",
        "kind": "Route",
        "metadata": {"name": "test"},
        "spec": {
            "address": "10.8.0.1",
            "host": "a.b",
            "paths": [
                {"path": "/x", "service": "10.6.1.1", "port": 8080},
                {"path": "/y", "service": "web", "port": 80},
                {"address": "web:99999999", "path": "/z"},
            ],
        },
    }


@pytest.mark.parametrize("path", ["C:\\cuda\\my sum.cu", "/home/me/my sum.cu"])
def test_a_gpu_job_becomes_a_slurm_job(path):
    job = {
        "apiVersion": "v1",
        "kind": "Job",
        "metadata": {"name": "sum"},
        "spec": {
            "cuFilePath": path,
            "resultFileName": "result",
            "resultFilePath": "/home/me",
            "args": {
                "numTasksPerNode": 1,
                "cpusPerTask": 2,
                "gpuResources": "gpu:2",
                "mail": {"type": "end", "userName": "albus_tan"},
            },
        },
    }

    minik8s.read_job(job)

    assert job["kind"] == "SlurmJob"
    assert job["spec"] == {
        "sourcePath": path,
        "build": "nvcc -O3 -o 'my sum' 'my sum.cu'",
        "command": "'./my sum'",
        "resultFileName": "result",
        "resultFilePath": "/home/me",
        "numTasksPerNode": 1,
        "cpusPerTask": 2,
        "gpuResources": 2,
        "mail": {"type": "end", "user": "albus_tan@sjtu.edu.cn"},
    }


def _records(values):
    fields = st.sampled_from(
        [
            "spec",
            "containers",
            "env",
            "value",
            "template",
            "affinity",
            "podAffinity",
            "restartPolicy",
            "name",
        ]
    )
    return st.dictionaries(fields, values, max_size=4)


_values = st.recursive(
    st.none() | st.text(max_size=5), lambda v: st.lists(v, max_size=3) | _records(v), max_leaves=10
)


@given(st.sampled_from(sorted(minik8s.POD_SPECS)), _records(_values))
def test_what_is_none_of_its_business_is_left_alone(plural, obj):
    before = deepcopy(obj)

    assert minik8s.read_pods(plural, obj) == []
    assert obj == before
