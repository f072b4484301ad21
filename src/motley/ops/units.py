"""Units for systemd: the components of a cluster, for machines that systemd starts; pure.

One unit per component and a target for all of them, made from the same specs that the supervisor
runs, so both ways start the same processes. Components that only talk and keep files are locked in;
those that make namespaces, mounts and rules are left the rights that these need. What runs below a
component (pods, nginx) outlives it: only the component's own process is ended.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from motley.ops.supervision import Spec

TARGET = "motley.target"
_RESTART_S = 2

# Kept from every component that does without: the ways out of its own files and sockets.
_LOCKED = {
    "ProtectSystem": "strict",
    "ProtectHome": "read-only",
    "ProtectKernelModules": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "PrivateTmp": "yes",
    "NoNewPrivileges": "yes",
    "LockPersonality": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "SystemCallArchitectures": "native",
}
_TALKING = {
    **_LOCKED,
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "PrivateDevices": "yes",
    "RestrictNamespaces": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "CapabilityBoundingSet": "CAP_DAC_OVERRIDE CAP_NET_BIND_SERVICE",
}
_NETWORKING = {
    **_LOCKED,
    "ProtectControlGroups": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
}
# Containers live below these two: mounts must reach the host, groups are theirs to divide.
_RUNNING_PODS = {
    "Delegate": "yes",
    "KillMode": "process",
    "TasksMax": "infinity",
    "LimitNPROC": "infinity",
    "LimitCORE": "infinity",
    "OOMScoreAdjust": "-999",
}
_OWN: dict[str, dict[str, str]] = {
    "containerd": _RUNNING_PODS,
    "node": _RUNNING_PODS,
    "proxy": {
        **_NETWORKING,
        "CapabilityBoundingSet": "CAP_DAC_OVERRIDE CAP_NET_ADMIN CAP_NET_BIND_SERVICE CAP_NET_RAW",
    },
    "gateway": {
        **_NETWORKING,
        # nginx' master gives its workers another user, and goes on when the gateway is replaced.
        "CapabilityBoundingSet": "CAP_CHOWN CAP_DAC_OVERRIDE CAP_KILL CAP_NET_ADMIN"
        " CAP_NET_BIND_SERVICE CAP_SETGID CAP_SETUID CAP_SYS_PTRACE",
        "KillMode": "process",
    },
}


def name_of(component: str) -> str:
    """A component's unit."""
    return f"motley-{component}.service"


def units(
    specs: Sequence[Spec],
    *,
    root: Path,
    environment: Mapping[str, str],
    prepare: Sequence[str],
    writable: Sequence[Path] = (),
) -> dict[str, str]:
    """File name and text of every unit.

    `prepare` is run before the first component: after a start of the machine nothing runs that the
    files may still speak of. `writable` are files outside the root that a component keeps.
    """
    made = {
        name_of(spec.name): "\n".join(
            _service(spec, root, environment, prepare if spec is specs[0] else (), writable)
        )
        for spec in specs
    }
    return {**made, TARGET: "\n".join(_target(specs))}


def _target(specs: Sequence[Spec]) -> Iterator[str]:
    yield "[Unit]"
    yield "Description=Motley: a Kubernetes-compatible cluster"
    yield f"Wants={' '.join(name_of(spec.name) for spec in specs)}"
    yield ""
    yield "[Install]"
    yield "WantedBy=multi-user.target"
    yield ""


def _service(
    spec: Spec,
    root: Path,
    environment: Mapping[str, str],
    prepare: Sequence[str],
    writable: Sequence[Path],
) -> Iterator[str]:
    after = [name_of(name) for name in spec.after]
    yield "[Unit]"
    yield f"Description=Motley {spec.name}"
    yield f"PartOf={TARGET}"
    yield f"After={' '.join(['network-online.target', *after])}"
    yield f"Wants={' '.join(['network-online.target', *after])}"
    yield "StartLimitIntervalSec=0"
    yield ""
    yield "[Service]"
    yield "Type=exec"
    if prepare:
        yield f"ExecStartPre={_command(prepare)}"
    yield f"ExecStart={_command(spec.command)}"
    for name, value in {**environment, "MOTLEY_COMPONENT": spec.name}.items():
        yield f"Environment={_quoted(f'{name}={value}')}"
    yield f"WorkingDirectory={_escaped(str(root))}"
    yield "Restart=always"
    yield f"RestartSec={_RESTART_S}"
    yield f"TimeoutStopSec={spec.grace_s:.0f}"
    own = _OWN.get(spec.name, _TALKING)
    yield "LimitNOFILE=1048576"
    for option, value in own.items():
        yield f"{option}={value}"
    if "ProtectSystem" in own:
        more = [path for path in writable if spec.name == "gateway"]
        yield f"ReadWritePaths={' '.join(_quoted(str(path)) for path in (root, *more))}"
    yield ""
    yield "[Install]"
    yield f"WantedBy={TARGET}"
    yield ""


def _escaped(text: str) -> str:
    """As systemd reads it: `%` begins a specifier."""
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    escaped = _escaped(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if not escaped or any(c in escaped for c in " \t'\";") else escaped


def _command(words: Sequence[str]) -> str:
    # `$` would be read as a variable in a command line, and nowhere else.
    return " ".join(_quoted(word).replace("$", "$$") for word in words)


def parse(text: str) -> dict[str, dict[str, list[str]]]:
    """A unit's sections and options, for those who want to check one."""
    found: dict[str, dict[str, list[str]]] = {}
    section: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            section = found.setdefault(line.strip("[]"), {})
        elif line and not line.startswith("#"):
            name, _, value = line.partition("=")
            section.setdefault(name, []).append(value)
    return found


def words_of(command: str) -> list[str]:
    """A command line of a unit, as systemd would split it."""
    return [w.replace("$$", "$").replace("%%", "%") for w in shlex.split(command)]
