"""What Minik8s tells its processes by their environment, as options of `motley up` and `join`.

    API_SERVER   the control plane's address        up: --node-ip      join: the server
    PORT         its port                           up: --port         join: the server's port
    NODE_CONFIG  a file with the Node's manifest    --node-name, and for join --labels

`PORT` is a name that many programs use for other things, so nothing is read without
`--compat minik8s`; an option that was given counts more than a variable.
"""

from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from motley.apiserver.authz import restriction
from motley.ops.failure import Failure


class Told(NamedTuple):
    """What the environment says; empty where it says nothing."""

    address: str = ""
    port: int | None = None
    node_name: str = ""
    labels: Mapping[str, str] = {}

    @property
    def server(self) -> str:
        """Where the API server is; Motley's speaks HTTPS only."""
        if not self.address:
            return ""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"https://{host}" + (f":{self.port}" if self.port else "")


def read(environ: Mapping[str, str]) -> Told:
    """What is said there. Raises Failure when it cannot be meant so."""
    port = environ.get("PORT", "")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise Failure(f"PORT={port} is no port", "Unset it, or give --port.")
    name, labels = _node(environ.get("NODE_CONFIG", ""))
    return Told(environ.get("API_SERVER", ""), int(port) if port else None, name, labels)


def _node(file: str) -> tuple[str, Mapping[str, str]]:
    if not file:
        return "", {}
    try:
        document = yaml.safe_load(Path(file).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise Failure(f"NODE_CONFIG={file} cannot be read: {error}") from None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict) or document.get("kind") != "Node":
        raise Failure(f"NODE_CONFIG={file} is no manifest of a Node")
    labels = metadata.get("labels") or {}
    return str(metadata.get("name") or ""), {str(k): str(v) for k, v in labels.items()}


def for_up(options: MutableMapping[str, Any], environ: Mapping[str, str]) -> None:
    """Fill in what was not given to `motley up`: this is the control plane's machine."""
    told = read(environ)
    _fill(options, "node_ip", told.address)
    _fill(options, "api_port", told.port)
    _fill(options, "node_name", told.node_name)


def for_join(server: str, options: MutableMapping[str, Any], environ: Mapping[str, str]) -> str:
    """Fill in what was not given to `motley join`; the server to join."""
    told = read(environ)
    _fill(options, "node_name", told.node_name)
    # Architecture, system and host name are the agent's to say, and it knows.
    own = {k: v for k, v in told.labels.items() if "kubernetes.io/" not in k}
    refused = next((key for key in own if not restriction.may_label(key)), None)
    if refused is not None:
        raise Failure(f"NODE_CONFIG: a node may not give itself the label {refused}")
    _fill(options, "node_labels", ",".join(f"{k}={v}" for k, v in own.items()))
    return server or told.server


def _fill(options: MutableMapping[str, Any], name: str, value: Any) -> None:
    if options.get(name) is None and value:
        options[name] = value
