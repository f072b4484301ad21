"""What lies on disk becomes a Function, the same one every time."""

import base64
import io
import tarfile

import pytest

from motley.serverless import packing


def spec(path, **more):
    (function,) = packing.functions(path, **more)
    return function["spec"]


def test_one_python_file_is_a_function_named_after_it(tmp_path):
    (tmp_path / "say_hello.py").write_text("def run(arg): return 1\n")
    assert packing.functions(tmp_path / "say_hello.py") == [
        {
            "apiVersion": "motley.io/v1",
            "kind": "Function",
            "metadata": {"name": "say-hello"},
            "spec": {"code": "def run(arg): return 1\n"},
        }
    ]


def test_a_folder_brings_its_files_requirements_and_settings(tmp_path):
    for name, text in packing.new("shop").items():
        (tmp_path / name).write_text(text)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "tax.py").write_text("RATE = 2\n")
    (tmp_path / "requirements.txt").write_text("six\n")
    (tmp_path / "pre_run.sh").write_text("true\n")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "x.pyc").write_bytes(b"\xff\x00")
    (function,) = packing.functions(tmp_path)
    assert function["metadata"] == {"name": "shop"}
    assert function["spec"] == {
        "timeoutSeconds": 60,
        "minInstances": 0,
        "maxInstances": 10,
        "requirements": "six\n",
        "preRun": "true\n",
        "code": packing.NEW_MAIN,
        "files": {"lib/tax.py": "RATE = 2\n"},
    }


def test_files_that_are_no_text_are_packed_and_packed_alike_every_time(tmp_path):
    (tmp_path / "main.py").write_text("x = 1\n")
    (tmp_path / "model.bin").write_bytes(bytes(range(256)))
    first = spec(tmp_path, name="m")["archive"]
    (tmp_path / "model.bin").touch()
    assert spec(tmp_path, name="m")["archive"] == first
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(first))) as archive:
        assert archive.getnames() == ["main.py", "model.bin"]


def test_manifests_may_hold_several_functions_and_nothing_else(tmp_path):
    path = tmp_path / "all.yaml"
    path.write_text(
        "kind: Function\nmetadata: {name: a}\nspec: {code: x}\n---\n"
        "kind: Function\nmetadata: {name: b}\nspec: {code: y}\n"
    )
    assert [one["metadata"]["name"] for one in packing.functions(path)] == ["a", "b"]
    path.write_text("kind: Pod\nmetadata: {name: a}\n")
    with pytest.raises(packing.CannotPack, match="Pod is no Function; apply other kinds"):
        packing.functions(path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "", r"a function is a \.py, \.env or \.yaml file"),
        ("x.env", "NAME", "expected NAME=VALUE"),
        ("x.yaml", "a: [", "while parsing"),
        ("x.yaml", "", "there is no Function in it"),
        ("x.py", "#" * (2 << 20), "2048 KiB do not fit into an object"),
        ("___.py", "", "its name holds no letter"),
    ],
)
def test_what_is_no_function_is_refused_with_the_reason(tmp_path, name, content, said):
    (tmp_path / name).write_text(content)
    with pytest.raises(packing.CannotPack, match=said):
        packing.functions(tmp_path / name)


def test_a_folder_without_code_and_a_path_without_anything_are_refused(tmp_path):
    with pytest.raises(packing.CannotPack, match=r"there is no main\.py in it"):
        packing.functions(tmp_path)
    with pytest.raises(packing.CannotPack, match="there is no "):
        packing.functions(tmp_path / "absent")
