"""The scheduler's decisions as objects of Motley's own group."""

from typing import Any, ClassVar

from motley.api.views.base import Object


class Decision(Object):
    """Why a pod is where it is, or nowhere; its name is the pod's."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "Decision"
    PLURAL: ClassVar[str] = "decisions"

    # A document: those who read it print it.
    spec: dict[str, Any] = {}
