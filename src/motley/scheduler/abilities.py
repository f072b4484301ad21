"""What a plugin may be able to do besides the extension points it serves; see `contract`.

Nobody must: each ability is a method that a plugin has or has not, and who has it is asked. Some
make deciding quicker, since pods of one template share answers; some let preemption try out many
nodes at once; some say more about a decision.
"""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from motley.client.rest import Client
from motley.scheduler.columns import Columns, Mask, Rows, Scores
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed
from motley.scheduler.lineup import Gone
from motley.scheduler.podinfo import PodInfo


@runtime_checkable
class FiltersRows(Protocol):
    """A filter that looks at a node and the pods on it only: pods of a template share answers.

    With this method it promises that its answer about a node depends on the pod's template, on
    node facts and on the pods placed there. After the first pod of a template it is then asked
    about those nodes only where a pod has come or gone since.
    """

    def filter_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Mask:
        """What `filter` says, of these rows only."""


@runtime_checkable
class KnowsHopeless(Protocol):
    """A filter some of whose rejections no end of other pods can lift."""

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """The rows, among those it rejected, where preemption would be in vain."""


@runtime_checkable
class TriesOutInColumns(Protocol):
    """A filter that looks beyond a node, and can yet say of many at once what preemption would do.

    `gone` are pods thought away, and of each row only its own: it is as if every row were asked
    about alone, with its pods gone and all others in place.
    """

    def filter_vacated(self, pod: PodInfo, nodes: Columns, gone: Gone) -> Mask:
        """What `filter` would say."""

    def explain_vacated(
        self, pod: PodInfo, nodes: Columns, rejected: Mask, gone: Gone
    ) -> Mapping[str, int]:
        """Count the reasons over rows that `filter_vacated` rejected."""


@runtime_checkable
class ExplainsRejection(Protocol):
    """A filter with more than one reason."""

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mapping[str, int]:
        """Count the reasons over the rows this filter rejected."""


@runtime_checkable
class CountsByNode(Protocol):
    """A filter for which a pod does not take the same of every node."""

    def placed_as(self, pod: PodInfo, node: str) -> PodInfo:
        """The pod as it is to be counted on this node until the API confirms its binding."""


@runtime_checkable
class WorksInBackground(Protocol):
    """A plugin with something to do besides its points, such as fetching measurements."""

    async def background(self, client: Client) -> None:
        """Until cancelled; begins once the cluster is known. Raising is logged and repeated."""


@runtime_checkable
class KnowsAges(Protocol):
    """A plugin that decides by measurements, so that a decision can say how old they were."""

    def ages(self, pod: PodInfo) -> Mapping[str, float]:
        """Seconds, by what was measured; empty: it had nothing to go by. Asked per decision."""


@runtime_checkable
class FollowsObjects(Protocol):
    """A plugin that decides by more than pods and nodes."""

    def follow(self, feed: Feed) -> None:
        """Ask the feed for informers and put what they bring into a book. Called once, first."""


@runtime_checkable
class MayHelp(Protocol):
    """A closer look at an event, where the plugin can tell cheaply that it changes nothing."""

    def may_help(self, pod: PodInfo, event: ClusterEvent) -> bool:
        """False: this event of `wakes_on` cannot make this rejected pod fit."""


@runtime_checkable
class ScoresRows(Protocol):
    """A scorer that looks at a node and the pods on it only; as `FiltersRows`."""

    def score_rows(self, pod: PodInfo, nodes: Columns, rows: Rows) -> Scores:
        """What `score` says, of these rows only."""
