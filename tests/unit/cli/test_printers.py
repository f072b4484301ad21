import pytest

from motley.cli import printers


def test_columns_are_as_wide_as_their_widest_cell():
    assert printers.table(("A", "LONG"), [("wide cell", 1), ("x", 22)]) == (
        "A           LONG\nwide cell   1\nx           22"
    )


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (125, "2m5s"), (600, "10m"), (3700, "1h1m"), (90000, "25h")],
)
def test_ages_read_as_in_kubectl(seconds, text):
    assert printers.age(seconds) in (text, "1d1h")


def test_a_document_is_json_or_yaml():
    assert printers.document({"a": [1]}, "json") == '{\n  "a": [\n    1\n  ]\n}'
    assert printers.document({"a": [1]}, "yaml") == "a:\n- 1"
