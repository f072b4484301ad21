"""Roles, as far as controllers read them."""

from typing import Any, ClassVar

from motley.api.views.base import LabelSelector, Object, View


class AggregationRule(View):
    """Which ClusterRoles another one is made of: those that any of the selectors matches."""

    cluster_role_selectors: list[LabelSelector] = []


class ClusterRole(Object):
    """Rights that can be granted in a namespace or everywhere."""

    API_VERSION: ClassVar[str] = "rbac.authorization.k8s.io/v1"
    KIND: ClassVar[str] = "ClusterRole"
    PLURAL: ClassVar[str] = "clusterroles"
    NAMESPACED: ClassVar[bool] = False

    rules: list[dict[str, Any]] | None = None
    aggregation_rule: AggregationRule | None = None
