"""What can go wrong, at compile time and at run time, in cel-go's words."""


class CelError(Exception):
    """An expression failed while it ran: a missing key, a wrong type, too much work."""


class CostError(CelError):
    """It took too long: nothing may catch this and go on."""


class CompileError(Exception):
    """An expression that cannot be run at all; `str()` points at the place."""

    def __init__(self, source: str, offset: int, problem: str) -> None:
        before = source[:offset]
        line = before.count("\n")
        column = offset - (before.rfind("\n") + 1)
        text = source.split("\n")[line] if source else ""
        self.problem = problem
        pointer = "." * column + "^"
        super().__init__(
            f"ERROR: <input>:{line + 1}:{column + 1}: {problem}\n | {text}\n | {pointer}"
        )
