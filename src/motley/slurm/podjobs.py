"""Pods as Slurm jobs: pure.

A pod that was bound to a cluster's virtual node becomes a SlurmJob that belongs to it: its command
runs in a container of the site's own runtime (Apptainer, enroot, Podman), what it asks for becomes
what the job asks for, and what becomes of the job becomes the pod's status. What a Slurm cluster
cannot do for a pod is refused in words, never left out in silence.
"""

import math
from typing import Any

import msgspec

from motley.api import quantity
from motley.api.views.container import Container, EnvVar
from motley.api.views.pod import Pod
from motley.api.views.slurm import CANCELLED, COMPLETED, FAILED, RUNNING, SlurmJob
from motley.node import environment
from motley.slurm import runtimes

Document = dict[str, Any]

POD_LABEL = "motley.io/slurm-pod"
PARTITION = "motley.io/slurm-partition"  # annotation of a pod
GPU = "nvidia.com/gpu"
_RETRIES = 3  # of a pod that is to be restarted on failure


def refusal(pod: Pod, runtime: str) -> tuple[str, str] | None:
    """Why the pod cannot run there: a reason and words."""
    spec = pod.spec
    if not runtime:
        return (
            "NoContainerRuntime",
            "the Slurm cluster has neither Apptainer, Singularity nor enroot, and no other runtime"
            " is named in the SlurmCluster's spec.virtualNode.runtime: it cannot run images",
        )
    wrong = []
    if len(spec.containers) != 1 or spec.init_containers:
        wrong.append("it has more than one container")
    if spec.restart_policy == "Always":
        wrong.append("its restartPolicy is Always, and batch jobs end")
    token = "kube-api-access-"
    volumes = [v.name for v in spec.volumes if not v.name.startswith(token)]
    if volumes:
        wrong.append(f"it has volumes ({', '.join(volumes)})")
    container = spec.containers[0] if spec.containers else Container()
    if container.env_from or any(_value(e, pod) is None for e in container.env):
        wrong.append("its environment comes from other objects")
    wrong += runtimes.problems(_values(container, pod), runtime)
    return ("NotForSlurm", "; ".join(wrong)) if wrong else None


def job_of(pod: Pod, cluster: str, runtime: str) -> Document:
    """The SlurmJob that runs the pod."""
    meta, spec = pod.metadata, pod.spec
    container = spec.containers[0]
    wanted = {**container.resources.requests, **container.resources.limits}
    amounts = {name: quantity.parse(str(value)) for name, value in wanted.items()}
    job: Document = {
        "cluster": cluster,
        "command": _command(container, pod, runtime, gpus=int(amounts.get(GPU, 0))),
        "cpusPerTask": max(1, math.ceil(amounts.get("cpu", 1))),
        "gpuResources": int(amounts.get(GPU, 0)),
        "retries": _RETRIES if spec.restart_policy == "OnFailure" else 0,
    }
    if "memory" in amounts:
        job["memory"] = f"{math.ceil(amounts['memory'] / (1 << 20))}Mi"
    if spec.active_deadline_seconds:
        job["timeLimit"] = f"{math.ceil(spec.active_deadline_seconds / 60)}m"
    if partition := meta.annotations.get(PARTITION):
        job["partition"] = partition
    owner = {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    return {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {POD_LABEL: meta.uid},
            "ownerReferences": [owner],
        },
        "spec": job,
    }


def _command(container: Container, pod: Pod, runtime: str, *, gpus: int) -> str:
    meta = pod.metadata
    values = _values(container, pod)
    container = msgspec.structs.replace(
        container,
        command=environment.expand_all(container.command, values),
        args=environment.expand_all(container.args, values),
    )
    run = runtimes.command(container, values, runtime, name=meta.uid, gpus=gpus)
    return runtimes.noted(run, f"{meta.name}.out")


def _values(container: Container, pod: Pod) -> dict[str, str]:
    """The variables: each may refer to those before it, and of two by one name the last counts."""
    values: dict[str, str] = {}
    for variable in container.env:
        value = _value(variable, pod) or ""
        is_given = variable.value_from is None
        values[variable.name] = environment.expand(value, values) if is_given else value
    return values


def _value(variable: EnvVar, pod: Pod) -> str | None:
    """A variable's value; None when it comes from somewhere this cannot look."""
    if variable.value_from is None:
        return variable.value
    field = variable.value_from.field_ref
    known = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
    }
    return known.get(field.field_path) if field else None


def refused(pod: Pod, reason: str, message: str, now: str) -> Document:
    """The status of a pod that cannot run there."""
    return {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": now,
        "conditions": _conditions(now, is_ready=False, reason=reason),
    }


def waiting(pod: Pod, reason: str, message: str) -> Document:
    """The status of a pod that cannot begin yet."""
    container = pod.spec.containers[0]
    described = {
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "ready": False,
        "started": False,
        "restartCount": 0,
        "state": {"waiting": {"reason": reason, "message": message}},
    }
    return {"phase": "Pending", "containerStatuses": [described]}


def pod_status(pod: Pod, job: SlurmJob, now: str) -> Document:
    """The pod's status, from its job's."""
    state = job.status
    phase = {RUNNING: "Running", COMPLETED: "Succeeded", FAILED: "Failed", CANCELLED: "Failed"}
    found = phase.get(state.phase, "Pending")
    container = pod.spec.containers[0]
    finished = {
        "exitCode": state.exit_code if state.exit_code is not None else 1,
        "reason": "Completed" if state.phase == COMPLETED else state.reason,
        "message": state.message,
        "startedAt": state.start_time,
        "finishedAt": state.completion_time,
    }
    waiting = {"reason": state.reason or "Pending", "message": state.message}
    described: Document = {"waiting": waiting}
    if found == "Running":
        described = {"running": {"startedAt": state.start_time}}
    elif found != "Pending":
        described = {"terminated": {k: v for k, v in finished.items() if v is not None}}
    is_running = found == "Running"
    status: Document = {
        "phase": found,
        "startTime": pod.status.start_time or now,
        "conditions": _conditions(now, is_ready=is_running, reason=state.reason, before=pod),
        "containerStatuses": [
            {
                "name": container.name,
                "image": container.image,
                "imageID": "",
                "ready": is_running,
                "started": is_running,
                "restartCount": max(0, state.attempt - 1),
                "containerID": f"slurm://{state.job_id}" if state.job_id else "",
                "state": described,
            }
        ],
    }
    if found == "Failed":
        status |= {"reason": state.reason, "message": state.message}
    return status


def _conditions(
    now: str, *, is_ready: bool, reason: str, before: Pod | None = None
) -> list[Document]:
    made = []
    for kind in ("Initialized", "ContainersReady", "Ready", "PodScheduled"):
        holds = kind in ("Initialized", "PodScheduled") or is_ready
        value = "True" if holds else "False"
        old = before.status.condition(kind) if before else None
        since = old.last_transition_time if old and old.status == value else now
        condition = {"type": kind, "status": value, "lastTransitionTime": since or now}
        made.append(condition if holds else {**condition, "reason": reason or "NotRunning"})
    return made
