"""DefaultIngressClass: the class of ingresses that name none."""

from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.defaultclass import default_class
from motley.apiserver.admission.lookup import Lookup, kind_of

_DEFAULT = ("ingressclass.kubernetes.io/is-default-class",)
_CLASS_ANNOTATION = "kubernetes.io/ingress.class"  # older than the field, still a decision


class DefaultIngressClass:
    """Fills in `spec.ingressClassName`."""

    name = "DefaultIngressClass"
    interests = (interest("create", "networking.k8s.io/ingresses"),)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("networking.k8s.io", "ingressclasses")

    async def mutate(self, change: Change) -> None:
        """Name the default class, where there is one."""
        spec = change.spec
        if spec is None or spec.get("ingressClassName") is not None or change.new is None:
            return
        if _CLASS_ANNOTATION in (change.new["metadata"].get("annotations") or {}):
            return
        found = default_class(await self._lookup.list(self._kind), _DEFAULT)
        if found is not None:
            spec["ingressClassName"] = found["metadata"]["name"]
