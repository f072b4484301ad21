"""What the sum of ClusterRoles is."""

from motley.api.views.rbac import ClusterRole
from motley.controllers.clusterrole_aggregation import aggregated


def role(name: str, *verbs: str, labels: dict | None = None, sums: str = "") -> ClusterRole:
    document = {
        "metadata": {"name": name, "labels": labels or {}},
        "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]} for verb in verbs],
    }
    if sums:
        selector = {"matchExpressions": [{"key": sums, "operator": "Exists"}]}
        document["aggregationRule"] = {"clusterRoleSelectors": [selector]}
    return ClusterRole.of(document)


def verbs(rules: list[dict]) -> list[str]:
    return [verb for rule in rules for verb in rule["verbs"]]


def test_a_sum_has_the_rules_of_every_selected_role_by_name_and_once():
    total = role("sum", "old", sums="part")
    roles = [
        role("b", "list", "get", labels={"part": "1"}),
        role("a", "get", labels={"part": "2"}),
        role("c", "delete", labels={"other": "1"}),
        total,
    ]

    assert verbs(aggregated(total, roles)) == ["get", "list"]


def test_a_sum_is_never_a_part_of_itself():
    total = role("sum", "get", labels={"part": "1"}, sums="part")

    assert aggregated(total, [total]) == []


def test_a_role_that_is_no_sum_keeps_its_rules():
    plain = role("plain", "get")

    assert verbs(aggregated(plain, [plain, role("a", "list")])) == ["get"]
