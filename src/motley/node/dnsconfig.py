"""A pod's resolv.conf and /etc/hosts, from its DNS policy. Pure: text in, values out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motley.api.views.pod import HostAlias, Pod

# glibc reads three name servers; the kubelet allows 32 search domains.
MAX_SERVERS = 3
MAX_SEARCHES = 32


@dataclass(frozen=True, slots=True)
class Resolver:
    """The lines of a resolv.conf."""

    servers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse(text: str) -> Resolver:
    """What a resolv.conf says; the last `search` and `options` lines win."""
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver":
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = [w for w in words[1:] if w != "."]
        elif words[0] == "options":
            options = words[1:]
    return Resolver(tuple(servers), tuple(searches), tuple(options))


def resolver(pod: Pod, host: Resolver, cluster_dns: Sequence[str], domain: str) -> Resolver:
    """What the pod's resolv.conf is to say."""
    spec = pod.spec
    is_cluster = spec.dns_policy == "ClusterFirstWithHostNet" or (
        spec.dns_policy == "ClusterFirst" and not spec.host_network
    )
    if spec.dns_policy == "None":
        base = Resolver()
    elif is_cluster and cluster_dns:
        namespace = pod.metadata.namespace
        own = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain)
        base = Resolver(tuple(cluster_dns), own + host.searches, ("ndots:5",))
    else:
        base = host
    extra = spec.dns_config
    if extra is None:
        return base
    options = {o.partition(":")[0]: o for o in base.options}
    for option in extra.options:
        options[option.name] = f"{option.name}:{option.value}" if option.value else option.name
    return Resolver(
        tuple(_unique([*base.servers, *extra.nameservers]))[:MAX_SERVERS],
        tuple(_unique([*base.searches, *extra.searches]))[:MAX_SEARCHES],
        tuple(options.values()),
    )


def _unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def hostname(pod: Pod) -> str:
    """The pod's own host name: a DNS label, so a longer pod name is cut as the kubelet cuts it."""
    return pod.spec.hostname or pod.metadata.name[:63].rstrip("-.")


def hosts(pod: Pod, ips: Sequence[str], domain: str, host_file: str) -> str:
    """The text of /etc/hosts in the pod's containers."""
    name = hostname(pod)
    if pod.spec.host_network:
        lines = ["# Kubernetes-managed hosts file (host network).", host_file]
    else:
        lines = [
            "# Kubernetes-managed hosts file.",  # by which programs know whose it is
            "127.0.0.1\tlocalhost",
            "::1\tlocalhost ip6-localhost ip6-loopback",
            "fe00::0\tip6-localnet",
            "fe00::0\tip6-mcastprefix",
            "fe00::1\tip6-allnodes",
            "fe00::2\tip6-allrouters",
        ]
        full = f"{name}.{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{domain}"
        names = f"{full}\t{name}" if pod.spec.subdomain else name
        lines += [f"{ip}\t{names}" for ip in ips]
    return "\n".join([*lines, *_aliases(pod.spec.host_aliases)]).rstrip("\n") + "\n"


def _aliases(aliases: Sequence[HostAlias]) -> list[str]:
    return [f"{a.ip}\t" + "\t".join(a.hostnames) for a in aliases]
