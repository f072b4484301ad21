import pytest

from motley.api import codec, status


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Off", False),
        ("y", True),
        ("'yes'", "yes"),
        ("012", 10),
        ("0o14", 12),
        ("0x1F", 31),
        ("08", 8),
        ("1_000", 1000),
        ("1e3", 1000),
        ("1.5", 1.5),
        ("-7", -7),
        ("1:30", "1:30"),
        ("2024-01-02", "2024-01-02"),
        ("~", None),
        ("", None),
        ("null", None),
        ("1.2.3", "1.2.3"),
        ("!!str 5", "5"),
        ("-", None),
    ],
)
def test_plain_scalars_mean_what_they_mean_to_kubectl(text, value):
    if text == "-":
        assert codec.decode_yaml("- \n") == [None]
    else:
        assert codec.decode_yaml(f"a: {text}\n") == {"a": value}


def test_keys_become_strings_and_stay_apart():
    assert codec.decode_yaml("1: a\ntrue: b\n~: c\n1.5: d\n") == {
        "1": "a",
        "true": "b",
        "null": "c",
        "1.5": "d",
    }


def test_aliases_and_merge_keys_are_unfolded_into_separate_parts():
    found = codec.decode_yaml("b: &x {c: [1]}\nd: *x\ne:\n  <<: *x\n  f: 2\n")

    assert found == {"b": {"c": [1]}, "d": {"c": [1]}, "e": {"c": [1], "f": 2}}
    assert found["b"]["c"] is not found["d"]["c"]


def test_a_stream_of_documents_leaves_out_empty_ones():
    assert codec.decode_yaml_all("a: 1\n---\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert codec.decode_yaml("") is None


def test_keys_given_twice_are_found_by_line():
    assert codec.duplicate_yaml_keys("a: 1\nb:\n  c: 1\n  c: 2\na: 3") == [
        'line 4: key "c" already set in map',
        'line 5: key "a" already set in map',
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "a: b: c",
        "a: .nan",
        "a: -.inf",
        "a: *nobody",
        "a: &a [*a]",
        "? [a]\n: b",
        "a: !!python/object/apply:os.system [x]",
        "\x00",
        b"\xff\xfe\xfa",
        "- " * 1_000_000,
        "[" * 1_000_000,
        "a: 1\n<<: 5\n",
        "".join(
            [
                "a: &a [x,x,x,x,x,x,x,x,x,x]\n",
                *(
                    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n"
                    for i in range(9)
                ),
            ]
        ),
    ],
    ids=lambda text: repr(text[:16]),
)
def test_what_has_no_json_form_is_a_bad_request(text):
    with pytest.raises(status.BadRequest):
        codec.decode_yaml(text)
