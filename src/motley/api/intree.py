"""Disks of clouds as their CSI drivers know them. Pure; Kubernetes' own translation.

Kubernetes once knew the disks of some clouds itself. Volumes still say so in their specs, while the
work is done by drivers: what counts against a driver's limit, and where a volume can be reached,
is asked in the driver's words.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from motley.api.views.pod import NodeSelectorRequirement, NodeSelectorTerm
from motley.api.views.scheduling import NodeSelector
from motley.api.views.storage import PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity
from motley.api.views.volume import Volume

MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
ZONE_DELIMITER = "__"  # a volume may be in several zones: `us-1a__us-1b`

_UNSPECIFIED = "UNSPECIFIED"

Labels = Mapping[str, str]


class VolumeHandle(NamedTuple):
    """A volume as its driver knows it: one handle is one volume, however many claims name it."""

    driver: str
    handle: str


def _aws(source: dict[str, Any], labels: Labels) -> str:
    volume = str(source.get("volumeID", ""))
    if not volume.startswith("aws://"):
        return volume
    name = volume.removeprefix("aws://").partition("/")[2].strip("/")
    return name if name.startswith("vol-") and "/" not in name else ""


def _gce(source: dict[str, Any], labels: Labels) -> str:
    disk = source.get("pdName", "")
    zones = (labels.get(BETA_ZONE) or labels.get(ZONE) or _UNSPECIFIED).split(ZONE_DELIMITER)
    if len(zones) == 1:
        return f"projects/{_UNSPECIFIED}/zones/{zones[0]}/disks/{disk}"
    regions = {zone.rpartition("-")[0] for zone in zones}
    if len(regions) > 1 or any(zone.count("-") != 2 for zone in zones):
        return ""
    return f"projects/{_UNSPECIFIED}/regions/{regions.pop()}/disks/{disk}"


def _azure(source: dict[str, Any], labels: Labels) -> str:
    managed = str(source.get("kind") or "Managed").lower() == "managed"
    return str(source.get("diskURI", "")) if managed else ""


def _by_id(source: dict[str, Any], labels: Labels) -> str:
    return str(source.get("volumeID", ""))


class _Plugin(NamedTuple):
    """What was built in, and its driver."""

    field: str
    driver: str
    topology: str  # the driver's label for zones; empty: it does not translate them
    handle: Callable[[dict[str, Any], Labels], str]  # empty: not a volume the driver knows


_PLUGINS: Mapping[str, _Plugin] = {
    "kubernetes.io/aws-ebs": _Plugin(
        "aws_elastic_block_store", "ebs.csi.aws.com", "topology.ebs.csi.aws.com/zone", _aws
    ),
    "kubernetes.io/gce-pd": _Plugin(
        "gce_persistent_disk", "pd.csi.storage.gke.io", "topology.gke.io/zone", _gce
    ),
    "kubernetes.io/azure-disk": _Plugin("azure_disk", "disk.csi.azure.com", "", _azure),
    "kubernetes.io/cinder": _Plugin(
        "cinder", "cinder.csi.openstack.org", "topology.cinder.csi.openstack.org/zone", _by_id
    ),
    "kubernetes.io/portworx-volume": _Plugin("portworx_volume", "pxd.portworx.com", "", _by_id),
}


def plugin_of(spec: PersistentVolumeSpec | Volume) -> str:
    """The built-in plugin a volume is of; empty: none that was moved to a driver."""
    for name, plugin in _PLUGINS.items():
        if getattr(spec, plugin.field) is not None:
            return name
    return ""


def driver_of(provisioner: str) -> str:
    """The driver that does a provisioner's work: its own, or the one it was moved to."""
    plugin = _PLUGINS.get(provisioner)
    return plugin.driver if plugin is not None else provisioner


def handle_of(spec: PersistentVolumeSpec | Volume, labels: Labels) -> VolumeHandle | None:
    """The volume as its driver knows it; None: no driver attaches it."""
    if spec.csi is not None and isinstance(spec, PersistentVolumeSpec):
        driver, handle = str(spec.csi.get("driver", "")), str(spec.csi.get("volumeHandle", ""))
        return VolumeHandle(driver, handle) if driver and handle else None
    name = plugin_of(spec)
    if not name:
        return None
    plugin = _PLUGINS[name]
    handle = plugin.handle(getattr(spec, plugin.field), labels)
    return VolumeHandle(plugin.driver, handle) if handle else None


def affinity_by_driver(volume: PersistentVolume) -> VolumeNodeAffinity | None:
    """Where a built-in volume can be reached, told in its driver's label for zones."""
    plugin = _PLUGINS.get(plugin_of(volume.spec))
    affinity = volume.spec.node_affinity
    if plugin is None or not plugin.topology:
        return affinity
    terms = affinity.required.node_selector_terms if affinity and affinity.required else []
    zone, region = _keys(terms, volume.metadata.labels)
    renamed = {region: REGION}
    if any(e.key == zone and e.values for term in terms for e in term.match_expressions):
        renamed[zone] = plugin.topology
    elif zone in volume.metadata.labels:
        zones = sorted({z.strip() for z in volume.metadata.labels[zone].split(ZONE_DELIMITER)})
        known = NodeSelectorRequirement(
            key=plugin.topology, operator="In", values=[z for z in zones if z]
        )
        terms = [
            msgspec.structs.replace(term, match_expressions=[*term.match_expressions, known])
            for term in terms or [NodeSelectorTerm()]
        ]
    else:
        return affinity
    terms = [_renamed(term, renamed) for term in terms]
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=terms))


def _keys(terms: list[NodeSelectorTerm], labels: Labels) -> tuple[str, str]:
    used = {e.key for term in terms for e in term.match_expressions}
    for known in (used, labels):
        if ZONE in known:
            return ZONE, REGION
        if BETA_ZONE in known:
            return BETA_ZONE, BETA_REGION
    return ZONE, REGION


def _renamed(term: NodeSelectorTerm, names: Mapping[str, str]) -> NodeSelectorTerm:
    expressions = [
        msgspec.structs.replace(e, key=names.get(e.key, e.key)) for e in term.match_expressions
    ]
    return msgspec.structs.replace(term, match_expressions=expressions)
