"""What the runtime says about itself, its images and its commands."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Version:
    """Which runtime answers."""

    name: str
    version: str
    api_version: str

    @property
    def is_containerd(self) -> bool:
        """Does the socket also speak containerd's own API?"""
        return self.name == "containerd"


@dataclass(frozen=True, slots=True)
class Readiness:
    """The runtime's own opinion of itself; empty text means well."""

    runtime: str
    network: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image in the runtime's store."""

    id: str
    tags: tuple[str, ...]
    digests: tuple[str, ...]
    size_bytes: int
    uid: int | None
    username: str
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What a container has used: CPU time in all, memory that cannot be taken from it, and what it
    wrote into its own layer."""

    container_id: str
    at: float
    cpu_s: float
    working_set_bytes: int
    written_bytes: int = 0
    written_inodes: int = 0
