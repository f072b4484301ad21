"""A function's `.env` file: lines of NAME=VALUE that a shell could read.

Nothing is executed: quotes are taken off, a comment ends a line, and that is all. Paths are meant
from the directory the command runs in, as the document's scripts mean them, or else from that of
the file itself.
"""

import base64
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)$")
_NEEDED = ("NAME", "MAIN")
# Further than the document: how many instances, where its text speaks of them without a name.
_COUNTS = {
    "INIT_INSTANCE_NUM": "initInstanceNum",
    "MIN_INSTANCE_NUM": "minInstanceNum",
    "MAX_INSTANCE_NUM": "maxInstanceNum",
}
_DEFAULT_VERSION = "v1"  # the document's uploader's


class BadFile(ValueError):
    """A file that cannot be read as a function; the message says where and why."""


def parse(text: str, name: str) -> dict[str, str]:
    """The variables of a file; `name` is for its errors."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line)
        if match is None:
            raise BadFile(f"{name}:{number}: expected NAME=VALUE, found {line.strip()!r}")
        try:
            words = shlex.split(match[2], comments=True)
        except ValueError as error:
            raise BadFile(f"{name}:{number}: {error}") from None
        if len(words) > 1:
            raise BadFile(f"{name}:{number}: a value with spaces needs quotes")
        found[match[1]] = words[0] if words else ""
    return found


def template(variables: Mapping[str, str], beside: Path, name: str) -> dict[str, Any]:
    """The document's template of a function, with the files that the variables name."""
    for needed in _NEEDED:
        if not variables.get(needed):
            raise BadFile(f"{name}: {needed} is missing")
    spec: dict[str, Any] = {
        "name": variables["NAME"],
        "function": _encoded(variables["MAIN"], beside, f"{name}: MAIN"),
        "left": variables.get("LEFT_BRANCH", ""),
        "right": variables.get("RIGHT_BRANCH", ""),
    }
    if variables.get("PRE_RUN"):
        spec["preRun"] = _encoded(variables["PRE_RUN"], beside, f"{name}: PRE_RUN")
    if variables.get("ADDR"):
        spec["serviceAddress"] = variables["ADDR"]
    for variable, field in _COUNTS.items():
        if variables.get(variable):
            try:
                spec[field] = int(variables[variable])
            except ValueError:
                said = f"{variable} is no number: {variables[variable]!r}"
                raise BadFile(f"{name}: {said}") from None
    return {
        "apiVersion": variables.get("VERSION") or _DEFAULT_VERSION,
        "kind": "Func",
        "metadata": {"name": variables["NAME"], "namespace": "default"},
        "spec": spec,
    }


def load(path: Path) -> dict[str, Any]:
    """The template of an `.env` file."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadFile(f"{path}: {error}") from None
    return template(parse(text, str(path)), path.parent, str(path))


def _encoded(written: str, beside: Path, what: str) -> str:
    for candidate in (Path(written), beside / written, beside / Path(written).name):
        if candidate.is_file():
            return base64.b64encode(candidate.read_bytes()).decode()
    raise BadFile(f"{what}: there is no file {written}, neither here nor in {beside}")
