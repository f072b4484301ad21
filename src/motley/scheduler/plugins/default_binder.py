"""DefaultBinder: binds with the API's `pods/binding`."""

from motley.scheduler import contract
from motley.scheduler.contract import Api, PodInfo, Verdict


class DefaultBinder:
    """Bind as Kubernetes does."""

    name = "DefaultBinder"
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None: ...

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """Create the Binding."""
        await api.bind(pod, node)
        return None


_: contract.Made[contract.BindPlugin] = DefaultBinder
