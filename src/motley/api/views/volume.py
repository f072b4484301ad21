"""Files that a pod's containers share or are given."""

from typing import Any

import msgspec

from motley.api.views.base import View
from motley.api.views.container import FieldSelector, Quantity, ResourceFieldSelector


class KeyToPath(View):
    """One key of a ConfigMap or Secret as a file."""

    key: str = ""
    path: str = ""
    mode: int | None = None


class ConfigMapVolumeSource(View):
    """A ConfigMap as files."""

    name: str = ""
    items: list[KeyToPath] = []
    default_mode: int = 0o644
    optional: bool = False


class SecretVolumeSource(View):
    """A Secret as files."""

    secret_name: str = ""
    items: list[KeyToPath] = []
    default_mode: int = 0o644
    optional: bool = False


class EmptyDirVolumeSource(View):
    """A directory that lives as long as the pod."""

    medium: str = ""
    size_limit: Quantity | None = None


class HostPathVolumeSource(View):
    """A path of the node."""

    path: str = ""
    type: str = ""


class DownwardAPIFile(View):
    """A field of the pod as a file."""

    path: str = ""
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardAPIVolumeSource(View):
    """The pod's own fields as files."""

    items: list[DownwardAPIFile] = []
    default_mode: int = 0o644


class ConfigProjection(View):
    """A ConfigMap or Secret within a projected volume."""

    name: str = ""
    items: list[KeyToPath] = []
    optional: bool = False


class ServiceAccountTokenProjection(View):
    """A token of the pod's service account as a file."""

    audience: str = ""
    expiration_seconds: int = 3600
    path: str = ""


class ClusterTrustBundleProjection(View):
    """Certificates to trust as a file: of one bundle, or of all that a signer attests."""

    name: str | None = None
    signer_name: str | None = None
    label_selector: dict[str, Any] | None = None  # absent: no bundle; empty: every one
    path: str = ""
    optional: bool = False


class PodCertificateProjection(View):
    """A private key and the certificate that a signer gave for it, as files."""

    signer_name: str = ""
    key_type: str = ""
    max_expiration_seconds: int | None = None
    credential_bundle_path: str = ""
    key_path: str = ""
    certificate_chain_path: str = ""
    user_annotations: dict[str, str] = {}


class VolumeProjection(View):
    """One source of a projected volume."""

    config_map: ConfigProjection | None = None
    secret: ConfigProjection | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    service_account_token: ServiceAccountTokenProjection | None = None
    cluster_trust_bundle: ClusterTrustBundleProjection | None = None
    pod_certificate: PodCertificateProjection | None = None


class ProjectedVolumeSource(View):
    """Several sources in one directory."""

    sources: list[VolumeProjection] = []
    default_mode: int = 0o644


class PersistentVolumeClaimVolumeSource(View):
    """A claim of the pod's namespace."""

    claim_name: str = ""
    read_only: bool = False


class EphemeralVolumeSource(View):
    """A claim that is made for the pod and goes with it."""

    volume_claim_template: dict[str, Any] = {}


class Volume(View):
    """Files a pod's containers may share or be given."""

    name: str = ""
    empty_dir: EmptyDirVolumeSource | None = None
    config_map: ConfigMapVolumeSource | None = None
    secret: SecretVolumeSource | None = None
    host_path: HostPathVolumeSource | None = None
    downward_api: DownwardAPIVolumeSource | None = msgspec.field(default=None, name="downwardAPI")
    projected: ProjectedVolumeSource | None = None
    persistent_volume_claim: PersistentVolumeClaimVolumeSource | None = None
    ephemeral: EphemeralVolumeSource | None = None
    csi: dict[str, Any] | None = None
    # Disks of clouds and storage networks, which are attached to the node: their own words.
    gce_persistent_disk: dict[str, Any] | None = None
    aws_elastic_block_store: dict[str, Any] | None = None
    azure_disk: dict[str, Any] | None = None
    cinder: dict[str, Any] | None = None
    portworx_volume: dict[str, Any] | None = None
    iscsi: dict[str, Any] | None = None
    rbd: dict[str, Any] | None = None
