"""Log rotation by size and count: rename, then tell the runtime to open a new file.

A log that cannot be rotated, or a full disk, is said once and tried again: the container goes on.
"""

from collections.abc import Iterable
from pathlib import Path

from motley.lib import journal
from motley.lib.clock import Clock, rfc3339_micro
from motley.node import logs
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.model import RuntimeContainer

log = journal.get(__name__)

LEAST_BYTES = 512  # a smaller file would be rotated at almost every line


async def rotate(
    runtime: Runtime,
    containers: Iterable[RuntimeContainer],
    clock: Clock,
    *,
    max_bytes: int,
    max_files: int,
) -> int:
    """Rotate the logs of running containers that have grown too large; returns how many."""
    count = 0
    for container in containers:
        path = Path(container.log_path) if container.log_path else None
        if path is None or not container.is_running or not path.is_file():
            continue
        if path.stat().st_size < max_bytes:
            continue
        stamp = rfc3339_micro(clock.now()).translate(str.maketrans("", "", "-:TZ."))
        rotated = path.with_name(f"{path.name}.{stamp}")
        path.rename(rotated)
        try:
            await runtime.reopen_log(container.id)
        except RuntimeFailure as error:
            # A full disk, for one: the runtime could not make the new file.
            if not path.exists():  # the runtime still writes to the renamed file: undo
                rotated.rename(path)
            log.warning("log not rotated", container=container.name, error=error)
            continue
        count += 1
        forerunners = [p for p in logs.files(path) if p != path]
        for old in forerunners[: max(0, len(forerunners) - (max_files - 1))]:
            old.unlink()
    return count
