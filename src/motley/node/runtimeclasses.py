"""Which of the runtime's handlers a pod wants: RuntimeClass → handler.

Asked for when a sandbox is made, by a single read: few pods name a class, and what a running pod
was started with stays, whatever becomes of its class.
"""

from motley.api import status
from motley.api.views.pod import Pod
from motley.api.views.runtime import RuntimeClass
from motley.client.rest import Client


class RuntimeClassError(Exception):
    """The class cannot be used, or not yet; retried."""


async def handler(client: Client, pod: Pod) -> str:
    """The runtime's name of it; empty for the runtime's default. Raises RuntimeClassError."""
    name = pod.spec.runtime_class_name
    if not name:
        return ""
    try:
        found = await client.get(RuntimeClass, name)
    except status.NotFound:
        raise RuntimeClassError(
            f'failed to get sandbox runtime: RuntimeClass "{name}" not found'
        ) from None
    except status.ApiError as error:
        raise RuntimeClassError(
            f'failed to get sandbox runtime: RuntimeClass "{name}": {error.message}'
        ) from None
    return found.handler
