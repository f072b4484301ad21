"""May they? See `access` for the way of a request, `authorizer` for who decides."""

from motley.apiserver.authz.access import Access, StoredObjects
from motley.apiserver.authz.authorizer import Authorizer

__all__ = ["Access", "Authorizer", "StoredObjects"]
