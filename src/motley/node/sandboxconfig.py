"""A pod as CRI's PodSandboxConfig. Pure: from the pod and what the node knows to one message."""

from collections.abc import Sequence
from typing import Any

from motley.api.views.pod import Pod, SeccompProfile
from motley.node import dnsconfig
from motley.node.cri import cri_pb2 as cri
from motley.node.model import POD_NAME, POD_NAMESPACE, POD_UID


def labels(pod: Pod) -> dict[str, str]:
    """The pod's own labels, and those by which it is found again."""
    meta = pod.metadata
    return {
        **meta.labels,
        POD_NAME: meta.name,
        POD_NAMESPACE: meta.namespace,
        POD_UID: meta.uid,
    }


def log_directory(root: str, pod: Pod) -> str:
    """Where the pod's container logs are."""
    meta = pod.metadata
    return f"{root}/{meta.namespace}_{meta.name}_{meta.uid}"


def namespaces(pod: Pod) -> Any:
    """Which namespaces are the pod's own.

    A zero PID mode would mean one namespace for the whole pod: CONTAINER is said explicitly.
    """
    spec = pod.spec
    if spec.host_pid:
        pid = cri.NODE
    elif spec.share_process_namespace:
        pid = cri.POD
    else:
        pid = cri.CONTAINER
    return cri.NamespaceOption(
        network=cri.NODE if spec.host_network else cri.POD,
        pid=pid,
        ipc=cri.NODE if spec.host_ipc else cri.POD,
    )


def seccomp(profile: SeccompProfile | None, *, privileged: bool = False) -> Any:
    """The seccomp profile; none given means unconfined, as in Kubernetes."""
    kinds = {
        "RuntimeDefault": cri.SecurityProfile.RuntimeDefault,
        "Localhost": cri.SecurityProfile.Localhost,
    }
    if profile is None or privileged or profile.type not in kinds:
        return cri.SecurityProfile(profile_type=cri.SecurityProfile.Unconfined)
    return cri.SecurityProfile(
        profile_type=kinds[profile.type], localhost_ref=profile.localhost_profile
    )


def is_privileged(pod: Pod) -> bool:
    """Does any container ask for everything? Then the sandbox must allow it."""
    everyone = [*pod.spec.init_containers, *pod.spec.containers]
    return any(c.security_context is not None and c.security_context.privileged for c in everyone)


def build(
    pod: Pod,
    *,
    attempt: int,
    log_root: str,
    cgroup_parent: str,
    resolver: dnsconfig.Resolver,
    sysctls: Sequence[tuple[str, str]] = (),
) -> Any:
    """The sandbox of a pod."""
    spec, context = pod.spec, pod.spec.security_context
    privileged = is_privileged(pod)
    security = cri.LinuxSandboxSecurityContext(
        namespace_options=namespaces(pod),
        privileged=privileged,
        seccomp=cri.SecurityProfile(
            profile_type=cri.SecurityProfile.Unconfined
            if privileged
            else cri.SecurityProfile.RuntimeDefault
        ),
    )
    parameters = dict(sysctls)
    if context is not None:
        if context.run_as_user is not None:
            security.run_as_user.value = context.run_as_user
        if context.run_as_group is not None and context.run_as_user is not None:
            security.run_as_group.value = context.run_as_group
        security.supplemental_groups.extend(context.supplemental_groups)
        parameters.update({s.name: s.value for s in context.sysctls})
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pod.metadata.uid,
            attempt=attempt,
        ),
        # The runtime refuses a host name for a pod in the node's own UTS and network namespace.
        hostname="" if spec.host_network else dnsconfig.hostname(pod),
        log_directory=log_directory(log_root, pod),
        dns_config=cri.DNSConfig(
            servers=resolver.servers, searches=resolver.searches, options=resolver.options
        ),
        port_mappings=[] if spec.host_network else _port_mappings(pod),
        labels=labels(pod),
        annotations=pod.metadata.annotations,
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent, security_context=security, sysctls=parameters
        ),
    )


def _port_mappings(pod: Pod) -> list[Any]:
    protocols = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}
    return [
        cri.PortMapping(
            protocol=protocols.get(port.protocol, cri.TCP),
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    ]
