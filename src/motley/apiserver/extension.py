"""Groups that another room brings to this server, served in its own process.

The command that starts the server hands them over. Clients see no difference to an aggregated API,
and a real one, registered by an APIService that names a Service, takes their place.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from motley.apiserver.answer import Answer
from motley.apiserver.request import RequestInfo

if TYPE_CHECKING:  # an aggregated server has the same groups, and none of the rest
    from motley.apiserver.core import Core


class Extension(Protocol):
    """One group in one version."""

    @property
    def group(self) -> str:
        """Its name."""

    @property
    def version(self) -> str:
        """Its only version."""

    @property
    def resources(self) -> Sequence[dict[str, Any]]:
        """What it serves, as discovery lists it."""

    async def handle(self, info: RequestInfo, headers: Mapping[str, str]) -> Answer:
        """Answer a request whose caller is known and allowed. Raises ApiError."""

    async def run(self) -> None:
        """Work beside the requests until cancelled."""


Factory = Callable[["Core"], Extension]
