"""What ended containers left to say: their termination files, or the ends of their logs."""

import dataclasses
from pathlib import Path

from motley.node import logs
from motley.node.model import RuntimeContainer, RuntimePod, State

MESSAGE_BYTES = 4096
FALLBACK_LINES, FALLBACK_BYTES = 80, 2048


class TerminationMessages:
    """Read once per container: the file may be gone with the next start."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def added_to(self, observed: RuntimePod) -> RuntimePod:
        """The pod, its ended containers with their messages."""
        containers = []
        for container in observed.containers:
            if container.state is State.EXITED:
                if container.id not in self._known:
                    self._known[container.id] = _read(container)
                text = self._known[container.id] or container.message
                container = dataclasses.replace(container, message=text)
            containers.append(container)
        present = {c.id for c in containers}
        self._known = {k: v for k, v in self._known.items() if k in present}
        return dataclasses.replace(observed, containers=tuple(containers))


def _read(container: RuntimeContainer) -> str:
    """What the container wrote to its termination file, or the end of its log if that is asked."""
    text = b""
    path = Path(container.message_path) if container.message_path else None
    if path is not None and path.is_file():
        with path.open("rb") as file:
            text = file.read(MESSAGE_BYTES)
    wants_log = container.message_policy == "FallbackToLogsOnError" and container.exit_code != 0
    if not text and wants_log and container.log_path:
        text = logs.tail(Path(container.log_path), FALLBACK_LINES)[-FALLBACK_BYTES:]
    return text.decode("utf-8", "replace")
