"""Details of containers and volumes, looked at from inside, and the documents' own manifests."""

import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from motley.ops import images

from .conftest import BUSYBOX, NODE, POD_MAX_PIDS, eventually

pytestmark = pytest.mark.root

EXAMPLES = Path(__file__).parents[2] / "examples"
MOTLEY = [sys.executable, "-m", "motley.cli.main"]
SLEEP = ["sleep", "1000"]


def container(name, *command, **more):
    return {"name": name, "image": BUSYBOX, "command": list(command or SLEEP), **more}


def inside(rig, pod, name, script):
    return rig.kubectl("exec", pod, "-c", name, "--", "sh", "-c", script)


def delete(rig, *names, where=()):
    """Nobody waits for it: names are used once, and the last test of all looks for leftovers."""
    rig.kubectl("delete", "pod", *names, "--wait=false", *where)


def ids(status):
    return [c["containerID"].removeprefix("containerd://") for c in status["containerStatuses"]]


# -- runtimes -------------------------------------------------------------------------------


def test_a_runtime_class_chooses_the_runtimes_handler(rig):
    for name, handler in (("second", "other"), ("unknown", "no-such-handler")):
        rig.create(
            {
                "apiVersion": "node.k8s.io/v1",
                "kind": "RuntimeClass",
                "metadata": {"name": name},
                "handler": handler,
            }
        )
    rig.pod("ordinary", *SLEEP)
    rig.pod("special", *SLEEP, pod_spec={"runtimeClassName": "second"})
    rig.pod("classless", *SLEEP, pod_spec={"runtimeClassName": "unknown"})
    states = rig.other_runc / "k8s.io"
    (special,) = ids(rig.until_ready("special"))
    assert (states / special).is_dir()
    (plain,) = ids(rig.until_ready("ordinary"))
    assert not (states / plain).exists()

    def told():
        return rig.kubectl("get", "events", "--field-selector=involvedObject.name=classless")

    eventually(lambda: 'no runtime for "no-such-handler" is configured' in told())
    rig.kubectl("delete", "runtimeclass", "second", "unknown")
    eventually(lambda: 'RuntimeClass "unknown" not found' in told())
    assert rig.exec("special", "echo", "still here") == "still here\n"
    delete(rig, "ordinary", "special", "classless")
    eventually(lambda: not list(states.iterdir()))


# -- what a process may do ------------------------------------------------------------------


def test_privileges_are_what_each_container_was_given(rig):
    free = {
        "seccompProfile": {"type": "Unconfined"},
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN"]},
    }
    spec = {
        "securityContext": {
            "supplementalGroups": [4001, 4002],
            "seccompProfile": {"type": "RuntimeDefault"},
            "sysctls": [
                {"name": "net.ipv4.ip_local_port_range", "value": "4000 4999"},
                {"name": "kernel.msgmax", "value": "4096"},
            ],
        },
        "containers": [
            container("guarded", workingDir="/var/tmp"),
            container("free", securityContext=free),
        ],
    }
    rig.pod("rights", pod_spec=spec)
    rig.pod(
        "greedy", pod_spec={"securityContext": {"sysctls": [{"name": "kernel.sem", "value": "1"}]}}
    )
    rig.until_ready("rights")
    script = """
        pwd; id -G; cat /proc/sys/net/ipv4/ip_local_port_range /proc/sys/kernel/msgmax
        grep Seccomp: /proc/self/status; touch x; chown 1 x 2>/dev/null && echo mine || echo no
        ip link set lo down 2>/dev/null && echo down || echo no
    """
    said = inside(rig, "rights", "guarded", script).split()
    assert said[0] == "/var/tmp"
    assert {"4001", "4002"} <= set(said)
    assert said[-7:] == ["4000", "4999", "4096", "Seccomp:", "2", "mine", "no"]
    said = inside(rig, "rights", "free", script).split()
    assert said[-4:] == ["Seccomp:", "0", "no", "down"]
    refused = rig.until_phase("greedy", "Failed")
    assert refused["reason"] == "SysctlForbidden"
    assert 'forbidden sysctl: "kernel.sem" not allowlisted' in refused["message"]
    delete(rig, "rights", "greedy")


def test_namespaces_and_names_of_the_node_are_shared_only_by_wish(rig):
    script = "for n in pid ipc net uts; do readlink /proc/self/ns/$n; done; cat /etc/resolv.conf"
    host = [os.readlink(f"/proc/self/ns/{kind}") for kind in ("pid", "ipc")]
    dns = {
        "dnsPolicy": "None",
        "dnsConfig": {
            "nameservers": ["192.0.2.53"],
            "searches": ["example.org"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "rotate"}],
        },
    }
    rig.pod("open", *SLEEP, pod_spec={"hostPID": True, "hostIPC": True, "dnsPolicy": "Default"})
    rig.pod("closed", *SLEEP, pod_spec=dns)
    rig.until_ready("open")
    shared = rig.exec("open", "sh", "-c", script).splitlines()
    assert shared[:2] == host
    given = Path("/etc/resolv.conf").read_text().split("nameserver")[1].split()[0]
    assert f"nameserver {given}" in shared
    assert "10.96.0.10" not in " ".join(shared)
    rig.until_ready("closed")
    own = rig.exec("closed", "sh", "-c", script).splitlines()
    assert not set(own[:4]) & set(shared[:4])
    assert own[4:] == [
        *("search example.org", "nameserver 192.0.2.53", "options ndots:2 rotate"),
    ]
    delete(rig, "open", "closed")


def test_a_pod_has_no_more_processes_than_allowed(rig):
    many = (
        f"i=0; while [ $i -lt {POD_MAX_PIDS + 20} ]; do sleep 5 >/dev/null 2>&1 & i=$((i+1)); done"
    )
    rig.pod("forks", *SLEEP)
    rig.until_ready("forks")
    uid = rig.get("pod", "forks")["metadata"]["uid"]
    group = f"{rig.cgroup_root}/besteffort/pod{uid}/pids.max"
    limits = [Path("/sys/fs/cgroup") / point / group for point in ("pids", ".")]
    limit = next(path for path in limits if path.exists())
    assert limit.read_text().strip() == str(POD_MAX_PIDS)
    assert "can't fork" in rig.exec("forks", "sh", "-c", f"({many}) 2>&1; true")
    delete(rig, "forks")


def test_last_words_come_from_where_the_container_says(rig):
    once = {"restartPolicy": "Never"}
    rig.pod(
        "logged",
        *("sh", "-c", "echo first; echo the reason; exit 3"),
        pod_spec=once,
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    rig.pod(
        "written",
        *("sh", "-c", "echo not this; echo from the file > /tmp/last; exit 3"),
        pod_spec=once,
        terminationMessagePath="/tmp/last",
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    rig.pod(
        "content",
        *("sh", "-c", "echo all is well"),
        pod_spec=once,
        terminationMessagePolicy="FallbackToLogsOnError",
    )
    said = {}
    for name, phase in (("logged", "Failed"), ("written", "Failed"), ("content", "Succeeded")):
        status = rig.until_phase(name, phase)
        said[name] = status["containerStatuses"][0]["state"]["terminated"].get("message")
    assert said == {
        "logged": "first\nthe reason\n",
        "written": "from the file\n",
        "content": None,
    }
    delete(rig, *said)


# -- volumes --------------------------------------------------------------------------------


def test_files_have_their_modes_follow_their_objects_and_change_together(rig):
    rig.kubectl("create", "configmap", "pair", "--from-literal=a=1", "--from-literal=b=1")
    rig.kubectl("label", "configmap", "pair", "x=y")
    volumes = [
        {
            "name": "pair",
            "configMap": {
                "name": "pair",
                "defaultMode": 0o440,
                "items": [{"key": "a", "path": "x/a", "mode": 0o400}, {"key": "b", "path": "b"}],
            },
        },
        {"name": "perhaps", "secret": {"secretName": "not-there", "optional": True}},
        {
            "name": "about",
            "downwardAPI": {
                "items": [
                    {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
                    {
                        "path": "note",
                        "fieldRef": {"fieldPath": "metadata.annotations['note']"},
                    },
                    {
                        "path": "cpu",
                        "resourceFieldRef": {
                            "containerName": "main",
                            "resource": "limits.cpu",
                            "divisor": "1m",
                        },
                    },
                ]
            },
        },
        {"name": "data", "emptyDir": {}},
    ]
    mounts = [{"name": v["name"], "mountPath": f"/{v['name']}"} for v in volumes]
    mounts.append({"name": "data", "mountPath": "/own", "subPathExpr": "for/$(POD_NAME)"})
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "pair", "key": "a"}}},
    ]
    # Says `mixed` should the two files ever be of different versions.
    watch = """while cd -P /pair/..data 2>/dev/null; do
        a=$(cat x/a 2>/dev/null); b=$(cat b 2>/dev/null)  # nothing: just replaced
        [ -z "$a" ] || [ -z "$b" ] || [ "$a" = "$b" ] || echo mixed
    done"""
    rig.pod(
        "files",
        *("sh", "-c", watch),
        pod_spec={"volumes": volumes},
        volumeMounts=mounts,
        env=env,
        resources={"limits": {"cpu": "250m"}},
    )
    rig.until_ready("files")
    script = """
        stat -L -c %a /pair/x/a /pair/b; ls /perhaps | wc -l; cat /about/cpu; echo
        touch /own/here; ls /data/for; readlink /pair/..data
    """
    said = rig.exec("files", "sh", "-c", script).split()
    assert said[:5] == ["400", "440", "0", "250", "files"]
    rig.kubectl("patch", "configmap", "pair", "-p", json.dumps({"data": {"a": "2", "b": "2"}}))
    rig.kubectl("label", "pod", "files", "colour=green")
    rig.kubectl("annotate", "pod", "files", "note=well")
    rig.kubectl("create", "secret", "generic", "not-there", "--from-literal=k=now")
    eventually(lambda: rig.exec("files", "cat", "/pair/x/a", "/pair/b") == "22")
    eventually(lambda: 'colour="green"' in rig.exec("files", "cat", "/about/labels"))
    eventually(lambda: rig.exec("files", "cat", "/about/note") == "well")
    eventually(lambda: rig.exec("files", "cat", "/perhaps/k") == "now")
    now = rig.exec("files", "sh", "-c", "readlink /pair/..data; ls -d /pair/..2* | wc -l; echo $A")
    assert now.split()[0] != said[5]
    assert now.split()[1:] == ["1", "1"], "the old version is gone; a variable keeps its value"
    assert "mixed" not in rig.kubectl("logs", "files")
    delete(rig, "files")


def test_a_projected_token_is_the_pods_own_and_ends_with_it(rig):
    rig.kubectl("create", "serviceaccount", "robot")
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"serviceAccountToken": {"path": "vault", "expirationSeconds": 600, "audience": "vault"}},
    ]
    spec = {
        "serviceAccountName": "robot",
        "volumes": [{"name": "tokens", "projected": {"sources": sources, "defaultMode": 0o400}}],
    }
    rig.pod("robot", *SLEEP, pod_spec=spec, volumeMounts=[{"name": "tokens", "mountPath": "/t"}])
    rig.until_ready("robot")
    assert "tmpfs" in rig.exec("robot", "sh", "-c", "grep ' /t ' /proc/mounts")
    token, vault = (rig.exec("robot", "cat", f"/t/{name}") for name in ("token", "vault"))

    def who(text):
        server = ["--kubeconfig", "/dev/null", "--server", "https://127.0.0.1:6443"]
        server += ["--insecure-skip-tls-verify", "--token", text]
        return rig.run(rig.kubectl_program, *server, "auth", "whoami", check=False)

    assert "system:serviceaccount:default:robot" in who(token)
    assert "robot" not in who(vault), "it is for another audience"
    delete(rig, "robot")
    eventually(lambda: "robot" not in who(token))


# -- the documents' manifests ---------------------------------------------------------------


def manifest(path, image=BUSYBOX, command=None):
    """An example for this node, with an image that is here; what it asks for stays as it is."""
    pod = yaml.safe_load((EXAMPLES / path).read_text())
    pod["spec"] |= {"nodeName": NODE, "terminationGracePeriodSeconds": 1}
    for one in pod["spec"]["containers"]:
        one["image"] = image
        if command:
            one["command"] = command
    return pod


def test_the_log_sidecars_of_the_document_show_one_file_each(rig):
    rig.create(manifest("logging/sidecars.yaml"))
    rig.until_ready("counter")

    def logs(name):
        return rig.kubectl("logs", "counter", "-c", name).splitlines()

    eventually(lambda: len(logs("count-log-1")) > 1 and len(logs("count-log-2")) > 1)
    assert logs("count-log-1")[0].startswith("0: ")
    assert all("INFO" in line for line in logs("count-log-2"))
    assert not any("INFO" in line for line in logs("count-log-1"))
    assert logs("count") == []
    delete(rig, "counter")


def test_the_config_maps_of_the_document_reach_variables_and_files(rig):
    archives = images.ensure(rig.cache / "images", print, (images.NGINX,))
    images.Imports(rig.socket).ensure(archives)
    rig.kubectl("create", "-f", str(EXAMPLES / "configmap/fortune-config.yaml"))
    rig.kubectl(
        "create", "configmap", "my-config-map", "--from-literal=FOO=1", "--from-literal=B=2"
    )
    rig.create(
        manifest("configmap/volume-items.yaml", images.NGINX.reference),
        manifest("configmap/volume.yaml", images.NGINX.reference),
        manifest("configmap/env-from-configmap.yaml", command=SLEEP),
        manifest("configmap/env-from-all.yaml", command=SLEEP),
        manifest("configmap/env-reference.yaml", command=SLEEP),
    )
    web = "fortune-configmap-volume-with-items"
    rig.until_ready(web)
    request = r"\r\n".join(
        ("GET / HTTP/1.1", "Host: x", "Accept-Encoding: gzip", "Connection: close", "", "")
    )
    fetch = rf"printf '{request}' | nc 127.0.0.1 80 | grep -a ^Content"
    eventually(lambda: "Content-Encoding: gzip" in rig.exec(web, "sh", "-c", fetch))
    assert rig.exec(web, "ls", "/etc/nginx/conf.d") == "gzip.conf\n"
    rig.until_ready("fortune-configmap-volume")
    listed = rig.exec("fortune-configmap-volume", "ls", "/etc/nginx/conf.d").split()
    assert listed == ["my-nginx-config.conf", "sleep-interval"]
    for name, line in (
        ("fortune-env-from-configmap", "INTERVAL=25"),
        ("env-from-all", "CONFIG_FOO=1"),
        ("env-reference", "SECOND_VAR=foobar"),
    ):
        rig.until_ready(name)
        assert line in rig.exec(name, "env").splitlines()
    names = (web, "fortune-configmap-volume", "fortune-env-from-configmap")
    delete(rig, *names, "env-from-all", "env-reference")


def test_the_pods_of_minik8s_end_share_and_restart_as_they_say(rig, tmp_path):
    ends = manifest("minik8s/pod.yaml")
    ends["spec"]["containers"][0]["command"] = ["sh", "-c", 'test "$_NOTICE" = 1']
    ends["spec"]["containers"][1]["args"] = ["0.5"]
    shares = manifest("minik8s/pod-volume.yaml")
    writer, reader = shares["spec"]["containers"]
    writer["command"] = ["sh", "-c", "echo word > /share/.new; mv /share/.new /share/file"]
    reader["command"] = ["sh", "-c", "until cat /share/file; do sleep 0.1; done"]
    files = []
    for pod in (ends, shares):
        pod["spec"]["automountServiceAccountToken"] = False
        file = tmp_path / f"{pod['metadata']['name']}.yaml"
        file.write_text(yaml.safe_dump(pod))
        files += ["-f", str(file)]
    rig.run(*MOTLEY, "apply", "--compat", "minik8s", "--kubeconfig", rig.kubeconfig, *files)
    ended = rig.until_phase("succeed-failure", "Succeeded")
    assert [c["restartCount"] for c in ended["containerStatuses"]] == [0, 0]
    assert rig.get("pod", "succeed-failure")["spec"]["restartPolicy"] == "OnFailure"
    rig.until_phase("arg-volume-test", "Succeeded")
    assert "word" in rig.kubectl("logs", "arg-volume-test", "-c", "debug-server-read")
    delete(rig, "succeed-failure", "arg-volume-test")


def test_the_qos_examples_are_ordered_by_the_kernel(rig):
    rig.kubectl("create", "-f", str(EXAMPLES / "qos/namespace.yaml"))
    names = {"guaranteed": "qos-demo", "burstable": "qos-demo-2", "besteffort": "qos-demo-3"}
    rig.create(*(manifest(f"qos/{kind}.yaml", command=SLEEP) for kind in names))
    scores, groups = {}, {}
    for kind, name in names.items():
        space = ("-n", "qos-example")
        rig.kubectl("wait", f"pod/{name}", *space, "--for=condition=Ready", "--timeout=60s")
        pod = rig.get("pod", name, *space)
        assert pod["status"]["qosClass"].lower() == kind
        process = rig.pid(ids(pod["status"])[0])
        scores[kind] = int(Path(f"/proc/{process}/oom_score_adj").read_text())
        groups[kind] = Path(f"/proc/{process}/cgroup").read_text()
    assert scores["guaranteed"] < scores["burstable"] < scores["besteffort"] == 1000
    assert f"/{rig.cgroup_root}/burstable/pod" in groups["burstable"]
    assert f"/{rig.cgroup_root}/besteffort/pod" in groups["besteffort"]
    assert f"/{rig.cgroup_root}/pod" in groups["guaranteed"]
    delete(rig, *names.values(), where=space)
