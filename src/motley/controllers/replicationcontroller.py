"""ReplicationController: the ReplicaSet's controller over the older kind."""

from typing import ClassVar

from motley.api.views.workloads import ReplicationController
from motley.controllers.replicaset import ReplicaSetController
from motley.controllers.workload import Replicated


class ReplicationManager(ReplicaSetController):
    """See the module's docstring."""

    name = "replicationcontroller"
    kind: ClassVar[type[Replicated]] = ReplicationController
    source = "replication-controller"
