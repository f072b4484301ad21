"""The class of volumes a cluster starts with: directories of the node a pod runs on.

Made once, if nobody has one of that name; it is the default unless another class is. What is made
can be changed or replaced by whoever runs the cluster, and is left alone then.
"""

from typing import Any

from motley.api import status, storage
from motley.api.views.storage import StorageClass
from motley.client.rest import Client
from motley.ops import images
from motley.ops.config import Config

NAME = "local-path"
_IS_DEFAULT = "storageclass.kubernetes.io/is-default-class"


def document(config: Config, *, is_default: bool) -> dict[str, Any]:
    """The class; its volumes are below the cluster's root on every node."""
    annotations = {"annotations": {_IS_DEFAULT: "true"}} if is_default else {}
    return {
        "metadata": {"name": NAME, **annotations},
        "provisioner": storage.LOCAL_PATH,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": storage.WAIT_FOR_FIRST_CONSUMER,
        "allowVolumeExpansion": True,
        "parameters": {
            "path": str(config.root / "volumes"),
            "helperImage": images.BUSYBOX.reference,
        },
    }


async def ensure(client: Client, config: Config) -> bool:
    """Make the class if there is none of its name; True: it was made."""
    known = (await client.list(StorageClass)).items
    if any(found.metadata.name == NAME for found in known):
        return False
    is_default = storage.default_class(known) is None
    try:
        await client.create(StorageClass, document(config, is_default=is_default))
    except status.AlreadyExists:
        return False
    return True
