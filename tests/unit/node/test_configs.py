"""Pods as CRI messages."""

import pytest

from motley.api.views.pod import Pod
from motley.node import containerconfig, sandboxconfig
from motley.node.cri import cri_pb2 as cri
from motley.node.dnsconfig import Resolver
from motley.node.environment import ConfigError
from motley.node.model import RESTART_DELAY, SPEC_HASH
from motley.node.resources import LinuxLimits


def pod(container=None, **spec):
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "n", "uid": "u", "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "a", **(container or {})}], **spec},
        }
    )


def sandbox(wanted):
    return sandboxconfig.build(
        wanted, attempt=2, log_root="/logs", cgroup_parent="/g", resolver=Resolver(("1.1.1.1",))
    )


def container(wanted, **changes):
    given = {
        "attempt": 3,
        "restart_delay_s": 20.0,
        "image_ref": "sha256:1",
        "command": ["x"],
        "args": [],
        "variables": {"A": "ü"},
        "mounts": [],
        "limits": LinuxLimits(102, 20000, 4096, 900),
        "message_file": "/m",
        **changes,
    }
    return containerconfig.build(wanted, wanted.spec.containers[0], **given)


def test_a_sandbox_has_its_own_namespaces_and_says_container_for_pid():
    config = sandbox(pod())
    options = config.linux.security_context.namespace_options
    assert (options.network, options.pid, options.ipc) == (cri.POD, cri.CONTAINER, cri.POD)
    assert config.hostname == "p"
    assert config.log_directory == "/logs/n_p_u"
    assert config.labels["io.kubernetes.pod.uid"] == "u"
    assert config.labels["app"] == "web"
    assert config.metadata.attempt == 2


def test_host_namespaces_are_passed_on_and_leave_no_host_name():
    config = sandbox(pod(hostNetwork=True, hostPID=True, hostIPC=True))
    options = config.linux.security_context.namespace_options
    assert (options.network, options.pid, options.ipc) == (cri.NODE, cri.NODE, cri.NODE)
    assert config.hostname == ""


def test_a_shared_process_namespace_is_the_pods():
    config = sandbox(pod(shareProcessNamespace=True))
    assert config.linux.security_context.namespace_options.pid == cri.POD


def test_host_ports_become_mappings():
    ports = [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}, {"containerPort": 81}]
    (mapping,) = sandbox(pod({"ports": ports})).port_mappings
    assert (mapping.container_port, mapping.host_port, mapping.protocol) == (80, 8080, cri.UDP)


def test_a_privileged_container_needs_a_privileged_sandbox():
    config = sandbox(pod({"securityContext": {"privileged": True}}))
    assert config.linux.security_context.privileged


def test_a_container_carries_what_the_next_agent_must_know():
    wanted = pod()
    config = container(wanted)
    assert config.metadata.attempt == 3
    assert config.annotations[RESTART_DELAY] == "20"
    assert config.annotations[SPEC_HASH] == containerconfig.spec_hash(wanted.spec.containers[0])
    assert config.log_path == "c/3.log"
    assert [(e.key, e.value) for e in config.envs] == [("A", "ü".encode())]
    resources = config.linux.resources
    assert (resources.cpu_quota, resources.cpu_period) == (20000, 100000)
    assert resources.oom_score_adj == 900


def test_the_containers_security_wins_over_the_pods():
    wanted = pod(
        {"securityContext": {"runAsUser": 5, "allowPrivilegeEscalation": False}},
        securityContext={
            "runAsUser": 1,
            "runAsGroup": 2,
            "fsGroup": 3,
            "supplementalGroups": [4],
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    )
    security = container(wanted).linux.security_context
    assert security.run_as_user.value == 5
    assert security.run_as_group.value == 2
    assert list(security.supplemental_groups) == [4, 3]
    assert security.seccomp.profile_type == cri.SecurityProfile.RuntimeDefault
    assert security.no_new_privs
    assert "/proc/kcore" in security.masked_paths


def test_nothing_asked_means_no_user_and_no_seccomp():
    security = container(pod()).linux.security_context
    assert not security.HasField("run_as_user")
    assert security.seccomp.profile_type == cri.SecurityProfile.Unconfined


@pytest.mark.parametrize(
    ("context", "uid", "username", "message"),
    [
        ({}, 0, "", ""),
        ({"runAsNonRoot": True}, 0, "", "will run as root"),
        ({"runAsNonRoot": True}, None, "", "will run as root"),
        ({"runAsNonRoot": True}, None, "nobody", "non-numeric user"),
        ({"runAsNonRoot": True}, 1000, "", ""),
        ({"runAsNonRoot": True, "runAsUser": 7}, 0, "", ""),
        ({"runAsNonRoot": True, "runAsUser": 0}, 1000, "", "will run as root"),
    ],
)
def test_run_as_non_root_is_held(context, uid, username, message):
    wanted = pod({"securityContext": context})
    if not message:
        containerconfig.check_non_root(wanted, wanted.spec.containers[0], uid, username)
        return
    with pytest.raises(ConfigError, match=message):
        containerconfig.check_non_root(wanted, wanted.spec.containers[0], uid, username)


def test_only_name_and_image_make_a_new_container():
    first = pod().spec.containers[0]
    assert containerconfig.spec_hash(first) == containerconfig.spec_hash(
        pod({"env": [{"name": "A", "value": "1"}]}).spec.containers[0]
    )
    assert containerconfig.spec_hash(first) != containerconfig.spec_hash(
        pod({"image": "b"}).spec.containers[0]
    )
