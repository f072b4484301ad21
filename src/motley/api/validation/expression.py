"""Rules for expressions in CEL that objects carry: they must compile, on known names."""

from collections.abc import Collection

from motley.api.cel import CompileError, compile_expression
from motley.api.validation.errors import Errors, invalid

# What an expression about a request may speak of.
ADMISSION = ("object", "oldObject", "request", "namespaceObject", "authorizer")
# The types whose values an expression of a mutating policy may build.
MESSAGES = ("Object", "JSONPatch")


def check(field: str, text: str, known: Collection[str], *, result: str = "") -> Errors:
    """The text compiles, names nothing unknown, and is not plainly of another type."""
    try:
        program = compile_expression(text, known, MESSAGES)
    except CompileError as error:
        yield invalid(field, text, f"compilation failed: {error}")
        return
    if result and program.type not in (result, "dyn"):
        yield invalid(field, text, f"must evaluate to {result} but got {program.type}")
