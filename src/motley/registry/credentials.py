"""Which user and password a registry gets, from pull secrets. Pure.

Secrets hold Docker's own files: `.dockerconfigjson` (`{"auths": {server: …}}`) or the older
`.dockercfg` without the outer layer. A server may be a host, a URL, a host with a path, or have a
`*` for a part of its name; the most exact entry wins, and a broken secret is passed over.
"""

import base64
import binascii
import fnmatch
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from motley.api.views.core import Secret
from motley.lib import journal
from motley.registry.references import DOCKER_HUB, Reference

log = journal.get(__name__)

_FILES = {".dockerconfigjson": True, ".dockercfg": False}  # has the outer `auths`?


class Login(NamedTuple):
    """A user and a password, or a token that buys others."""

    username: str = ""
    password: str = ""
    identity_token: str = ""

    def basic(self) -> str:
        """As an Authorization header."""
        pair = f"{self.username}:{self.password}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def logins(secrets: Iterable[Secret], image: Reference) -> list[Login]:
    """What the secrets hold for an image's repository, best first, each once."""
    found: list[tuple[int, Login]] = []
    for secret in secrets:
        for file, has_auths in _FILES.items():
            text = secret.data.get(file)
            if text is not None:
                found += _matching(_entries(text, has_auths, secret), image)
    found.sort(key=lambda pair: -pair[0])
    return list(dict.fromkeys(login for _, login in found))


def _entries(text: str, has_auths: bool, secret: Secret) -> Mapping[str, Any]:
    try:
        document = msgspec.json.decode(base64.b64decode(text))
        entries = document["auths"] if has_auths else document
        if not isinstance(entries, dict):
            raise TypeError(type(entries).__name__)
    except (binascii.Error, ValueError, msgspec.DecodeError, LookupError, TypeError) as error:
        log.warning("pull secret is not readable", secret=secret.key, error=type(error).__name__)
        return {}
    return entries


def _matching(entries: Mapping[str, Any], image: Reference) -> Iterable[tuple[int, Login]]:
    for server, entry in entries.items():
        length = _match(server, image)
        login = _login(entry)
        if length is not None and login is not None:
            yield length, login


def _match(server: str, image: Reference) -> int | None:
    """How exactly an entry's server means this image; None: not at all."""
    host, _, path = server.removeprefix("https://").removeprefix("http://").partition("/")
    if path.startswith(("v1/", "v2/")):  # a registry's API: the same as its host
        path = path[3:]
    path = path.rstrip("/")
    if image.host == DOCKER_HUB:
        is_host = host == DOCKER_HUB or host.endswith(f".{DOCKER_HUB}")
        path = "" if path in ("v1", "v2") else path
    else:
        parts, wanted = host.split("."), image.host.split(".")
        # An address in brackets is no pattern, though it looks like one.
        is_host = host == image.host or (
            len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, wanted, parts))
        )
    is_path = not path or f"{image.repository}/".startswith(f"{path}/")
    return len(path) + (0 if "*" in host else 1) if is_host and is_path else None


def _login(entry: Any) -> Login | None:
    if not isinstance(entry, dict):
        return None
    words: dict[str, str] = {name: v for name, v in entry.items() if isinstance(v, str)}
    username, password = words.get("username", ""), words.get("password", "")
    if not username and "auth" in words:
        try:
            pair = base64.b64decode(words["auth"]).decode().rstrip("\0")
        except (binascii.Error, UnicodeDecodeError):
            return None
        username, _, password = pair.partition(":")
    login = Login(username, password, words.get("identitytoken", ""))
    return login if login != Login() else None
