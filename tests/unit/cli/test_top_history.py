"""What `motley top workloads --forecast` makes of lists that were read one after another."""

from motley.cli import top_history


def item(name, cpu, step_s=300, kind="Deployment"):
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "workloadKind": kind,
        "stepSeconds": step_s,
        "series": [{"cpu": cpu}],
    }


LONG = [1.0] * 200
NONE = [None] * 200


def test_a_workload_is_found_by_name_and_kind_in_every_list():
    week = [item("web", [5.0] * 200, kind="StatefulSet"), item("web", LONG), item("zebra", NONE)]
    made = top_history.expected(item("web", []), (week, []), "10m")
    assert made["cpu"] == 1.0
    assert made["error"] == 0.0


def test_while_the_week_is_short_the_hour_is_looked_at():
    week, hour = [item("web", NONE)], [item("web", LONG, 30)]
    assert top_history.expected(item("web", []), (week, hour), "10m")["cpu"] == 1.0


def test_a_workload_that_came_or_went_between_two_lists_has_too_little_history():
    week = [item("another", LONG)]
    made = top_history.expected(item("web", []), (week, []), "10m")
    assert made == {"problem": "too little history"}
