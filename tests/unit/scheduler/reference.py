"""What Kubernetes documents about placing pods, node by node and as plainly as possible.

Written from the semantics and not from the plugins: plain dicts, whole numbers, no columns. Slow.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Doc = dict[str, Any]

_SUFFIXES = {"m": 0.001, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
}


def amount(resource: str, text: str) -> int:
    """CPU in thousandths, everything else in units."""
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            number = int(text.removesuffix(suffix)) * factor
            break
    else:
        number = int(text)
    return round(number * 1000) if resource == "cpu" else int(number)


# -- what a pod wants -----------------------------------------------------------------------


def container_requests(container: Doc, missing: Mapping[str, int]) -> dict[str, int]:
    written = container.get("resources", {}).get("requests", {})
    return {**missing, **{name: amount(name, text) for name, text in written.items()}}


def requests(pod: Doc, missing: Mapping[str, int] | None = None) -> dict[str, int]:
    """The most a pod needs at any moment of its life, plus its overhead."""
    missing = missing or {}
    spec = pod["spec"]
    moments = []
    sidecars: list[dict[str, int]] = []
    for container in spec.get("initContainers", []):
        own = container_requests(container, missing)
        moments.append([*sidecars, own])
        if container.get("restartPolicy") == "Always":
            sidecars.append(own)
    moments.append([*sidecars, *(container_requests(c, missing) for c in spec["containers"])])
    names = {name for moment in moments for part in moment for name in part}
    needed = {
        name: max(sum(part.get(name, 0) for part in moment) for moment in moments) for name in names
    }
    for name, text in spec.get("overhead", {}).items():
        needed[name] = needed.get(name, 0) + amount(name, text)
    return needed


def guessed(pod: Doc) -> dict[str, int]:
    """The same where every container that does not say counts as small."""
    return requests(pod, {"cpu": 100, "memory": 200 * 2**20})


def host_ports(pod: Doc) -> list[tuple[str, str, int]]:
    running = [
        *pod["spec"]["containers"],
        *(c for c in pod["spec"].get("initContainers", []) if c.get("restartPolicy") == "Always"),
    ]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol", "TCP"), port["hostPort"])
        for container in running
        for port in container.get("ports", [])
        if port.get("hostPort")
    ]


# -- labels, taints -------------------------------------------------------------------------


def holds(expression: Doc, labels: Mapping[str, str]) -> bool:
    key, operator, values = expression["key"], expression["operator"], expression.get("values", [])
    value = labels.get(key)
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    try:
        there, bound = int(str(value)), int(values[0])
    except ValueError:
        return False
    return there > bound if operator == "Gt" else there < bound


def term_matches(term: Doc, node: Doc) -> bool:
    meta = node["metadata"]
    expressions = [(e, meta.get("labels", {})) for e in term.get("matchExpressions", [])]
    expressions += [(e, {"metadata.name": meta["name"]}) for e in term.get("matchFields", [])]
    return bool(expressions) and all(holds(e, labels) for e, labels in expressions)


def selector_matches(selector: Doc, node: Doc) -> bool:
    return any(term_matches(term, node) for term in selector["nodeSelectorTerms"])


def tolerated(pod: Doc, taint: Doc) -> bool:
    for toleration in pod["spec"].get("tolerations", []):
        if toleration.get("effect") and toleration["effect"] != taint["effect"]:
            continue
        if toleration.get("key") and toleration["key"] != taint["key"]:
            continue
        same = toleration.get("value", "") == taint.get("value", "")
        if toleration.get("operator") == "Exists" or same:
            return True
    return False


def broken_line(shape: list[Doc], percent: int) -> int:
    previous: Doc | None = None
    for point in shape:
        at, score = point["utilization"], point["score"] * 10
        if percent <= at:
            if previous is None:
                return int(score)
            low, before = previous["utilization"], previous["score"] * 10
            return int(before + math.trunc((score - before) * (percent - low) / (at - low)))
        previous = point
    assert previous is not None
    return int(previous["score"] * 10)


def by_maximum(raw: Mapping[str, int], *, reverse: bool) -> dict[str, int]:
    most = max(raw.values(), default=0)
    if not most:
        return {name: 100 if reverse else 0 for name in raw}
    scaled = {name: 100 * value // most for name, value in raw.items()}
    return {name: 100 - value if reverse else value for name, value in scaled.items()}


# -- the cluster ----------------------------------------------------------------------------


@dataclass
class Reference:
    """Nodes, the pods on them, and the storage they share."""

    nodes: dict[str, Doc]
    placed: list[tuple[Doc, str]] = field(default_factory=list)
    claims: dict[str, Doc] = field(default_factory=dict)
    volumes: dict[str, Doc] = field(default_factory=dict)
    classes: dict[str, Doc] = field(default_factory=dict)
    csi_nodes: dict[str, Doc] = field(default_factory=dict)
    attachments: list[Doc] = field(default_factory=list)
    capacities: list[Doc] = field(default_factory=list)
    tracked: bool = False  # does the driver track its capacity?

    def on(self, node: str) -> list[Doc]:
        return [pod for pod, where in self.placed if where == node]

    # -- filters

    def node_name(self, pod: Doc, name: str) -> bool:
        return pod["spec"].get("nodeName", name) == name

    def node_unschedulable(self, pod: Doc, name: str) -> bool:
        taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
        return not self.nodes[name]["spec"].get("unschedulable") or tolerated(pod, taint)

    def taint_toleration(self, pod: Doc, name: str) -> bool:
        return all(
            tolerated(pod, taint)
            for taint in self.nodes[name]["spec"].get("taints", [])
            if taint["effect"] in ("NoSchedule", "NoExecute")
        )

    def node_affinity(self, pod: Doc, name: str) -> bool:
        node, spec = self.nodes[name], pod["spec"]
        labels = node["metadata"].get("labels", {})
        if any(labels.get(k) != v for k, v in spec.get("nodeSelector", {}).items()):
            return False
        required = (
            spec.get("affinity", {})
            .get("nodeAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution")
        )
        return required is None or selector_matches(required, node)

    def node_ports(self, pod: Doc, name: str) -> bool:
        taken = [port for other in self.on(name) for port in host_ports(other)]
        for address, protocol, port in host_ports(pod):
            for held, its_protocol, its_port in taken:
                meets = "0.0.0.0" in (address, held) or address == held
                if meets and (protocol, port) == (its_protocol, its_port):
                    return False
        return True

    def node_resources_fit(self, pod: Doc, name: str) -> bool:
        allocatable = self.nodes[name]["status"]["allocatable"]
        there = self.on(name)
        if len(there) + 1 > int(allocatable.get("pods", 0)):
            return False
        for resource, wanted in requests(pod).items():
            used = sum(requests(other).get(resource, 0) for other in there)
            if wanted and used + wanted > amount(resource, allocatable.get(resource, "0")):
                return False
        return True

    # -- scores

    def utilisation(
        self, pod: Doc, name: str, resources: Iterable[tuple[str, int]], *, guess: bool
    ) -> list[tuple[int, int, int, int]]:
        """Of each resource that counts: weight, used before, used after, allocatable."""
        found = []
        for resource, weight in resources:
            count = guessed if guess and resource in ("cpu", "memory") else requests
            wanted = count(pod).get(resource, 0)
            if "/" in resource and not wanted:
                continue
            written = self.nodes[name]["status"]["allocatable"].get(resource, "0")
            room = amount(resource, written)
            if room:
                before = sum(count(other).get(resource, 0) for other in self.on(name))
                found.append((weight, before, before + wanted, room))
        return found

    def fit_score(self, pod: Doc, name: str, strategy: Doc) -> int:
        resources = [(r["name"], r["weight"]) for r in strategy["resources"]]
        total = weights = 0
        for weight, _, used, room in self.utilisation(pod, name, resources, guess=True):
            if strategy["type"] == "LeastAllocated":
                score = 0 if used > room else (room - used) * 100 // room
            elif strategy["type"] == "MostAllocated":
                score = min(used, room) * 100 // room
            else:
                percent = 100 if used > room else used * 100 // room
                score = broken_line(strategy["requestedToCapacityRatio"]["shape"], percent)
                if not score:
                    continue
            total += score * weight
            weights += weight
        if not weights:
            return 0
        if strategy["type"] == "RequestedToCapacityRatio":
            return math.floor(total / weights + 0.5)
        return total // weights

    def balance_score(self, pod: Doc, name: str, resources: Iterable[str]) -> int | None:
        """None: the pod asks for none of the resources."""
        if not any(requests(pod).get(resource) for resource in resources):
            return None
        found = self.utilisation(pod, name, [(r, 1) for r in resources], guess=False)

        def balance(shares: list[float]) -> int:
            if len(shares) < 2:
                return 100
            if len(shares) == 2:
                return int((1 - abs((shares[0] - shares[1]) / 2)) * 100)
            mean = sum(shares) / len(shares)
            return int((1 - math.sqrt(sum((s - mean) ** 2 for s in shares) / len(shares))) * 100)

        after = balance([min(used / room, 1.0) for _, _, used, room in found])
        before = balance([min(used / room, 1.0) for _, used, _, room in found])
        return 50 + (50 + after - before) // 2

    def affinity_scores(self, pod: Doc) -> dict[str, int]:
        terms = (
            pod["spec"]
            .get("affinity", {})
            .get("nodeAffinity", {})
            .get("preferredDuringSchedulingIgnoredDuringExecution", [])
        )
        raw = {
            name: sum(t["weight"] for t in terms if term_matches(t["preference"], node))
            for name, node in self.nodes.items()
        }
        return by_maximum(raw, reverse=False)

    def taint_scores(self, pod: Doc) -> dict[str, int]:
        raw = {
            name: sum(
                not tolerated(pod, taint)
                for taint in node["spec"].get("taints", [])
                if taint["effect"] == "PreferNoSchedule"
            )
            for name, node in self.nodes.items()
        }
        return by_maximum(raw, reverse=True)

    def image_score(self, pod: Doc, name: str) -> int:
        spec = pod["spec"]
        images = [c["image"] for c in (*spec.get("initContainers", []), *spec["containers"])]
        held = {
            node: {n: i["sizeBytes"] for i in doc["status"]["images"] for n in i["names"]}
            for node, doc in self.nodes.items()
        }
        total = 0
        for image in images:
            full = image if ":" in image else f"{image}:latest"
            if full in held[name]:
                holders = sum(full in there for there in held.values())
                total += int(held[name][full] * (holders / len(self.nodes)))
        least, most = 23 * 2**20, 1000 * 2**20 * len(images)
        return 100 * (min(max(total, least), most) - least) // (most - least)

    # -- volumes

    def volume_zone(self, pod: Doc, name: str) -> bool:
        labels = self.nodes[name]["metadata"].get("labels", {})
        if not any(key in labels for key in (*OLD, *OLD.values())):
            return True
        for claim in self.claims_of(pod):
            volume = self.volumes.get(claim["spec"].get("volumeName", ""))
            for key in (*OLD, *OLD.values()) if volume else ():
                there = volume["metadata"]["labels"].get(key) if volume else None
                if there is not None:
                    own = labels.get(key, labels.get(OLD.get(key, key)))
                    if own not in there.split("__"):
                        return False
        return True

    def claims_of(self, pod: Doc) -> list[Doc]:
        return [
            self.claims[v["persistentVolumeClaim"]["claimName"]]
            for v in pod["spec"].get("volumes", [])
            if "persistentVolumeClaim" in v
        ]

    def volume_restrictions(self, pod: Doc, name: str) -> bool:
        for claim in self.claims_of(pod):
            users = [c for other, _ in self.placed for c in self.claims_of(other)]
            if "ReadWriteOncePod" in claim["spec"]["accessModes"] and claim in users:
                return False
        return not any(
            self.disk_conflict(mine, other)
            for mine in pod["spec"].get("volumes", [])
            for there in self.on(name)
            for other in there["spec"].get("volumes", [])
        )

    @staticmethod
    def disk_conflict(mine: Doc, other: Doc) -> bool:
        for kind in ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"):
            a, b = mine.get(kind), other.get(kind)
            if a is None or b is None:
                continue
            if kind == "awsElasticBlockStore":
                return bool(a["volumeID"] == b["volumeID"])
            if a.get("readOnly") and b.get("readOnly"):
                return False
            if kind == "gcePersistentDisk":
                return bool(a["pdName"] == b["pdName"])
            if kind == "iscsi":
                return bool(a["iqn"] == b["iqn"])
            shared = set(a["monitors"]) & set(b["monitors"])
            return bool(shared) and (a["pool"], a["image"]) == (b["pool"], b["image"])
        return False

    def attached(self, pod: Doc) -> set[tuple[str, str]]:
        """The volumes of a pod as (driver, handle)."""
        found = set()
        for claim in self.claims_of(pod):
            volume = self.volumes.get(claim["spec"].get("volumeName", ""))
            if volume is not None:
                source = volume["spec"].get("csi")
                if source:
                    found.add((source["driver"], source["volumeHandle"]))
            elif claim["spec"].get("storageClassName") in self.classes:
                kind = self.classes[claim["spec"]["storageClassName"]]
                found.add((kind["provisioner"], "new:" + claim["metadata"]["name"]))
        for volume in pod["spec"].get("volumes", []):
            if "awsElasticBlockStore" in volume:
                found.add(("ebs.csi.aws.com", volume["awsElasticBlockStore"]["volumeID"]))
            if "gcePersistentDisk" in volume:
                disk = volume["gcePersistentDisk"]["pdName"]
                place = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/"
                found.add(("pd.csi.storage.gke.io", place + disk))
        return found

    def node_volume_limits(self, pod: Doc, name: str) -> bool:
        node = self.csi_nodes.get(name)
        if node is None:
            return True
        limits = {
            d["name"]: d["allocatable"]["count"]
            for d in node["spec"]["drivers"]
            if "allocatable" in d
        }
        used = {volume for other in self.on(name) for volume in self.attached(other)}
        new = self.attached(pod) - used
        lingering = set()
        for attachment in self.attachments:
            spec = attachment["spec"]
            volume = self.volumes.get(spec["source"]["persistentVolumeName"])
            if spec["nodeName"] == name and volume is not None and "csi" in volume["spec"]:
                lingering.add((spec["attacher"], volume["spec"]["csi"]["volumeHandle"]))
        there = used | lingering
        for driver, limit in limits.items():
            count = sum(d == driver for d, _ in new)
            if count and count + sum(d == driver for d, _ in there) > limit:
                return False
        return True

    def volume_binding(self, pod: Doc, name: str) -> bool:
        node = self.nodes[name]
        waiting = []
        for claim in self.claims_of(pod):
            if claim["spec"].get("volumeName"):
                volume = self.volumes.get(claim["spec"]["volumeName"])
                if volume is None or not self.reaches(volume, node):
                    return False
            else:
                waiting.append(claim)
        taken: set[str] = set()
        for claim in sorted(waiting, key=size_of):
            found = [
                v
                for v in self.volumes.values()
                if v["metadata"]["name"] not in taken
                and v["status"]["phase"] == "Available"
                and v["spec"]["storageClassName"] == claim["spec"]["storageClassName"]
                and set(claim["spec"]["accessModes"]) <= set(v["spec"]["accessModes"])
                and amount("storage", v["spec"]["capacity"]["storage"]) >= size_of(claim)
                and self.reaches(v, node)
            ]
            if found:
                taken.add(min(found, key=smallest)["metadata"]["name"])
            elif not self.can_be_made(claim, node):
                return False
        return True

    @staticmethod
    def reaches(volume: Doc, node: Doc) -> bool:
        affinity = volume["spec"].get("nodeAffinity")
        return affinity is None or selector_matches(affinity["required"], node)

    def can_be_made(self, claim: Doc, node: Doc) -> bool:
        kind = self.classes[claim["spec"]["storageClassName"]]
        labels = node["metadata"].get("labels", {})
        if kind["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        topologies = kind.get("allowedTopologies", [])
        if topologies and not any(
            all(labels.get(e["key"]) in e["values"] for e in t["matchLabelExpressions"])
            for t in topologies
        ):
            return False
        return not self.tracked or any(
            capacity["storageClassName"] == kind["metadata"]["name"]
            and amount("storage", capacity["capacity"]) >= size_of(claim)
            and all(labels.get(k) == v for k, v in capacity["nodeTopology"]["matchLabels"].items())
            for capacity in self.capacities
        )


def size_of(claim: Doc) -> int:
    return amount("storage", claim["spec"]["resources"]["requests"]["storage"])


def smallest(volume: Doc) -> tuple[int, str]:
    return amount("storage", volume["spec"]["capacity"]["storage"]), volume["metadata"]["name"]
