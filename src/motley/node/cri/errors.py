"""Errors of the container runtime.

RuntimeFailure            the runtime answered with an error: its text says what
├── RuntimeNotFound       no such sandbox, container or image
└── RuntimeUnavailable    no answer: not running, restarting, or too slow; try again
"""


class RuntimeFailure(Exception):
    """The container runtime refused or could not do it."""


class RuntimeNotFound(RuntimeFailure):
    """The runtime does not know this id."""


class RuntimeUnavailable(RuntimeFailure):
    """The runtime does not answer."""
