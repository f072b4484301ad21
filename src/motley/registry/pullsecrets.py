"""The pull secrets of a pod: its own, and those of the ServiceAccount it runs as.

Read when an image must be looked up, never kept. A secret that is not there, or that we may not
read, is as good as none: the registry may let us in without.
"""

from motley.api import status
from motley.api.views.core import Secret, ServiceAccount
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal

log = journal.get(__name__)

_MOST = 16


async def of_pod(client: Client, pod: Pod) -> list[Secret]:
    """Never raises for what the API answers."""
    namespace = pod.metadata.namespace
    names = [one.name for one in pod.spec.image_pull_secrets]
    account = pod.spec.service_account_name or "default"
    try:
        found = await client.get(ServiceAccount, account, namespace)
        names += [one.name for one in found.image_pull_secrets]
    except status.ApiError as error:
        log.debug("service account not read", account=account, error=error.message)
    secrets = []
    for name in list(dict.fromkeys(name for name in names if name))[:_MOST]:
        try:
            secrets.append(await client.get(Secret, name, namespace))
        except status.ApiError as error:
            log.info("pull secret not read", pod=pod.key, secret=name, error=error.message)
    return secrets
