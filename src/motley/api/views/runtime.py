"""Views of node.k8s.io."""

from typing import ClassVar

from motley.api.views.base import Object


class RuntimeClass(Object):
    """A way to run containers, by the name the runtime has for it."""

    API_VERSION: ClassVar[str] = "node.k8s.io/v1"
    KIND: ClassVar[str] = "RuntimeClass"
    PLURAL: ClassVar[str] = "runtimeclasses"

    handler: str = ""
