"""What a function needs beside its code: packages and the result of its preRun script.

All of it lies in one directory. It is made once; a copy of the directory, taken by whoever
specialises instances, is laid under the next ones instead of making it again.

Most functions need none of this, so what it takes is imported when it is used: a pod that starts
with nothing kept warm waits for every import.
"""

from __future__ import annotations

import base64
import io
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tarfile

_SHOWN = 2000
_FETCH_TIMEOUT_S = 60.0
_MOST_BYTES = 256 << 20


class Failed(Exception):
    """The layer cannot be made; the message says what was tried and what came of it."""


def unpack(archive: bytes, directory: str) -> None:
    """A zip or tar, compressed or not; nothing lands outside of the directory."""
    import tarfile
    import zipfile

    os.makedirs(directory, exist_ok=True)
    data = io.BytesIO(archive)
    if zipfile.is_zipfile(data):
        with zipfile.ZipFile(data) as zipped:
            _check_size(sum(item.file_size for item in zipped.infolist()))
            zipped.extractall(directory)  # zipfile itself keeps names inside
        return
    data.seek(0)
    try:
        with tarfile.open(fileobj=data) as tar:
            members = tar.getmembers()
            _check_size(sum(item.size for item in members))
            for item in members:
                _check_inside(item, directory)
            tar.extractall(directory, members)
    except tarfile.TarError as error:
        raise Failed(f"the archive is neither a zip nor a tar: {error}") from error


def _check_size(size: int) -> None:
    if size > _MOST_BYTES:
        raise Failed(f"the archive holds {size} bytes, more than {_MOST_BYTES}")


def _check_inside(item: tarfile.TarInfo, directory: str) -> None:
    root = os.path.realpath(directory)
    base = os.path.dirname(os.path.join(root, item.name))
    targets = [os.path.join(root, item.name)]
    if item.issym():
        targets.append(os.path.join(base, item.linkname))
    elif item.islnk():
        targets.append(os.path.join(root, item.linkname))
    for target in targets:
        path = os.path.realpath(target)
        if path != root and not path.startswith(root + os.sep):
            raise Failed(f"the archive's {item.name} leads outside")
    if item.isdev():
        raise Failed(f"the archive's {item.name} is a device")


def pack(directory: str) -> bytes:
    """The directory as a compressed tar."""
    import tarfile

    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", compresslevel=1) as tar:
        tar.add(directory, ".")
    return data.getvalue()


def make(settings: dict[str, Any], directory: str, code: str, timeout_s: float) -> bool:
    """Make the layer, or lay the copy that was sent; was there anything to make?"""
    os.makedirs(os.path.join(directory, "site"), exist_ok=True)
    sent = settings.get("layer")
    if sent:
        unpack(base64.b64decode(sent), directory)
        return False
    lines = requirements(settings.get("requirements"))
    script = settings.get("preRun") or ""
    if lines:
        _install(lines, os.path.join(directory, "site"), code, timeout_s)
    if script.strip():
        _run("preRun", ["sh", "-e", "-c", script], code, environment(directory), timeout_s)
    return bool(lines or script.strip())


def requirements(value: Any) -> list[str]:
    """The lines of a list, or of a text as pip reads it."""
    lines = value.splitlines() if isinstance(value, str) else value or []
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def environment(directory: str) -> dict[str, str]:
    """With it, `pip install` in a script puts packages into the layer."""
    site = os.path.join(directory, "site")
    return {
        **os.environ,
        "MOTLEY_LAYER": directory,
        "PIP_TARGET": site,
        "PIP_NO_CACHE_DIR": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPATH": site,
        "HOME": directory,
        "PATH": os.path.join(site, "bin") + os.pathsep + os.environ.get("PATH", "/usr/bin:/bin"),
    }


def _install(lines: list[str], site: str, code: str, timeout_s: float) -> None:
    import subprocess

    if all(line.endswith(".whl") for line in lines):
        for line in lines:
            _wheel(line, site, code)
        return
    if subprocess.run([sys.executable, "-c", "import pip"], capture_output=True).returncode != 0:
        raise Failed(
            "requirements need pip, which this image does not have: name wheels (paths beside the"
            " code, or URLs), or set spec.image to an image with pip"
        )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site, *lines]
    _run("requirements", command, code, environment(os.path.dirname(site)), timeout_s)


def _wheel(line: str, site: str, code: str) -> None:
    """A wheel of pure Python is a zip of what is to lie in the directory."""
    import urllib.request
    import zipfile

    try:
        if line.startswith(("http://", "https://")):
            with urllib.request.urlopen(line, timeout=_FETCH_TIMEOUT_S) as answer:
                data = answer.read(_MOST_BYTES)
        else:
            with open(os.path.join(code, line), "rb") as file:
                data = file.read()
    except OSError as error:
        raise Failed(f"requirement {line}: {error}") from error
    if not zipfile.is_zipfile(io.BytesIO(data)):
        raise Failed(f"requirement {line} is no wheel")
    unpack(data, site)


def _run(what: str, command: list[str], cwd: str, env: dict[str, str], timeout_s: float) -> None:
    import subprocess

    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{what} did not end within {timeout_s:.0f} s") from None
    except OSError as error:
        raise Failed(f"{what}: {error}") from error
    text = done.stdout.decode(errors="replace")
    if text:
        sys.stdout.write("".join(f"[{what}] {line}\n" for line in text.splitlines()))
        sys.stdout.flush()
    if done.returncode != 0:
        raise Failed(f"{what} ended with {done.returncode}: {text[-_SHOWN:].strip()}")
