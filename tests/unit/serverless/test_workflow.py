"""Workflows: what is written down decides what comes next, in any order, after any crash."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import motleyio
from motley.serverless.workflow import engine, program, tree
from motley.serverless.workflow.engine import FAILED, RUNNING, SUCCEEDED, Failure, Record


def read(*steps, **spec):
    return program.read({"steps": list(steps), **spec})


def task(name, next_="", function="", **more):
    return {"name": name, "function": function or name, "next": next_, **more}


class Runs:
    """An executor in small: records every step, calls functions at once, or not at all."""

    def __init__(self, workflow, arg, functions):
        self.workflow, self.arg, self.functions = workflow, arg, functions
        self.records = {}
        self.now = 100.0
        self.calls = []

    def decide(self):
        return engine.decide(self.workflow, self.arg, list(self.records.values()), 100.0, self.now)

    def begin(self, one):
        self.records[one.id] = Record(one.id, RUNNING, one.attempt, started=self.now)

    def finish(self, one):
        self.calls.append((one.id, one.attempt))
        try:
            output = self.functions[one.function](one.input)
        except Exception as error:
            self.records[one.id] = Record(
                one.id, FAILED, one.attempt, None, type(error).__name__, str(error), 0.0, self.now
            )
        else:
            self.records[one.id] = Record(
                one.id, SUCCEEDED, one.attempt, output, completed=self.now
            )

    def to_the_end(self, choose=lambda running: running[0], most=500):
        running = []
        for _ in range(most):
            decision = self.decide()
            if decision.done:
                return decision
            for one in decision.start:
                self.begin(one)
                running.append(one)
            for one in decision.begin:
                self.records[one.id] = Record(one.id, RUNNING, started=self.now)
            if running:
                one = choose(running)
                running.remove(one)
                self.finish(one)
            elif not decision.begin:
                assert decision.wake_at is not None
                assert decision.wake_at > self.now
                self.now = decision.wake_at
        raise AssertionError("the run does not end")


def test_steps_follow_each_other_and_each_gets_what_the_one_before_gave():
    runs = Runs(
        read(task("double", "add"), task("add")),
        5,
        {"double": lambda n: n * 2, "add": lambda n: n + 1},
    )
    assert runs.to_the_end().result == 11
    assert runs.calls == [("1.double", 1), ("2.add", 1)]


def test_a_choice_takes_the_first_way_that_holds_and_else_its_default():
    workflow = read(
        {
            "name": "which",
            "type": "Choice",
            "choices": [
                {"when": "input > 10", "next": "big"},
                {"when": "input > 5", "next": "mid"},
            ],
            "default": "small",
        },
        task("big"),
        task("mid"),
        task("small"),
    )
    functions = {name: lambda _, name=name: name for name in ("big", "mid", "small")}
    assert [Runs(workflow, n, functions).to_the_end().result for n in (11, 7, 1)] == [
        "big",
        "mid",
        "small",
    ]


def test_a_choice_without_a_default_that_fits_nothing_fails_by_name():
    workflow = read(
        {"name": "which", "type": "Choice", "choices": [{"when": "false", "next": "x"}]}
    )
    failure = engine.decide(workflow, 1, [], 0.0, 0.0).failure
    assert failure == Failure(
        "NoChoiceMatched", "no choice of step which holds, and it has no default"
    )


def test_a_loop_gives_every_round_a_step_of_its_own():
    workflow = read(
        task("inc", "again"),
        {
            "name": "again",
            "type": "Choice",
            "choices": [{"when": "input < 4", "next": "inc"}],
            "default": "RETURN",
        },
    )
    runs = Runs(workflow, 0, {"inc": lambda n: n + 1})
    assert runs.to_the_end().result == 4
    assert [id_ for id_, _ in runs.calls] == ["1.inc", "3.inc", "5.inc", "7.inc"]


def test_a_loop_without_end_is_ended_and_says_so():
    workflow = read(task("inc", "inc"), maxSteps=20)
    decision = Runs(workflow, 0, {"inc": lambda n: n + 1}).to_the_end()
    assert decision.failure.error == "StepLimitExceeded"
    assert "more than 20 steps" in decision.failure.message


def test_a_failed_task_is_tried_again_after_growing_pauses_until_its_attempts_are_spent():
    workflow = read(
        task("f", retry={"attempts": 4, "backoffSeconds": 1, "factor": 3, "maxBackoffSeconds": 5})
    )

    def fail(_):
        raise ValueError("no")

    runs = Runs(workflow, 0, {"f": fail})
    decision = runs.to_the_end()
    assert decision.failure == Failure("ValueError", "no")
    assert runs.calls == [("1.f", 1), ("1.f", 2), ("1.f", 3), ("1.f", 4)]
    assert runs.now == 100.0 + 1 + 3 + 5


def test_only_the_errors_that_are_meant_are_tried_again_or_caught():
    workflow = read(
        task(
            "f",
            retry={"attempts": 3, "errors": ["Timeout"]},
            catch=[{"errors": ["KeyError"], "next": "never"}, {"next": "clean"}],
        ),
        task("never"),
        task("clean"),
    )

    def fail(_):
        raise ValueError("no")

    runs = Runs(workflow, 7, {"f": fail, "clean": lambda given: given})
    assert runs.to_the_end().result == {"error": "ValueError", "message": "no", "input": 7}
    assert runs.calls == [("1.f", 1), ("2.clean", 1)]


def test_branches_run_side_by_side_and_their_results_keep_their_places():
    workflow = read(
        {"name": "both", "type": "Parallel", "branches": ["a", "b"], "next": "sum"},
        task("a", "a2"),
        task("a2"),
        task("b"),
        task("sum"),
    )
    functions = {
        "a": lambda n: n + 1,
        "a2": lambda n: n * 10,
        "b": lambda n: n - 1,
        "sum": lambda parts: parts,
    }
    first = Runs(workflow, 5, functions).decide()
    assert [one.id for one in first.start] == ["1.both/0/1.a", "1.both/1/1.b"]
    for choose in (lambda running: running[0], lambda running: running[-1]):
        assert Runs(workflow, 5, functions).to_the_end(choose).result == [60, 4]


def test_a_failed_branch_ends_its_sisters_and_may_be_caught():
    workflow = read(
        {
            "name": "both",
            "type": "Parallel",
            "branches": ["bad", "slow"],
            "catch": [{"next": "clean"}],
        },
        task("bad"),
        task("slow"),
        task("clean"),
    )
    records = [
        Record("1.both/0/1.bad", FAILED, error="Boom", message="m"),
        Record("1.both/1/1.slow", RUNNING),
    ]
    decision = engine.decide(workflow, 1, records, 0.0, 1.0)
    assert [one.function for one in decision.start] == ["clean"]
    assert decision.live == frozenset(), "the slow one is wanted no more"
    # … and what a later branch would have started is not started.
    alone = engine.decide(workflow, 1, records[:1], 0.0, 1.0)
    assert [one.function for one in alone.start] == ["clean"]


def test_a_map_goes_through_its_items_so_many_at_a_time():
    workflow = read(
        {
            "name": "all",
            "type": "Map",
            "items": "input.list",
            "each": "square",
            "maxConcurrency": 2,
        },
        task("square"),
    )
    runs = Runs(workflow, {"list": [1, 2, 3, 4, 5]}, {"square": lambda n: n * n})
    assert len(runs.decide().start) == 2
    assert runs.to_the_end(lambda running: running[-1]).result == [1, 4, 9, 16, 25]
    empty = Runs(workflow, {"list": []}, {})
    assert empty.to_the_end().result == []


def test_what_is_no_list_is_not_gone_through():
    workflow = read({"name": "all", "type": "Map", "items": "input", "each": "x"}, task("x"))
    assert engine.decide(workflow, "abc", [], 0.0, 0.0).failure == Failure(
        "ExpressionError", "items of step all is no list: str"
    )


def test_a_pause_is_begun_once_and_ends_at_its_time():
    workflow = read({"name": "rest", "type": "Wait", "seconds": 30, "next": "f"}, task("f"))
    decision = engine.decide(workflow, 1, [], 0.0, 5.0)
    assert [one.id for one in decision.begin] == ["1.rest"]
    begun = [Record("1.rest", RUNNING, started=5.0)]
    waiting = engine.decide(workflow, 1, begun, 0.0, 20.0)
    assert (waiting.begin, waiting.start, waiting.wake_at) == ([], [], 35.0)
    assert [one.id for one in engine.decide(workflow, 1, begun, 0.0, 35.0).start] == ["2.f"]


def test_input_and_output_are_shaped_by_expressions():
    workflow = read(
        task(
            "f",
            "end",
            input="{'n': input.n, 'of': arg.name}",
            output="{'was': input, 'is': output}",
        ),
        {"name": "end", "type": "Succeed", "output": "output['is']"},
    )
    runs = Runs(workflow, {"n": 3, "name": "x"}, {"f": lambda given: [given["n"], given["of"]]})
    assert runs.to_the_end().result == [3, "x"]


def test_an_expression_that_cannot_be_computed_fails_the_step_with_its_text():
    failure = engine.decide(read(task("f", input="input.missing")), {}, [], 0.0, 0.0).failure
    assert failure.error == "ExpressionError"
    assert failure.message.startswith("input.missing: ")


def test_a_run_that_takes_too_long_is_ended():
    workflow = read(task("f"), timeoutSeconds=60)
    running = [Record("1.f", RUNNING, started=0.0)]
    assert engine.decide(workflow, 0, running, 0.0, 59.0).wake_at == 60.0
    assert engine.decide(workflow, 0, running, 0.0, 60.0).failure == Failure(
        "Timeout", "the workflow took longer than 60 s"
    )
    # What is done in time stays done, whenever somebody looks.
    done = [Record("1.f", SUCCEEDED, output=1)]
    assert engine.decide(workflow, 0, done, 0.0, 61.0).result == 1


@pytest.mark.parametrize(
    ("steps", "spec", "said"),
    [
        ([task("a", "b")], {}, "spec.steps[0].next: no step is called 'b'"),
        ([task("a")], {"start": "z"}, "spec.start: no step is called 'z'"),
        ([{"name": "a"}], {}, "spec.steps[0].function: a Task needs it"),
        (
            [{"name": "a", "type": "Map", "items": "input"}],
            {},
            "spec.steps[0].each: a Map needs it",
        ),
        ([{"name": "a", "type": "Parallel"}], {}, "spec.steps[0].branches: a Parallel needs them"),
        (
            [{"name": "a", "type": "Choice"}],
            {},
            "spec.steps[0].choices: a Choice needs one, or a default",
        ),
        (
            [{"name": "a", "type": "Pass", "retry": {}}],
            {},
            "spec.steps[0].retry: only a Task is tried again, not a Pass",
        ),
        ([task("RETURN")], {}, "spec.steps[0].name: RETURN is the end, not a step"),
    ],
)
def test_what_is_wrong_with_a_workflow_is_said_with_its_field(steps, spec, said):
    assert said in program.problems(read(*steps, **spec))


def test_an_expression_that_cannot_be_compiled_is_a_problem_of_its_field():
    (said,) = program.problems(read(task("a", input="input +")))
    assert said.startswith("spec.steps[0].input: ")


def test_the_schema_fills_in_what_a_retry_leaves_out():
    kinds = {row.kind: row for row in motleyio.rows()}
    assert kinds["Workflow"].definition is not None
    assert program.Retry().pause_s(200) == 60.0


def test_what_may_follow_a_step_is_known_while_it_runs():
    workflow = read(
        task("a", "which", catch=[{"next": "clean"}]),
        {
            "name": "which",
            "type": "Choice",
            "choices": [{"when": "true", "next": "both"}],
            "default": "a",
        },
        {"name": "both", "type": "Parallel", "branches": ["b", "c"], "next": "d"},
        task("b", function="fb"),
        task("c"),
        task("d"),
        task("clean"),
    )
    assert program.followers(workflow, "a") == {"clean", "fb", "c", "d"}
    assert program.followers(workflow, "d") == set()


# A second, plain interpreter: calls functions where they stand, one branch after the other.


def plainly(workflow, name, data, functions):
    steps = workflow.by_name()
    while name and name != "RETURN":
        step = steps[name]
        try:
            if step.type == "Parallel":
                data = [plainly(workflow, one, data, functions) for one in step.branches]
            elif step.type == "Map":
                data = [plainly(workflow, step.each, one, functions) for one in data]
            elif step.type == "Choice":
                name = step.choices[0].next if len(str(data)) % 2 else step.default
                continue
            else:
                data = functions[step.function](data)
        except ValueError as error:
            if not step.catch:
                raise
            data = {"error": "ValueError", "message": str(error), "input": data}
            name = step.catch[0].next
            continue
        name = step.next
    return data


@st.composite
def workflows(draw):
    """Programs whose steps lead only forward, so that they end."""
    count = draw(st.integers(1, 7))
    names = [f"s{number}" for number in range(count)]
    steps = []
    for number, name in enumerate(names):
        later = names[number + 1 :]
        way = st.sampled_from([*later, ""])
        kinds = ["Task", "Task", *(("Parallel", "Choice") if later else ())]
        kind = draw(st.sampled_from(kinds))
        step = {"name": name, "type": kind, "next": draw(way)}
        if kind == "Task":
            step["function"] = draw(st.sampled_from(["wrap", "fail", "tag"]))
            step["retry"] = {"attempts": draw(st.integers(1, 2)), "backoffSeconds": 1}
        if kind == "Parallel":
            step["branches"] = draw(st.lists(st.sampled_from(later), min_size=1, max_size=3))
        if kind == "Choice":
            # What the plain one does by hand: an odd length goes left.
            step["choices"] = [
                {"when": "size(string(input)) % 2 == 1", "next": draw(way) or "RETURN"}
            ]
            step["default"] = draw(way) or "RETURN"
            step["next"] = ""
        if kind in ("Task", "Parallel") and later and draw(st.booleans()):
            step["catch"] = [{"next": draw(st.sampled_from(later))}]
        steps.append(step)
    return read(*steps, maxSteps=5000)


def wrap(data):
    return f"<{data}>"


def tag(data):
    return f"{data}!"


def fail(data):
    if len(str(data)) % 3 == 0:
        raise ValueError("no")
    return f"ok{data}"


FUNCTIONS = {"wrap": wrap, "tag": tag, "fail": fail}


@settings(max_examples=150, deadline=None)
@given(workflow=workflows(), order=st.randoms(use_true_random=False))
def test_in_whatever_order_steps_end_and_however_often_it_is_asked_the_result_is_the_plain_one(
    workflow, order
):
    if any(step.type == "Choice" for step in workflow.steps) and any(
        step.type == "Parallel" or step.catch for step in workflow.steps
    ):
        return  # the plain one's text of lists and maps is not CEL's
    try:
        expected = plainly(workflow, workflow.first, "x", FUNCTIONS)
    except ValueError:
        expected = None
    runs = Runs(workflow, "x", FUNCTIONS)

    def choose(running):
        assert runs.decide().start == [], "what was started is not started again"
        return order.choice(running)

    decision = runs.to_the_end(choose)
    assert decision.result == expected
    assert (decision.failure is None) == (expected is not None)
    assert len(runs.calls) == len(set(runs.calls)), "no attempt runs twice"


def test_the_tree_shows_branches_attempts_and_why_a_step_failed():
    records = [
        Record("10.last", RUNNING, started=9.0),
        Record("2.both/1/1.bill", FAILED, 2, None, "Timeout", "too slow", 1.0, 1.41),
        Record("1.check", SUCCEEDED, started=0.0, completed=0.031),
        Record("2.both/0/1.pack", SUCCEEDED, started=1.0, completed=2.002),
    ]
    shown = tree.lines("run", RUNNING, 10.0, records, 10.0)
    assert shown[1].endswith("Succeeded   0.031 s")
    assert shown[2] == "├─ 2.both"
    assert shown[3] == "│  ├─ branch 0"
    assert "attempt 2" in shown[6]
    assert shown[6].endswith("Timeout: too slow")
    assert shown[7].startswith("└─ 10.last")
    assert shown[7].endswith("1.000 s")
