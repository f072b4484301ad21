"""What each kind's objects look like, and what becomes of what clients send.

`check` reads an object by its kind's schema; `of` gives the compiled schema to patches; `openapi`
gives the published definitions to clients.
"""

from motley.api.schema.checking import Checked, check, check_as, prune
from motley.api.schema.model import (
    Field,
    Schema,
    UnknownKindError,
    definition_name,
    definitions,
    of,
    of_type,
    register,
)
from motley.api.schema.openapi import openapi

__all__ = [
    "Checked",
    "Field",
    "Schema",
    "UnknownKindError",
    "check",
    "check_as",
    "definition_name",
    "definitions",
    "of",
    "of_type",
    "openapi",
    "prune",
    "register",
]
