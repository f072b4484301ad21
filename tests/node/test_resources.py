"""Limits, environment, volumes and security: each looked at where it takes effect."""

import json
from pathlib import Path

import pytest

from .conftest import BUSYBOX, eventually

pytestmark = pytest.mark.root


def test_cpu_and_memory_limits_reach_the_kernel(rig):
    resources = {
        "requests": {"cpu": "100m", "memory": "16Mi"},
        "limits": {"cpu": "200m", "memory": "32Mi"},
    }
    rig.pod("limited", "sleep", "1000", resources=resources)
    rig.until_ready("limited")
    pod = rig.get("pod", "limited")
    uid = pod["metadata"]["uid"]
    container = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        assert rig.cgroup_file(uid, container, ".", "cpu.max") == "20000 100000"
        assert rig.cgroup_file(uid, container, ".", "memory.max") == str(32 << 20)
    else:
        assert rig.cgroup_file(uid, container, "cpu", "cpu.cfs_quota_us") == "20000"
        assert rig.cgroup_file(uid, container, "cpu", "cpu.shares") == "102"
        assert rig.cgroup_file(uid, container, "memory", "memory.limit_in_bytes") == str(32 << 20)
        above = Path(f"/sys/fs/cgroup/cpu/{rig.cgroup_root}/burstable/pod{uid}")
        assert (above / "cpu.cfs_quota_us").read_text().strip() == "20000"
    assert int(Path(f"/proc/{rig.pid(container)}/oom_score_adj").read_text()) > 900
    rig.delete("limited")


def test_a_container_over_its_memory_is_oom_killed(rig):
    eater = "x=a; while true; do x=$x$x; done"
    rig.pod(
        "glutton",
        *("sh", "-c", eater),
        pod_spec={"restartPolicy": "Never"},
        resources={"limits": {"memory": "24Mi"}},
    )
    status = rig.until_phase("glutton", "Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["reason"], ended["exitCode"]) == ("OOMKilled", 137)
    rig.delete("glutton")


def test_environment_comes_from_everywhere_and_is_expanded(rig):
    rig.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "settings"},
            "data": {"level": "high", "1st": "x"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "hidden"},
            "stringData": {"password": "sesame"},
        },
    )
    env = [
        {"name": "FIRST", "value": "one"},
        {"name": "SECOND", "value": "$(FIRST) and $(UNKNOWN) and $$(FIRST)"},
        {
            "name": "LEVEL",
            "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "level"}},
        },
        {
            "name": "PASSWORD",
            "valueFrom": {"secretKeyRef": {"name": "hidden", "key": "password"}},
        },
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {
            "name": "CPU",
            "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}},
        },
    ]
    rig.pod(
        "talker",
        *("sh", "-c", "env; echo arg=$0; sleep 1000", "$(FIRST)!"),
        env=env,
        envFrom=[
            {"configMapRef": {"name": "settings"}},
            {"prefix": "CONFIG_", "configMapRef": {"name": "settings"}},
        ],
        resources={"limits": {"cpu": "250m"}},
    )
    status = rig.until_ready("talker")
    lines = rig.kubectl("logs", "talker").splitlines()
    assert "SECOND=one and $(UNKNOWN) and $(FIRST)" in lines
    assert "LEVEL=high" in lines
    assert "PASSWORD=sesame" in lines
    assert "CONFIG_level=high" in lines
    assert "CONFIG_1st=x" in lines
    assert not [line for line in lines if line.startswith("1st=")], "no shell could name it"
    assert f"POD_IP={status['podIP']}" in lines
    assert "CPU=250" in lines
    assert "KUBERNETES_SERVICE_HOST=10.96.0.1" in lines
    assert "arg=one!" in lines
    rig.delete("talker")


def test_a_missing_configmap_keeps_a_container_waiting_until_it_appears(rig):
    source = {"configMapKeyRef": {"name": "late", "key": "word"}}
    rig.pod("patient", "sleep", "1000", env=[{"name": "WORD", "valueFrom": source}])

    def reason():
        return rig.container("patient")["state"].get("waiting", {}).get("reason")

    eventually(lambda: reason() == "CreateContainerConfigError")
    rig.kubectl("create", "configmap", "late", "--from-literal=word=now")
    rig.until_ready("patient")
    assert "WORD=now" in rig.exec("patient", "env")
    rig.delete("patient")


def test_a_mounted_configmap_follows_its_object(rig):
    rig.kubectl("create", "configmap", "page", "--from-literal=a.txt=old", "--from-literal=b=2")
    volume = {
        "name": "page",
        "configMap": {"name": "page", "items": [{"key": "a.txt", "path": "sub/a.txt"}]},
    }
    rig.pod(
        "reader",
        *("sleep", "1000"),
        pod_spec={"volumes": [volume]},
        volumeMounts=[{"name": "page", "mountPath": "/page", "readOnly": True}],
    )
    rig.until_ready("reader")
    assert rig.exec("reader", "cat", "/page/sub/a.txt") == "old"
    assert rig.exec("reader", "ls", "/page").split() == ["sub"]
    rig.kubectl("patch", "configmap", "page", "-p", json.dumps({"data": {"a.txt": "new"}}))
    eventually(lambda: rig.exec("reader", "cat", "/page/sub/a.txt") == "new")
    rig.delete("reader")


def test_volumes_of_every_kind_are_mounted_as_asked(rig):
    rig.kubectl("create", "secret", "generic", "keys", "--from-literal=key=opensesame")
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {
            "name": "about",
            "downwardAPI": {
                "items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]
            },
        },
        {"name": "all", "projected": {"sources": [{"secret": {"name": "keys"}}]}},
    ]
    mounts = [
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "scratch", "mountPath": "/part", "subPath": "deep/part"},
        {"name": "scratch", "mountPath": "/fixed", "readOnly": True},
        {"name": "keys", "mountPath": "/keys"},
        {"name": "keys", "mountPath": "/etc/one-key", "subPath": "key"},
        {"name": "about", "mountPath": "/about"},
        {"name": "all", "mountPath": "/all"},
    ]
    rig.pod("mounted", "sleep", "1000", pod_spec={"volumes": volumes}, volumeMounts=mounts)
    rig.until_ready("mounted")
    script = """
        echo part > /part/file && cat /scratch/deep/part/file
        echo no > /fixed/file 2>/dev/null || echo read-only
        cat /keys/key; echo; stat -L -c %a /keys/key
        cat /etc/one-key; echo
        cat /about/name; echo
        cat /all/key; echo
        touch /keys/x 2>/dev/null || echo read-only
    """
    said = rig.exec("mounted", "sh", "-c", script).split()
    assert said == [
        *("part", "read-only", "opensesame", "400", "opensesame", "mounted", "opensesame"),
        "read-only",
    ]
    rig.delete("mounted")


def test_names_and_hosts_inside_a_pod(rig):
    spec = {
        "hostname": "alice",
        "subdomain": "wonder",
        "hostAliases": [{"ip": "10.1.2.3", "hostnames": ["foo.local", "bar.local"]}],
    }
    rig.pod("named", "sleep", "1000", pod_spec=spec)
    status = rig.until_ready("named")
    assert rig.exec("named", "hostname") == "alice\n"
    resolv = rig.exec("named", "cat", "/etc/resolv.conf")
    assert "nameserver 10.96.0.10" in resolv
    assert "search default.svc.cluster.local svc.cluster.local cluster.local" in resolv
    assert "ndots:5" in resolv
    hosts = rig.exec("named", "cat", "/etc/hosts")
    assert f"{status['podIP']}\talice.wonder.default.svc.cluster.local\talice" in hosts
    assert "10.1.2.3\tfoo.local\tbar.local" in hosts
    rig.delete("named")


def test_security_contexts_take_effect(rig):
    context = {
        "runAsUser": 1000,
        "runAsGroup": 2000,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec = {
        "securityContext": {"fsGroup": 3000},
        "volumes": [{"name": "shared", "emptyDir": {}}],
    }
    rig.pod(
        "confined",
        *("sleep", "1000"),
        pod_spec=spec,
        securityContext=context,
        volumeMounts=[{"name": "shared", "mountPath": "/shared"}],
    )
    rig.pod("boss", "sleep", "1000", securityContext={"privileged": True})
    rig.until_ready("confined")
    script = """
        id -u; id -g; id -G
        touch /x 2>/dev/null || echo read-only
        touch /shared/x && stat -c %g /shared/x
        grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status | tr -s '\\t\\n' ' '
    """
    said = rig.exec("confined", "sh", "-c", script).splitlines()
    assert said[:2] == ["1000", "2000"]
    assert "3000" in said[2].split()
    assert said[3:5] == ["read-only", "3000"]
    assert said[5].strip() == "CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2"
    rig.until_ready("boss")
    assert "Seccomp:\t0" in rig.exec("boss", "cat", "/proc/self/status")
    rig.delete("confined")
    rig.delete("boss")


def test_containers_of_a_pod_share_localhost_and_by_wish_processes(rig):
    server = {
        "name": "server",
        "image": BUSYBOX,
        "command": ["sh", "-c", "mkdir /www; echo hi > /www/index.html; httpd -f -p 8080 -h /www"],
    }
    client = {"name": "client", "image": BUSYBOX, "command": ["sleep", "1000"]}
    rig.pod("pair", pod_spec={"containers": [server, client], "shareProcessNamespace": True})
    rig.until_ready("pair")
    fetched = eventually(
        lambda: rig.kubectl(
            "exec", "pair", "-c", "client", "--", "wget", "-qO-", "http://127.0.0.1:8080/"
        )
    )
    assert fetched == "hi\n"
    assert "httpd" in rig.kubectl("exec", "pair", "-c", "client", "--", "ps")
    rig.delete("pair")


def test_a_host_network_pod_has_the_nodes_address(rig):
    rig.pod("wide", "sleep", "1000", pod_spec={"hostNetwork": True})
    status = rig.until_ready("wide")
    assert status["podIP"] == "10.77.0.1"
    assert "motley0" in rig.exec("wide", "ls", "/sys/class/net")
    rig.delete("wide")
