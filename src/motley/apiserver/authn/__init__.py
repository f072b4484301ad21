"""Who is asking? See `authenticator` for the order in which credentials are read."""

from motley.apiserver.authn.authenticator import Authenticator
from motley.apiserver.authn.tokens import TokenFile
from motley.apiserver.authn.user import ANONYMOUS, User

__all__ = ["ANONYMOUS", "Authenticator", "TokenFile", "User"]
