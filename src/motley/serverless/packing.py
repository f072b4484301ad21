"""What a person has on disk, as a Function: one Python file, a folder, an `.env` file, manifests.

A folder's `main.py` is the code, `requirements.txt` and `pre_run.sh` are what their names say, and
`function.yaml`, if there is one, says the rest. Other files come along: as text when all of them
are text, else packed together.

Invariant: packing the same files twice gives the same Function, byte for byte, so that a second
deployment changes nothing and replaces no instance.
"""

import base64
import gzip
import io
import re
import tarfile
from pathlib import Path
from typing import Any

import yaml

from motley.api import status
from motley.api.conversion import minik8s_func
from motley.serverless.legacy import envfile

Document = dict[str, Any]
API_VERSION = "motley.io/v1"
MAIN = "main.py"
MANIFEST = "function.yaml"
REQUIREMENTS = "requirements.txt"
PRE_RUN = "pre_run.sh"
LIMIT_BYTES = 1 << 20  # an object must fit into the store
_LEFT_OUT = {"__pycache__", ".git", ".venv", "node_modules", ".mypy_cache", ".pytest_cache"}

NEW_MAIN = '''"""A function: `run` gets the argument; what it returns goes back to the caller."""


def run(arg):
    return f"hello, {arg or 'world'}"
'''
NEW_MANIFEST = """# How {name} runs; the rest has its defaults (kubectl explain function.spec).
apiVersion: motley.io/v1
kind: Function
metadata:
  name: {name}
spec:
  timeoutSeconds: 60
  minInstances: 0
  maxInstances: 10
"""


class CannotPack(ValueError):
    """What was given is no function; the message says why."""


def functions(path: Path, name: str = "") -> list[Document]:
    """The Functions that a file or folder describes."""
    if not path.exists():
        raise CannotPack(f"there is no {path}")
    if path.is_dir():
        return [_named(_folder(path), name, path)]
    try:
        if path.suffix == ".env":
            return [_named(minik8s_func.to_function(envfile.load(path)), name, path)]
        if path.suffix in (".yaml", ".yml"):
            return [_named(one, name, path) for one in _manifests(path)]
        if path.suffix == ".py":
            return [_named({"spec": {"code": _text(path)}}, name, path)]
        if path.name.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz")):
            spec = {"archive": _encoded(path.read_bytes(), str(path))}
            return [_named({"spec": spec}, name, path)]
    except (envfile.BadFile, status.BadRequest) as error:
        raise CannotPack(str(error)) from None
    raise CannotPack(f"{path}: a function is a .py, .env or .yaml file, an archive or a folder")


def new(name: str) -> dict[str, str]:
    """The files of a new function, by name."""
    return {MAIN: NEW_MAIN, MANIFEST: NEW_MANIFEST.format(name=name)}


def _manifests(path: Path) -> list[Document]:
    try:
        found = [one for one in yaml.safe_load_all(_text(path)) if one is not None]
    except yaml.YAMLError as error:
        raise CannotPack(f"{path}: {error}") from None
    for one in found:
        if not isinstance(one, dict) or one.get("kind") != "Function":
            kind = one.get("kind") if isinstance(one, dict) else type(one).__name__
            raise CannotPack(f"{path}: {kind} is no Function; apply other kinds with kubectl")
    if not found:
        raise CannotPack(f"{path}: there is no Function in it")
    return found


def _folder(path: Path) -> Document:
    main = path / MAIN
    if not main.is_file():
        raise CannotPack(f"{path}: there is no {MAIN} in it")
    manifest = path / MANIFEST
    found: Document = _manifests(manifest)[0] if manifest.is_file() else {}
    spec: Document = found.setdefault("spec", {})
    if (path / REQUIREMENTS).is_file():
        spec.setdefault("requirements", _text(path / REQUIREMENTS))
    if (path / PRE_RUN).is_file():
        spec.setdefault("preRun", _text(path / PRE_RUN))
    told = {MAIN, MANIFEST, REQUIREMENTS, PRE_RUN}
    others = {name: file for name, file in _files(path).items() if name not in told}
    texts = {name: _text_or_none(file) for name, file in others.items()}
    if None in texts.values():
        spec["archive"] = _encoded(_packed({MAIN: main, **others}), str(path))
        return found
    spec["code"] = _text(main)
    if texts:
        spec["files"] = texts
    _within(sum(len(text or "") for text in texts.values()) + len(spec["code"]), str(path))
    return found


def _files(path: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(path.rglob("*")):
        relative = file.relative_to(path)
        if file.is_file() and not _LEFT_OUT & set(relative.parts):
            found[relative.as_posix()] = file
    return found


def _packed(files: dict[str, Path]) -> bytes:
    """A tar of the files that is the same whenever and by whomever it is made."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, file in sorted(files.items()):
            data = file.read_bytes()
            member = tarfile.TarInfo(name)
            member.size = len(data)
            member.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(plain.getvalue(), mtime=0)


def _named(function: Document, name: str, path: Path) -> Document:
    """The name that was asked for, else the manifest's, else the file's."""
    metadata = function.setdefault("metadata", {})
    metadata["name"] = name or metadata.get("name") or named_after(path)
    return {"apiVersion": API_VERSION, "kind": "Function", **function}


def named_after(path: Path) -> str:
    """The name a file or folder gives to a function."""
    stem = path.resolve().name.partition(".")[0]
    found = re.sub(r"[^a-z0-9]+", "-", stem.lower()).strip("-")
    if not found:
        raise CannotPack(f"{path}: its name holds no letter and no digit; give one with --name")
    return found


def _text(path: Path) -> str:
    text = _text_or_none(path)
    if text is None:
        raise CannotPack(f"{path}: it is no text")
    _within(len(text), str(path))
    return text


def _text_or_none(path: Path) -> str | None:
    try:
        return path.read_text()
    except UnicodeDecodeError:
        return None
    except OSError as error:
        raise CannotPack(str(error)) from None


def _encoded(data: bytes, what: str) -> str:
    found = base64.b64encode(data).decode()
    _within(len(found), what)
    return found


def _within(size: int, what: str) -> None:
    if size > LIMIT_BYTES:
        raise CannotPack(
            f"{what}: {size >> 10} KiB do not fit into an object ({LIMIT_BYTES >> 10} KiB);"
            " put large files into an image (spec.image) or download them in preRun"
        )
