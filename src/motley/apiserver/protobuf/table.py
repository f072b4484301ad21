"""The table of messages, loaded when the first protobuf body comes."""

from functools import cache
from importlib import resources
from typing import NamedTuple


class Field(NamedTuple):
    """One field of a message."""

    name: str
    type: str  # a scalar, a special type, or the name of a message
    shape: str  # "" one value, "*" a list, "%" a map, "^" inline in JSON


Message = dict[int, Field]

SCHEMA = "apiextensions.v1.JSONSchemaProps"
# Types that are a schema or something else in JSON: the number of the schema's field, and what
# the other field, numbered 1 or 2 as well, holds.
ALTERNATIVES = {
    "schemaorarray": (1, SCHEMA),
    "schemaorbool": (2, "bool"),
    "schemaorstrings": (1, "string"),
}


@cache
def messages() -> dict[str, Message]:
    """Every message by name, its fields by number."""
    text = resources.files(__package__).joinpath("messages.txt").read_text()
    found: dict[str, Message] = {}
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        name, *fields = line.split(" ")
        found[name] = dict(_field(field) for field in fields)
    return found


def _field(text: str) -> tuple[int, Field]:
    number, _, rest = text.partition("=")
    name, _, type_ = rest.partition(":")
    shape = name[-1] if name[-1] in "*%^" else ""
    name = name.removesuffix(shape)
    # JSON's names begin small, also where the .proto file's do not.
    return int(number), Field(name[:1].lower() + name[1:], type_, shape)


def message_of(api_version: str, kind: str) -> str | None:
    """The message of a kind such as `apps/v1` `Deployment`; None when there is none."""
    group, slash, version = api_version.rpartition("/")
    if slash:
        package = f"{group.split('.')[0]}.{version}"
    else:
        package = f"core.{version}"
    for candidate in (f"{package}.{kind}", f"meta.{kind}"):
        if candidate in messages():
            return candidate
    return None
