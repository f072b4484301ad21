"""The document's way to functions: its files and templates, read as Functions."""

import base64

import pytest

from motley.api import status
from motley.api.conversion import minik8s_func as templates
from motley.serverless.legacy import envfile


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def write(directory, **variables):
    (directory / "f.py").write_text("def run(arg):\n    return arg\n")
    (directory / "pre.sh").write_text("true\n")
    path = directory / "f.env"
    path.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
    return path


def test_the_documents_file_becomes_a_function_with_its_branches_and_scripts(tmp_path):
    path = write(
        tmp_path,
        API_SERVER="192.168.1.10",
        PORT="8080",
        VERSION="v2",
        NAME="is_hello",
        MAIN="f.py",
        PRE_RUN="pre.sh",
        LEFT_BRANCH="append_world",
        RIGHT_BRANCH="RETURN",
        ADDR="10.7.0.3",
    )
    assert templates.to_function(envfile.load(path)) == {
        "apiVersion": "motley.io/v1",
        "kind": "Function",
        "metadata": {
            "name": "is-hello",
            "namespace": "default",
            "annotations": {"motley.io/func-name": "is_hello"},
        },
        "spec": {
            "version": "v2",
            "code": "def run(arg):\n    return arg\n",
            "preRun": "true\n",
            "left": "append-world",
            "right": "RETURN",
            "address": "10.7.0.3",
        },
    }


def test_without_a_version_it_is_the_documents_first_and_instances_can_be_counted(tmp_path):
    path = write(tmp_path, NAME="f", MAIN="f.py", INIT_INSTANCE_NUM="2", MAX_INSTANCE_NUM="5")
    spec = templates.to_function(envfile.load(path))["spec"]
    assert (spec["version"], spec["initialInstances"], spec["maxInstances"]) == ("v1", 2, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NAME", "f.env:1: expected NAME=VALUE, found 'NAME'"),
        ("# a comment\n\nNAME=a b", "f.env:3: a value with spaces needs quotes"),
        ("NAME='a", "f.env:1: No closing quotation"),
    ],
)
def test_a_line_that_is_none_is_named(text, said):
    with pytest.raises(envfile.BadFile) as raised:
        envfile.parse(text, "f.env")
    assert str(raised.value) == said


def test_values_may_be_quoted_exported_and_commented():
    text = "export NAME=\"a b\"  # its name\nPORT='80'\nEMPTY=\n"
    assert envfile.parse(text, "x") == {"NAME": "a b", "PORT": "80", "EMPTY": ""}


def test_nothing_in_a_file_is_executed():
    assert envfile.parse("NAME='$(touch /x)'", "x") == {"NAME": "$(touch /x)"}


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(envfile.BadFile, match=r"f\.env: MAIN is missing"):
        envfile.load(write(tmp_path, NAME="f"))
    with pytest.raises(envfile.BadFile, match=r"MAIN: there is no file none\.py"):
        envfile.load(write(tmp_path, NAME="f", MAIN="none.py"))
    with pytest.raises(envfile.BadFile, match="MAX_INSTANCE_NUM is no number"):
        envfile.load(write(tmp_path, NAME="f", MAIN="f.py", MAX_INSTANCE_NUM="many"))
    with pytest.raises(envfile.BadFile, match="No such file"):
        envfile.load(tmp_path / "absent.env")


TEMPLATE = {"apiVersion": "v2", "kind": "Func", "spec": {"name": "f", "function": encoded("x = 1")}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "v3"}, "apiVersion: 'v3' is none of v1, v2"),
        ({"kind": "Job"}, "kind: 'Job' is not Func"),
        ({"spec": None}, "spec: required"),
        ({"spec": {"function": encoded("x")}}, "spec.name: required"),
        ({"spec": {"name": "___", "function": encoded("x")}}, "'___' has no letter and no digit"),
        ({"spec": {"name": "f"}}, "spec.function: required, the file's text in base64"),
        ({"spec": {"name": "f", "function": "!"}}, "spec.function: no text in base64"),
        (
            {"spec": {"name": "f", "function": encoded("x"), "serviceAddress": "here"}},
            "spec.serviceAddress: 'here' is no IP address",
        ),
    ],
)
def test_a_template_that_cannot_be_read_is_refused_with_the_field(change, said):
    with pytest.raises(status.BadRequest) as raised:
        templates.to_function({**TEMPLATE, **change})
    assert said in str(raised.value)


def test_a_function_is_shown_as_the_template_it_came_from():
    template = {
        "apiVersion": "v1",
        "kind": "Func",
        "metadata": {"name": "append_World", "namespace": "default"},
        "spec": {
            "name": "append_World",
            "function": encoded("a"),
            "preRun": encoded("b"),
            "left": "RETURN",
            "right": "other",
            "serviceAddress": "10.0.0.1",
            "maxInstanceNum": 3,
        },
    }
    shown = templates.to_template(templates.to_function(template))
    assert shown == {**template, "status": {}}


def test_two_names_that_would_be_one_object_are_told_apart():
    function = templates.to_function(TEMPLATE | {"spec": {**TEMPLATE["spec"], "name": "a_b"}})
    templates.refuse_another(function, "a_b")
    with pytest.raises(status.Conflict, match="'a-b' and 'a_b' would be the same Function 'a-b'"):
        templates.refuse_another(function, "a-b")


def test_an_object_of_the_documents_kind_is_read_as_the_function_it_means():
    obj = {"apiVersion": "v1", "kind": "Func", "spec": {"name": "a_b", "function": encoded("x")}}
    said = templates.read_func(obj)
    assert (obj["kind"], obj["metadata"]["name"], obj["spec"]["code"]) == ("Function", "a-b", "x")
    assert said == [
        'kind: "Func" is read as motley.io/v1 Function',
        'metadata.name: read as "a-b"',
    ]
