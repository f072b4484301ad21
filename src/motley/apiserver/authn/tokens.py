"""Static bearer tokens from a file, as kube-apiserver's `--token-auth-file` reads them.

One line of CSV each: token, user, uid, and optionally the groups, quoted and separated by
commas. Useful for load clients and for scripts; people and components use certificates.
"""

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path

from motley.apiserver.authn.user import AUTHENTICATED, User


class TokenFile:
    """The users of a token file; tokens are kept as digests only."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = {_digest(token): user for token, user in users.items()}

    @classmethod
    def load(cls, path: Path) -> "TokenFile":
        """Read the file; ValueError names the line that cannot be understood."""
        users: dict[str, User] = {}
        with path.open(newline="") as file:
            for number, row in enumerate(csv.reader(file, skipinitialspace=True), 1):
                if not row or row[0].startswith("#"):
                    continue
                if len(row) < 3 or not row[0] or not row[1]:
                    raise ValueError(f"{path}:{number}: expected token,user,uid[,groups]")
                named = [g.strip() for g in row[3].split(",")] if len(row) > 3 else []
                groups = dict.fromkeys([*(g for g in named if g), AUTHENTICATED])
                users[row[0]] = User(row[1], tuple(groups), row[2])
        return cls(users)

    def user_of(self, token: str) -> User | None:
        """Whose token this is. Looking up a digest leaks nothing through timing."""
        return self._users.get(_digest(token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
