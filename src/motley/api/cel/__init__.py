"""CEL, the expression language of Kubernetes' policies, with Kubernetes' functions.

    lexer.py      text → tokens
    parser.py     tokens → tree (`tree.py`); macros such as `all` become comprehensions here
    checker.py    what can be said about an expression without running it
    values.py     values that are not plain JSON: quantities, URLs, addresses, optionals
    evaluator.py  tree → closures; runs them with a budget, so that no expression stops the server
    functions/    the standard functions, and Kubernetes' own, one file per library

Own, because a policy is somebody else's program inside the server: it must be stopped when it runs
too long, must be checked before it is stored, and must speak Kubernetes' dialect (optional fields,
`Object{…}`, quantities). Of the packaged evaluators none did all three.
"""

from motley.api.cel.errors import CelError, CompileError, CostError
from motley.api.cel.program import Meter, Program, compile_expression

__all__ = ["CelError", "CompileError", "CostError", "Meter", "Program", "compile_expression"]
