"""What the dashboard's image is made of: its package, and the two modules it shares with others.

The dashboard is written with Python's own library alone, so its files, laid over any Python, are
all it needs, on every architecture.

Invariant: only text is taken, by suffix; the image is reproducible and its fingerprint changes
with every one of the files.
"""

from pathlib import Path

import motley

PYTHONPATH = "/usr/lib/motley"
SUFFIXES = (".py", ".css", ".js", ".svg")
SHARED = (
    "__init__.py",
    "api/__init__.py",
    "api/quantity.py",
    "lib/__init__.py",
    "lib/clock.py",
)


def read() -> dict[str, str]:
    """Path in the image → text."""
    package = Path(motley.__file__).parent
    own = (path for path in (package / "dashboard").rglob("*") if path.suffix in SUFFIXES)
    every = sorted([*own, *(package / name for name in SHARED)])
    place = PYTHONPATH.strip("/")
    return {f"{place}/motley/{path.relative_to(package)}": path.read_text() for path in every}
