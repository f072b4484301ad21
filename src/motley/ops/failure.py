"""The one exception of operations that a person is meant to read."""


class Failure(Exception):
    """Something cannot be done; `advice` says what the person at the keyboard can do."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice
