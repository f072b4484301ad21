"""HTTP extenders: `extenders:` of a KubeSchedulerConfiguration, and what is said to them.

An extender is a web server somebody else wrote. It is asked with the bodies that kube-scheduler
sends (`ExtenderArgs`, `ExtenderBindingArgs`, `ExtenderPreemptionArgs`), and since Go reads the
names of fields without regard to case, so are the answers here.

This module only talks: what the answers mean for a pod is decided in `consulting`.
"""

import base64
import binascii
import ssl
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from motley.lib import durations
from motley.scheduler.podinfo import PodInfo

# kube-scheduler's MaxNodeScore / MaxExtenderPriority: extenders score 0 to 10, plugins 0 to 100.
SCALE = 10


class ExtenderError(Exception):
    """An extender does not answer, says no, or says something that makes no sense."""


class ManagedResource(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """An extended resource that an extender looks after."""

    name: str
    ignored_by_scheduler: bool = False  # then NodeResourcesFit does not look at it

    def __post_init__(self) -> None:
        domain, slash, rest = self.name.partition("/")
        if not slash or not rest or "kubernetes.io" in domain:
            raise ValueError(f"managedResources: {self.name!r} is no extended resource")


class Tls(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`tlsConfig` of an extender; `…Data` is base64 of what is in the file."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: str = ""
    key_data: str = ""
    ca_data: str = ""

    def pem(self, what: str) -> bytes:
        """The certificate (`cert`), key (`key`) or authority (`ca`), inline or from its file."""
        data: str = getattr(self, f"{what}_data")
        file: str = getattr(self, f"{what}_file")
        if data:
            try:
                return base64.b64decode(data, validate=True)
            except binascii.Error as e:
                raise ValueError(f"tlsConfig.{what}Data is not base64: {e}") from e
        return Path(file).read_bytes() if file else b""


class ExtenderConfig(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """One entry of `extenders`, as it is written."""

    url_prefix: str
    filter_verb: str = ""
    preempt_verb: str = ""
    prioritize_verb: str = ""
    weight: int = 0
    bind_verb: str = ""
    enable_https: bool = msgspec.field(default=False, name="enableHTTPS")
    tls_config: Tls | None = None
    http_timeout: str = msgspec.field(default="0s", name="httpTimeout")
    node_cache_capable: bool = False
    managed_resources: list[ManagedResource] = msgspec.field(default_factory=list)
    ignorable: bool = False

    def __post_init__(self) -> None:
        if not self.url_prefix.startswith(("http://", "https://")):
            raise ValueError(f"extender urlPrefix {self.url_prefix!r} is not http:// or https://")
        if self.prioritize_verb and self.weight <= 0:
            raise ValueError(f"extender {self.url_prefix!r} must have a positive weight")
        durations.seconds(self.http_timeout)

    @property
    def timeout_s(self) -> float:
        """How long an answer may take; kube-scheduler's five seconds unless stated."""
        return durations.seconds(self.http_timeout) or 5.0


def validate(written: Sequence[ExtenderConfig]) -> None:
    """What concerns all of them together. Raises ValueError."""
    if sum(bool(each.bind_verb) for each in written) > 1:
        raise ValueError("extenders: only one extender can implement bind")
    seen: set[str] = set()
    for each in written:
        for resource in each.managed_resources:
            if resource.name in seen:
                raise ValueError(f"extenders: managed resource {resource.name!r} is there twice")
            seen.add(resource.name)


@dataclass(slots=True)
class Filtered:
    """What an extender left of the nodes it was asked about."""

    names: list[str]
    failed: dict[str, str] = field(default_factory=dict)  # node → why
    unresolvable: dict[str, str] = field(default_factory=dict)  # the same; no preemption helps


class HttpExtender:
    """One extender, asked through a session that its owner opens and closes."""

    def __init__(self, config: ExtenderConfig) -> None:
        self.config = config
        self.url = config.url_prefix
        self._managed = {resource.name for resource in config.managed_resources}
        self._ssl = _ssl_context(config)

    def is_interested(self, pod: PodInfo) -> bool:
        """Is the pod the extender's business? All are, unless it manages certain resources."""
        if not self._managed:
            return True
        spec = pod.pod.spec
        return any(
            not self._managed.isdisjoint(container.resources.requests)
            or not self._managed.isdisjoint(container.resources.limits)
            for container in (*spec.containers, *spec.init_containers)
        )

    async def filter(
        self,
        session: aiohttp.ClientSession,
        pod: Mapping[str, Any],
        nodes: Mapping[str, Any],
        names: list[str],
    ) -> Filtered:
        """Which of these nodes the extender lets through. Raises ExtenderError.

        `nodes`: the whole objects by name, for an extender that keeps no copy of its own.
        """
        answer = await self._send(session, self.config.filter_verb, self._args(pod, nodes, names))
        result = _members(answer, self.url)
        if result.get("error"):
            raise ExtenderError(str(result["error"]))
        if self.config.node_cache_capable and result.get("nodenames") is not None:
            kept = result["nodenames"]
        else:
            listed = _members(result.get("nodes") or {}, self.url)
            kept = [_name(item) for item in listed.get("items") or ()]
        failed = _reasons(result.get("failednodes"), self.url)
        unresolvable = _reasons(result.get("failedandunresolvablenodes"), self.url)
        if not isinstance(kept, list):
            raise ExtenderError(f"extender {self.url!r} answered with no list of node names")
        strangers = set(kept) - set(names)
        if strangers:
            raise ExtenderError(
                f"extender {self.url!r} claims a filtered node {sorted(strangers)[0]!r} "
                "which is not found in the input node list"
            )
        return Filtered([name for name in names if name in set(kept)], failed, unresolvable)

    async def prioritize(
        self,
        session: aiohttp.ClientSession,
        pod: Mapping[str, Any],
        nodes: Mapping[str, Any],
        names: list[str],
    ) -> dict[str, float]:
        """Scores by node, on the scale of plugins and weighted. Raises ExtenderError."""
        args = self._args(pod, nodes, names)
        answer = await self._send(session, self.config.prioritize_verb, args)
        if not isinstance(answer, list):
            raise ExtenderError(f"extender {self.url!r} answered with no HostPriorityList")
        scores: dict[str, float] = {}
        for entry in answer:
            host = _members(entry, self.url)
            score = host.get("score", 0)
            if not isinstance(score, int) or not isinstance(host.get("host"), str):
                raise ExtenderError(f"extender {self.url!r} answered with a strange score")
            scores[host["host"]] = float(score * self.config.weight * SCALE)
        return scores

    async def preempt(
        self,
        session: aiohttp.ClientSession,
        pod: Mapping[str, Any],
        victims: Mapping[str, tuple[Sequence[PodInfo], int]],
    ) -> dict[str, tuple[list[str], int]]:
        """Who may be ended where: by node the victims' uids and violated budgets, of those
        given. Raises ExtenderError."""
        uids = {
            node: {
                "Pods": [{"UID": victim.uid} for victim in pods],
                "NumPDBViolations": violations,
            }
            for node, (pods, violations) in victims.items()
        }
        whole = {
            node: {
                "Pods": [_view(victim) for victim in pods],
                "NumPDBViolations": violations,
            }
            for node, (pods, violations) in victims.items()
        }
        knows = self.config.node_cache_capable
        body = {
            "Pod": pod,
            "NodeNameToVictims": None if knows else whole,
            "NodeNameToMetaVictims": uids if knows else None,
        }
        answer = _members(await self._send(session, self.config.preempt_verb, body), self.url)
        left: dict[str, tuple[list[str], int]] = {}
        for node, found in (answer.get("nodenametometavictims") or {}).items():
            meta = _members(found or {}, self.url)
            pods = [_members(each, self.url).get("uid", "") for each in meta.get("pods") or ()]
            left[node] = (pods, int(meta.get("numpdbviolations") or 0))
        return left

    async def bind(self, session: aiohttp.ClientSession, pod: PodInfo, node: str) -> None:
        """Have the extender bind the pod. Raises ExtenderError."""
        body = {
            "PodName": pod.key.name,
            "PodNamespace": pod.key.namespace,
            "PodUID": pod.pod.metadata.uid,
            "Node": node,
        }
        answer = _members(await self._send(session, self.config.bind_verb, body), self.url)
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))

    def _args(
        self, pod: Mapping[str, Any], nodes: Mapping[str, Any], names: list[str]
    ) -> dict[str, Any]:
        if self.config.node_cache_capable:
            return {"Pod": pod, "Nodes": None, "NodeNames": names}
        items = [nodes[name] for name in names if name in nodes]
        return {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}

    async def _send(self, session: aiohttp.ClientSession, verb: str, body: Any) -> Any:
        url = f"{self.url.rstrip('/')}/{verb}"
        tls = self.config.tls_config
        try:
            async with session.post(
                url,
                data=msgspec.json.encode(body),
                headers={"Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=self.config.timeout_s),
                ssl=self._ssl or True,
                server_hostname=(tls.server_name if tls else "") or None,
            ) as response:
                answer = await response.read()
                if response.status != 200:
                    raise ExtenderError(
                        f"failed {verb} with extender at URL {url}, code {response.status}"
                    )
                return msgspec.json.decode(answer)
        except TimeoutError as e:
            seconds = self.config.timeout_s
            raise ExtenderError(f"extender at URL {url}: no answer within {seconds:g} s") from e
        except (aiohttp.ClientError, OSError) as e:
            raise ExtenderError(f"extender at URL {url}: {e or type(e).__name__}") from e
        except msgspec.DecodeError as e:
            raise ExtenderError(f"extender at URL {url} answered with no JSON: {e}") from e


def _ssl_context(config: ExtenderConfig) -> ssl.SSLContext | None:
    """None: plain HTTP, or HTTPS as the system trusts it. Raises ValueError and OSError."""
    tls = config.tls_config or Tls()
    authority = tls.pem("ca")
    if config.tls_config is None and not config.enable_https:
        return None
    context = ssl.create_default_context(cadata=authority.decode() if authority else None)
    # As kube-scheduler has it: enableHTTPS without an authority trusts whoever answers.
    if tls.insecure or (config.enable_https and not authority):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate = tls.pem("cert")
    if certificate:
        # The `ssl` module takes the pair only as a file; it exists for the length of this call.
        with tempfile.NamedTemporaryFile(prefix="motley-extender-") as file:
            file.write(certificate + b"\n" + tls.pem("key"))
            file.flush()
            context.load_cert_chain(file.name)
    return context


def _view(pod: PodInfo) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(pod.pod)
    return {"apiVersion": "v1", "kind": "Pod", **document}


def _members(value: Any, url: str) -> dict[str, Any]:
    """An object's members by their names in lower case."""
    if not isinstance(value, dict):
        raise ExtenderError(f"extender {url!r} answered with something that is no object")
    return {name.lower(): member for name, member in value.items()}


def _reasons(value: Any, url: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ExtenderError(f"extender {url!r} answered with failed nodes that are no map")
    return {str(node): str(why) for node, why in value.items()}


def _name(item: Any) -> str:
    metadata = item.get("metadata") if isinstance(item, dict) else None
    return str(metadata.get("name", "")) if isinstance(metadata, dict) else ""


def ignored_resources(written: Iterable[ExtenderConfig]) -> list[str]:
    """Resources that only their extender counts."""
    return sorted(
        resource.name
        for each in written
        for resource in each.managed_resources
        if resource.ignored_by_scheduler
    )
