"""How the cluster's registries are reached, told to the container runtime.

One file (`motley up --registries`) says which registries speak plain HTTP, have an authority of
their own or a mirror. The controllers read it themselves; containerd has files of its own, one for
each registry, which it reads at every pull.

Invariant: only files that were made here are changed or removed.
"""

from pathlib import Path

import msgspec

from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.registry import settings
from motley.registry.settings import Registry

_MARK = "# Made by `motley up`"


def hosts_file(registry: Registry) -> str:
    """containerd's description of a registry."""
    lines = [f"{_MARK} from the file of registries; changes are overwritten."]
    for address in registry.addresses()[:1]:
        lines += [f"[host.{_text(address)}]", '  capabilities = ["pull", "resolve"]']
        if registry.ca_file:
            lines.append(f"  ca = {_text(str(Path(registry.ca_file).absolute()))}")
        if registry.insecure_skip_verify:
            lines.append("  skip_verify = true")
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    return msgspec.json.encode(value).decode()  # TOML's basic strings are JSON's


def ensure(config: Config, directory: Path) -> None:
    """Write what containerd needs to know into its directory of registries. Raises Failure."""
    try:
        listed = settings.load(Path(config.registries)).listed() if config.registries else []
    except (OSError, ValueError) as error:
        raise Failure(f"--registries {config.registries}: {error}") from None
    wanted = {registry.host: hosts_file(registry) for registry in listed}
    for found in directory.glob("*/hosts.toml"):
        if found.parent.name not in wanted and found.read_text().startswith(_MARK):
            found.unlink()
            found.parent.rmdir()
    for host, text in wanted.items():
        target = directory / host / "hosts.toml"
        if not target.exists() or target.read_text().startswith(_MARK):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
