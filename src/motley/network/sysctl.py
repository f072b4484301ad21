"""Kernel parameters of this network namespace."""

from pathlib import Path

_ROOT = Path("/proc/sys")


def escape(interface: str) -> str:
    """An interface name as one part of a parameter's name: a dot in it becomes a slash."""
    return interface.replace(".", "/")


def path(name: str) -> Path:
    """Where `net.ipv4.ip_forward` lies; as in sysctl(8) a slash in the name stands for a dot."""
    return _ROOT.joinpath(*(part.replace("/", ".") for part in name.split(".")))


def read(name: str) -> str | None:
    """The parameter's value, or None where this kernel has no such parameter."""
    try:
        return path(name).read_text().strip()
    except FileNotFoundError:
        return None


def write(name: str, value: str, *, missing_ok: bool = False) -> bool:
    """Set the parameter unless it has the value already; False where it does not exist.

    A parameter that is right is not written: it may be read-only for us.
    """
    present = read(name)
    if present is None:
        if missing_ok:
            return False
        raise FileNotFoundError(f"kernel parameter {name} does not exist")
    if present != value:
        path(name).write_text(value)
    return True
