"""Claims on a real node: what a pod writes into one is on the node's disk and stays there."""

import json

import pytest

from .conftest import NODE, eventually

pytestmark = pytest.mark.root


def bound(rig, name, source, **spec):
    """A claim and a volume that are each other's; nobody binds here but us."""
    size = {"storage": "1Gi"}
    rig.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": size},
                "storageClassName": "",
                "volumeName": f"v-{name}",
            },
        }
    )
    claim = rig.get("pvc", name)["metadata"]
    reference = {"namespace": "default", "name": name, "uid": claim["uid"]}
    rig.create(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"v-{name}", **spec.pop("metadata", {})},
            "spec": {
                "capacity": size,
                "accessModes": ["ReadWriteOnce"],
                "claimRef": reference,
                **source,
                **spec,
            },
        }
    )


def say_bound(rig, name):
    state = json.dumps({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}})
    rig.kubectl("patch", "pvc", name, "--subresource=status", "--type=merge", "-p", state)


def using(name, **source):
    claim = {"claimName": name, **source}
    return {
        "pod_spec": {"volumes": [{"name": "data", "persistentVolumeClaim": claim}]},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }


def forget(rig, *names):
    for name in names:
        for kind, called in (("pvc", name), ("pv", f"v-{name}")):
            patch = '{"metadata":{"finalizers":null}}'
            rig.kubectl("patch", kind, called, "--type=merge", "-p", patch)
            rig.kubectl("delete", kind, called, "--ignore-not-found")


def on(*nodes):
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    terms = [{"matchExpressions": [expression]}]
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}}


def test_what_is_written_into_a_claim_outlives_the_pod(rig):
    directory = rig.root / "volumes" / "kept"
    source = {"hostPath": {"path": str(directory), "type": "DirectoryOrCreate"}}
    provisioned = {"annotations": {"pv.kubernetes.io/provisioned-by": "motley.io/local-path"}}
    bound(rig, "kept", source, metadata=provisioned, **on(NODE))
    script = "echo hello > /data/word; sleep 1000"
    # Whoever the pod runs as, a volume made for its claim can be written to.
    pod = using("kept")
    pod["pod_spec"]["securityContext"] = {"runAsUser": 1234, "fsGroup": 4321}
    rig.pod("writer", "sh", "-c", script, **pod)
    eventually(lambda: "is not bound" in rig.kubectl("describe", "pod", "writer"))
    assert not directory.exists()
    say_bound(rig, "kept")
    rig.until_ready("writer")
    eventually(lambda: (directory / "word").read_text() == "hello\n")
    assert (directory.stat().st_gid, directory.stat().st_mode & 0o7777) == (4321, 0o2775)
    rig.delete("writer")
    assert (directory / "word").read_text() == "hello\n"
    rig.pod("reader", "cat", "/data/word", **_once(using("kept", readOnly=True)))
    rig.until_phase("reader", "Succeeded")
    assert rig.kubectl("logs", "reader") == "hello\n"
    rig.delete("reader")
    rig.pod("refused", "touch", "/data/no", **_once(using("kept", readOnly=True)))
    rig.until_phase("refused", "Failed")
    rig.delete("refused")
    assert sorted(p.name for p in directory.iterdir()) == ["word"]
    eventually(lambda: not rig.leftovers()["mounts"])
    forget(rig, "kept")


def test_a_container_of_a_claim_restarts_under_a_new_agent(rig):
    directory = rig.root / "volumes" / "again"
    directory.mkdir(parents=True)
    bound(rig, "again", {"local": {"path": str(directory)}}, **on(NODE))
    say_bound(rig, "again")
    script = "echo x >> /data/starts; until rm /data/end 2>/dev/null; do sleep 0.1; done; exit 1"
    rig.pod("counts", "sh", "-c", script, **using("again"))
    eventually(lambda: (directory / "starts").exists())
    rig.end("node")
    rig.start_agent()
    (directory / "end").touch()
    eventually(lambda: (directory / "starts").read_text().count("x") == 2)
    rig.delete("counts", "--force", "--grace-period=0")
    eventually(lambda: not rig.leftovers()["mounts"])
    assert (directory / "starts").exists()
    forget(rig, "again")


def test_a_volume_of_another_node_or_another_claim_is_not_mounted(rig):
    directory = rig.root / "volumes" / "elsewhere"
    directory.mkdir(parents=True)
    bound(rig, "elsewhere", {"local": {"path": str(directory)}}, **on("node-9"))
    say_bound(rig, "elsewhere")
    rig.pod("lost", "sleep", "1000", **using("elsewhere"))
    eventually(lambda: "is not on this node" in rig.kubectl("describe", "pod", "lost"))
    rig.delete("lost", "--force", "--grace-period=0")
    bound(rig, "stolen", {"local": {"path": str(directory)}}, **on(NODE))
    say_bound(rig, "stolen")
    change = '{"spec":{"claimRef":{"uid":"another"}}}'
    rig.kubectl("patch", "pv", "v-stolen", "--type=merge", "-p", change)
    rig.pod("thief", "sleep", "1000", **using("stolen"))
    eventually(lambda: 'is not bound to claim "stolen"' in rig.kubectl("describe", "pod", "thief"))
    rig.delete("thief", "--force", "--grace-period=0")
    forget(rig, "elsewhere", "stolen")


def _once(pod):
    pod["pod_spec"]["restartPolicy"] = "Never"
    return pod
