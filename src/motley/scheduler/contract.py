"""The plugin contract: kube-scheduler's extension points, over columns.

A plugin is a class with a `name` and one or more of the methods below; which points it serves
is which methods it has. It is made once per profile with its typed arguments (`Args`) and a
`Handle` on its surroundings. Filter and score answer for *all nodes at once*: a boolean or
a number per row of the columns.

    PreEnqueue → QueueSort → PreFilter → Filter → PostFilter → PreScore → Score → Normalize
        → Reserve → Permit → PreBind → Bind → PostBind

Everything up to Permit runs synchronously on local data and must not wait; PreBind, Bind and
PostBind run concurrently with later cycles and may talk to the API.

A filter says why it rejects (`reason`) and which cluster events may change its mind
(`wakes_on`): a rejected pod is tried again only when one of those happens.

What a plugin may have besides is in `abilities`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from motley.api.views.base import Key, Object
from motley.lib.clock import Clock
from motley.scheduler.abilities import (
    CountsByNode,
    ExplainsRejection,
    FiltersRows,
    FollowsObjects,
    KnowsAges,
    KnowsHopeless,
    MayHelp,
    ScoresRows,
    TriesOutInColumns,
    WorksInBackground,
)
from motley.scheduler.budgets import Budgets
from motley.scheduler.candidates import Candidate
from motley.scheduler.columns import Columns, Mask, Rows, Scores
from motley.scheduler.directory import Directory
from motley.scheduler.elastic import ElasticQuotas
from motley.scheduler.events import Events
from motley.scheduler.gangs import Gangs
from motley.scheduler.images import ImageArchitectures
from motley.scheduler.nominations import Nominations
from motley.scheduler.notices import Notices
from motley.scheduler.podinfo import PodInfo
from motley.scheduler.preemption import Trial
from motley.scheduler.volumes import Volumes
from motley.scheduler.waiting import Waiting

__all__ = [
    "Columns",
    "CountsByNode",
    "ExplainsRejection",
    "FiltersRows",
    "FollowsObjects",
    "KnowsAges",
    "KnowsHopeless",
    "Mask",
    "MayHelp",
    "PodInfo",
    "Rows",
    "Scores",
    "ScoresRows",
    "TriesOutInColumns",
    "WorksInBackground",
]

MAX_SCORE = 100.0
T = TypeVar("T", bound=Object)


# -- what plugins answer --------------------------------------------------------------------


class Verdict(Enum):
    """Answers that are not data."""

    SKIP = "skip"  # nothing to do for this pod at this point
    ALLOW = "allow"


SKIP = Verdict.SKIP
ALLOW = Verdict.ALLOW


@dataclass(frozen=True, slots=True)
class Reject:
    """No, for this reason; where a node is concerned, it is counted under it."""

    reason: str

    def and_also(self, other: "Reject") -> "Reject":
        """Both reasons; what this refusal means stays."""
        return replace(self, reason=f"{self.reason} {other.reason}")


@dataclass(frozen=True, slots=True)
class Wait:
    """Permit: not yet. Somebody tells `Handle.waiting` before the time is over, or it fails."""

    timeout_s: float


class Api(Protocol):
    """The writes a plugin may do before and at binding."""

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Create the pod's Binding. Raises ApiError."""

    async def patch_pod(self, pod: PodInfo, body: Mapping[str, Any]) -> None:
        """Strategic merge patch of the pod. Raises ApiError."""

    async def resize_pod(self, pod: PodInfo, body: Mapping[str, Any]) -> None:
        """Strategic merge patch of `pods/resize`: its containers' resources. Raises ApiError."""

    async def patch(self, cls: type[T], key: Key, body: Mapping[str, Any]) -> T:
        """Merge patch of any object; the answer is the object as it is now. Raises ApiError."""


@dataclass(frozen=True)
class Handle:
    """What a plugin may use besides its arguments."""

    nodes: Columns
    clock: Clock
    images: ImageArchitectures
    waiting: Waiting = field(default_factory=Waiting)
    volumes: Volumes = field(default_factory=Volumes)
    directory: Directory = field(default_factory=Directory)
    notices: Notices = field(default_factory=Notices)
    budgets: Budgets = field(default_factory=Budgets)
    gangs: Gangs = field(default_factory=Gangs)
    quotas: ElasticQuotas = field(default_factory=ElasticQuotas)
    nominations: Nominations = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nominations", Nominations(self.nodes))


class NoArgs(msgspec.Struct, forbid_unknown_fields=True):
    """The arguments of a plugin that takes none."""


class PluginError(Exception):
    """A plugin raised: the pod's cycle fails with a clear event, the scheduler goes on."""

    def __init__(self, plugin: str, point: str, error: Exception) -> None:
        super().__init__(f'plugin "{plugin}" failed at {point}: {type(error).__name__}: {error}')
        self.plugin = plugin
        self.point = point


# -- the extension points -------------------------------------------------------------------


class Plugin(Protocol):
    """What every plugin is: named, with the type of its arguments in the class attribute `Args`.

    It is made as `cls(args, handle)`. Points listed in a class attribute `only_where_named` are
    not served through `multiPoint`, only where a file names the plugin. A module proves that
    its plugin keeps the contract with a line that the type checker reads:
    `_: Made[FilterPlugin] = NodePorts`.
    """

    @property
    def name(self) -> str:
        """The name in configuration files."""


P_co = TypeVar("P_co", covariant=True)


class Made(Protocol[P_co]):
    """A class whose instances are plugins of a kind."""

    def __call__(self, args: Any, handle: Handle) -> P_co: ...


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Holds pods back from the queue."""

    def pre_enqueue(self, pod: PodInfo) -> Reject | None:
        """None: the pod may enter. Asked again when the pod itself changes."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the queue; exactly one, the same in every profile."""

    def sort_key(self, pod: PodInfo, queued_at: float) -> tuple[Any, ...]:
        """Smaller is sooner. `queued_at`: when the pod entered the queue, in seconds."""


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Looks at the pod once before nodes are looked at."""

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Mask | Reject | Verdict | None:
        """None: go on. SKIP: this plugin's filter has nothing to check for this pod.

        A mask: only these rows come into question. Reject: none does, without asking anyone.
        What is worth keeping for `filter` goes to `pod.state[self.name]`.
        """


@runtime_checkable
class FilterPlugin(Protocol):
    """Says which nodes can run the pod."""

    @property
    def reason(self) -> str:
        """Why a rejected node was rejected, as counted in the pod's event."""

    @property
    def wakes_on(self) -> Events:
        """Events after which a pod that this plugin rejected is worth another try."""

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the pod can run. Free rows may say anything.

        With a class attribute `static = True` the answer must depend on the pod's template
        and on node facts only, not on pods placed: it is then reused until a node changes.
        One that is kept must not be written to afterwards. See also `FiltersRows`.

        For preemption a filter says how far it looks, so that many nodes can be tried out at
        once: `scope = "requests"` promises that of the pods placed only their sum in
        `nodes.requested` matters, `scope = "node"` that only pods on the node itself do;
        `removal_helps = False` that no pod's end makes a rejected node fit.
        """


@dataclass(frozen=True, slots=True)
class Nomination:
    """PostFilter: the pod is to run here once there is room."""

    node: str
    victims: tuple[PodInfo, ...] = ()
    message: str = ""
    candidates: tuple[Candidate, ...] = ()  # all that were found, for extenders to choose from


@dataclass(frozen=True, slots=True)
class Ineligible(Reject):
    """PostFilter: the pod may not make room for itself, at least now; a nomination stays."""


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Tries to make room when no node fits (preemption)."""

    def post_filter(
        self, pod: PodInfo, nodes: Columns, rejected_by: Mapping[str, Mask], trial: Trial
    ) -> Nomination | Reject | None:
        """`rejected_by`: per filter, the rows it was the first to reject. None: nothing to say.

        `trial` asks the profile's filters again, after pods were taken out of the columns.
        """


@runtime_checkable
class PreScorePlugin(Protocol):
    """Looks at the pod and the feasible nodes once before they are scored."""

    def pre_score(self, pod: PodInfo, nodes: Columns, feasible: Mask) -> Verdict | None:
        """SKIP: this plugin does not score this pod."""


@runtime_checkable
class ScorePlugin(Protocol):
    """Says how well nodes suit the pod."""

    def score(self, pod: PodInfo, nodes: Columns) -> Scores:
        """Whole numbers 0 to 100 per row, or anything where `normalize` follows.

        `static = True` promises the same as for filters, and that `normalize` goes by the
        template and by what it is given.
        """


@runtime_checkable
class NormalizePlugin(Protocol):
    """Brings raw scores to 0…100 by comparing the feasible nodes."""

    def normalize(self, pod: PodInfo, scores: Scores, feasible: Mask) -> Scores:
        """A new array; rows that are not feasible may hold anything."""


@runtime_checkable
class ReservePlugin(Protocol):
    """Keeps books of its own beside the columns."""

    def reserve(self, pod: PodInfo, node: str) -> Reject | None:
        """The pod is assumed on the node."""

    def unreserve(self, pod: PodInfo, node: str) -> None:
        """It is not, after all. Must not fail, and may be called without `reserve`."""


@runtime_checkable
class PermitPlugin(Protocol):
    """May delay or refuse the binding (gangs)."""

    def permit(self, pod: PodInfo, node: str) -> Verdict | Reject | Wait:
        """ALLOW, Reject or Wait."""


@runtime_checkable
class PreBindPlugin(Protocol):
    """Prepares the binding (rewrites, volumes)."""

    async def pre_bind(self, pod: PodInfo, node: str, api: Api) -> None:
        """Raising fails the binding: the pod is rolled back and queued again."""


@runtime_checkable
class WaitsBeforeBinding(PreBindPlugin, Protocol):
    """A PreBind plugin that may wait long for others (volumes); it takes up no slot meanwhile."""

    def waits_s(self, pod: PodInfo) -> float:
        """How long `pre_bind` of this pod may take; 0: it does not wait."""


@runtime_checkable
class BindPlugin(Protocol):
    """Binds."""

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """None: it is bound, no other bind plugin is asked. SKIP: ask the next."""


@runtime_checkable
class PostBindPlugin(Protocol):
    """Is told of bound pods."""

    def post_bind(self, pod: PodInfo, node: str) -> None:
        """For information only."""


# kube-scheduler's name of each extension point, and the method that serves it.
POINTS: Mapping[str, str] = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "sort_key",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "score": "score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}
