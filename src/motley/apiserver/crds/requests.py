"""What is special about requests on custom resources, before their handler."""

from motley.api import scheme, status
from motley.apiserver.request import RequestInfo


def check(kind: scheme.Kind, info: RequestInfo) -> None:
    """Refuse new objects while the definition is on its way out."""
    definition = kind.definition
    if definition is not None and definition.is_terminating and info.verb == "create":
        raise status.MethodNotAllowed(
            "create not allowed while custom resource definition is terminating"
        )
