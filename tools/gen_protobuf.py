"""Generate the table of Kubernetes' protobuf messages from its published .proto files.

    python tools/gen_protobuf.py KUBERNETES_CHECKOUT

The argument is a git directory or a work tree of kubernetes/kubernetes.
Only field numbers, names and types are taken: they are the wire interface. Messages that the
served kinds (and the bodies of their subresources) do not reach are left out.

Go embeds some structs: JSON shows their fields inline, protobuf as a field of its own. The JSON
schema tells which, and the table marks them.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from motley.api import schema, scheme

OUTPUT = Path(__file__).parent.parent / "src/motley/apiserver/protobuf/messages.txt"
META = "k8s.io.apimachinery.pkg.apis.meta.v1"
EXTRA_ROOTS = (
    f"{META}.DeleteOptions",
    f"{META}.Status",
    "k8s.io.api.core.v1.Binding",
    "k8s.io.api.policy.v1.Eviction",
    "k8s.io.api.autoscaling.v1.Scale",
    "k8s.io.api.authentication.v1.TokenRequest",
)
SPECIAL = {
    "k8s.io.apimachinery.pkg.api.resource.Quantity": "quantity",
    "k8s.io.apimachinery.pkg.util.intstr.IntOrString": "intorstring",
    f"{META}.Time": "time",
    f"{META}.MicroTime": "microtime",
    f"{META}.Duration": "duration",
    f"{META}.FieldsV1": "raw",
    "k8s.io.apimachinery.pkg.runtime.RawExtension": "raw",
}
# Groups that their servers define themselves.
ELSEWHERE = {
    "apiregistration": "k8s.io.kube_aggregator.pkg.apis.apiregistration",
    "apiextensions": "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions",
}
# Of a CustomResourceDefinition's schemas the JSON has another shape than the messages.
SPECIAL |= {
    f"{ELSEWHERE['apiextensions']}.v1.{name}": special
    for name, special in (
        ("JSON", "raw"),
        ("JSONSchemaPropsOrArray", "schemaorarray"),
        ("JSONSchemaPropsOrBool", "schemaorbool"),
        ("JSONSchemaPropsOrStringArray", "schemaorstrings"),
    )
}
RENAMED = {"JSONSchemaProps": {"schema": "$schema", "ref": "$ref"}}
SCALARS = {"string", "bool", "int32", "int64", "uint32", "uint64", "bytes", "double"}
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.M | re.S)
_FIELD = re.compile(
    r"^\s*(optional|repeated)?\s*(map<\s*string\s*,\s*([\w.]+)\s*>|[\w.]+)\s+(\w+) = (\d+);", re.M
)

Field = tuple[int, str, str, str]  # number, name, type, shape: "" one, "*" list, "%" map


def proto_files(checkout: Path) -> Iterator[str]:
    """The text of every .proto file at HEAD."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    for name in git("ls-tree", "-r", "--name-only", "HEAD").splitlines():
        if name.endswith("generated.proto"):
            yield git("show", f"HEAD:{name}")


def read(checkouts: list[Path]) -> dict[str, list[Field]]:
    """Every message by its full name."""
    messages: dict[str, list[Field]] = {}
    for checkout in checkouts:
        for text in proto_files(checkout):
            found = re.search(r"^package ([\w.]+);", text, re.M)
            if found is None:
                continue
            package = found.group(1)
            plain = re.sub(r"//.*", "", text)
            for name, body in _MESSAGE.findall(plain):
                messages[f"{package}.{name}"] = list(fields(package, body))
    return messages


def fields(package: str, body: str) -> Iterator[Field]:
    """The fields of one message."""
    for label, type_, value_type, name, number in _FIELD.findall(body):
        shape = "%" if value_type else "*" if label == "repeated" else ""
        bare = (value_type or type_).removeprefix(".")
        full = bare if bare in SCALARS or "." in bare else f"{package}.{bare}"
        yield int(number), name, full, shape


def roots() -> Iterator[str]:
    """The messages of the served kinds."""
    for kind in scheme.kinds():
        if kind.definition is not None:
            continue
        group = kind.group.split(".")[0] or "core"
        package = ELSEWHERE.get(group, f"k8s.io.api.{group}")
        yield f"{package}.{kind.version}.{kind.kind}"
    yield from EXTRA_ROOTS


def json_fields(name: str) -> frozenset[str] | None:
    """The JSON names of a type's fields; None where no schema is published."""
    published = "io." + name.removeprefix("k8s.io.").replace(
        "apimachinery.", "k8s.apimachinery.", 1
    )
    published = published.replace("io.api.", "io.k8s.api.", 1)
    definition = schema.definitions().get(published)
    if definition is None or "properties" not in definition:
        return None
    return frozenset(definition["properties"])


def main() -> None:
    """Write the table."""
    messages = read([Path(p) for p in sys.argv[1:]])
    # Of versions that Kubernetes no longer has, no message is published either.
    pending, reached = [name for name in roots() if name in messages], {}
    while pending:
        name = pending.pop()
        if name in reached or name in SPECIAL or name in SCALARS:
            continue
        reached[name] = messages[name]
        pending += [type_ for _, _, type_, _ in messages[name]]
    lines = [
        "# Generated by tools/gen_protobuf.py from Kubernetes' .proto files. Do not edit.",
        "# message number=name:type … ; name* is a list, name% a map, name^ is inline in JSON.",
    ]
    for name in sorted(reached):
        known = json_fields(name)
        shown = []
        for number, field, type_, shape in sorted(reached[name]):
            mark = shape
            if known is not None and field not in known and type_ in reached and not shape:
                mark = "^"
            called = RENAMED.get(name.rpartition(".")[2], {}).get(field, in_json(field))
            shown.append(f"{number}={called}{mark}:{short(SPECIAL.get(type_, type_))}")
        lines.append(" ".join([short(name), *shown]))
    OUTPUT.write_text("\n".join(lines) + "\n")


def in_json(field: str) -> str:
    """`xKubernetesListType` is `x-kubernetes-list-type`; other names are the same."""
    if not field.startswith("xKubernetes"):
        return field
    return re.sub("[A-Z]", lambda letter: f"-{letter[0].lower()}", field)


def short(name: str) -> str:
    """A full name without the part that all have in common."""
    for group, package in ELSEWHERE.items():
        name = name.replace(package, group)
    return name.removeprefix("k8s.io.api.").replace(f"{META}.", "meta.")


if __name__ == "__main__":
    main()
