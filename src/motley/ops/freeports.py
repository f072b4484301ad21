"""Ports for programs that are about to be started by tests and benchmarks.

A port that the kernel picks (`bind` to 0) is free only until it is closed: before the program that
is to have it has started, the kernel may give it to somebody else, and a test then talks to a
stranger. Hence these lie below the range from which the kernel picks, and a cursor that all
processes of a user share comes back to a port only after all the others.
"""

import fcntl
import os
import socket
import tempfile
from pathlib import Path

PORTS = range(12_000, 30_000)  # node ports are above, the kernel's own picks higher still


def free_port() -> int:
    """A port of loopback nobody has now and nobody else will be given for long."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Such ports, all different."""
    place = Path(tempfile.gettempdir()) / f"motley-ports-{os.getuid()}"
    with os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600), "r+") as cursor:
        fcntl.flock(cursor, fcntl.LOCK_EX)
        text = cursor.read()
        at = int(text) if text.isdigit() else os.getpid()
        found: list[int] = []
        for step in range(len(PORTS)):
            if len(found) == count:
                break
            port = PORTS[(at + step) % len(PORTS)]
            if _is_free(port):
                found.append(port)
        else:
            raise OSError(f"fewer than {count} free ports from {PORTS[0]} to {PORTS[-1]}")
        cursor.seek(0)
        cursor.truncate()
        cursor.write(str((PORTS.index(found[-1]) + 1) % len(PORTS) if found else at))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers bind
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
