"""What a Debian machine must have, and how it gets it: packages by apt, kubectl where it is old.

Only what is missing is installed, and nothing that exists is changed: Debian's own containerd
service, where one runs, is left alone, and a newer kubectl comes from a newer Debian suite through
a private apt directory, so that the machine's sources stay as they are. For the tests Debian 12's
kubectl 1.20 comes the same way, under a name of its own.

`python -m motley.ops.install DIR` is the second half of `make setup`; DIR keeps what was fetched.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from motley.ops import emulation, images, rootfs
from motley.ops.failure import Failure

Say = Callable[[str], None]

# Package → a file that shows that what we need of it is there, from wherever it came.
PACKAGES = {
    "containerd": ("containerd", "ctr"),
    "runc": ("runc",),
    "nftables": ("nft",),
    "iproute2": ("ip",),
    "conntrack": ("conntrack",),
    "nginx": ("nginx",),  # serves Routes and Ingresses
    "iptables": ("iptables",),  # CNI's portmap serves hostPort with it
    "util-linux": ("nsenter",),
    "mount": ("mount",),
    "procps": ("ps",),
}
# What the tests and benchmarks run beside a cluster.
TEST_PACKAGES = {
    "etcd-server": ("etcd",),
    "docker-registry": ("docker-registry",),
    "prometheus": ("prometheus",),
    "prometheus-node-exporter": ("prometheus-node-exporter",),
    "faketime": ("faketime",),  # clocks that jump, for one process
    "chromium": ("chromium",),  # the dashboard, as people see it
    "chromium-driver": ("chromedriver",),
    # A Slurm cluster, what logs in to it, and what runs images and compilers there.
    "slurmctld": ("slurmctld",),
    "slurmd": ("slurmd",),
    "slurmdbd": ("slurmdbd",),
    "slurm-client": ("sbatch",),
    "munge": ("munged",),
    "mariadb-server": ("mariadbd", "mariadb-install-db"),
    "openssh-server": ("sshd",),
    "podman": ("podman",),
    "g++": ("cc", "c++"),
}
# Program → the service that its package would start. Motley runs its own instances.
_SERVICES = {
    "containerd": "containerd.service",
    "nginx": "nginx.service",
    "etcd": "etcd.service",
    "docker-registry": "docker-registry.service",
    "prometheus": "prometheus.service",
    "prometheus-node-exporter": "prometheus-node-exporter.service",
    "slurmctld": "slurmctld.service",
    "slurmd": "slurmd.service",
    "slurmdbd": "slurmdbd.service",
    "munged": "munge.service",
    "mariadbd": "mariadb.service",
    "sshd": "ssh.service",
    "podman": "podman.socket",
}
CNI_PACKAGE = "containernetworking-plugins"
_CNI = ("/usr/lib/cni/bridge", "/opt/cni/bin/bridge", "/usr/libexec/cni/bridge")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KUBECTL_MINIMUM = (1, 31)  # the first that speaks WebSocket for exec by default
KUBECTL_SUITE = "trixie"
OLD_KUBECTL_SUITE = "bookworm"
_KUBECTL_PACKAGES = ("kubectl", "kubernetes-client")


def missing() -> list[str]:
    """Packages whose programs this machine lacks."""
    lacking = _lacking(PACKAGES)
    if not any(Path(file).exists() for file in _CNI):
        lacking.append(CNI_PACKAGE)
    return lacking


def _lacking(table: Mapping[str, Sequence[str]]) -> list[str]:
    return [
        package
        for package, commands in table.items()
        if not all(shutil.which(command, path=_PATH) for command in commands)
    ]


def packages(say: Say = print, *, for_tests: bool = False) -> list[str]:
    """Install what is missing; the packages that were."""
    wanted = missing()
    if for_tests:
        wanted += _lacking(TEST_PACKAGES)
    return _installed(wanted, say)


def further(table: Mapping[str, Sequence[str]], say: Say = print) -> list[str]:
    """Install packages that only some clusters need (package → its programs), where missing."""
    return _installed(_lacking(table), say)


def _installed(wanted: list[str], say: Say) -> list[str]:
    if not wanted:
        return []
    if shutil.which("apt-get") is None:
        raise Failure(
            f"missing: {', '.join(wanted)}", "This is no Debian machine: install them yourself."
        )
    if os.geteuid() != 0:
        raise Failure(
            f"missing Debian packages: {' '.join(wanted)}",
            f"As root: apt-get install --no-install-recommends {' '.join(wanted)}",
        )
    say(f"installing {' '.join(wanted)}")
    _apt(["update"])
    with _ServicesLeftAlone():
        _apt(["install", "--yes", "--no-install-recommends", *wanted])
    return wanted


class _ServicesLeftAlone:
    """Keep packages from starting services that were not on the machine before."""

    def __enter__(self) -> None:
        self._masked: list[str] = []
        if Path("/run/systemd/system").is_dir():
            self._masked = [s for program, s in _SERVICES.items() if not shutil.which(program)]
        if self._masked:
            _run(["systemctl", "mask", "--runtime", *self._masked])

    def __exit__(self, *_: object) -> None:
        if self._masked:
            _run(["systemctl", "unmask", "--runtime", *self._masked])


def _run(command: Sequence[str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=900
    )


def _apt(arguments: Sequence[str], options: Sequence[str] = (), cwd: Path | None = None) -> None:
    done = _run(["apt-get", "-qq", "-o", "Dpkg::Use-Pty=0", *options, *arguments], cwd)
    if done.returncode != 0:
        told = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise Failure(f"apt-get {arguments[0]} failed", told)


def kubectl_version(program: str) -> tuple[int, int] | None:
    """Major and minor of a kubectl; None when it does not say."""
    try:
        done = subprocess.run(
            [program, "version", "--client", "--output=json"],
            capture_output=True,
            timeout=20,
        )
        info = msgspec.json.decode(done.stdout)["clientVersion"]
        return int(info["major"]), int(re.sub(r"\D", "", info["minor"]))
    except (OSError, subprocess.TimeoutExpired, msgspec.DecodeError, LookupError, ValueError):
        return None


def find_kubectl(cache: Path | None = None) -> str | None:
    """A current kubectl: on the PATH, or the one fetched before."""
    candidates = [shutil.which("kubectl"), str(cache / "bin" / "kubectl") if cache else None]
    for candidate in candidates:
        if candidate and Path(candidate).exists():
            version = kubectl_version(candidate)
            if version is not None and version >= KUBECTL_MINIMUM:
                return candidate
    return None


def kubectl(cache: Path, say: Say = print) -> str:
    """Find a current kubectl or fetch one from a newer Debian suite."""
    found = find_kubectl(cache)
    if found is not None:
        return found
    return _fetched_kubectl(KUBECTL_SUITE, cache / "bin" / "kubectl", say)


def old_kubectl(cache: Path, say: Say = print) -> str:
    """Debian 12's kubectl 1.20, beside the current one: many users still have it."""
    target = cache / "bin" / "kubectl-1.20"
    if target.exists():
        return str(target)
    return _fetched_kubectl(OLD_KUBECTL_SUITE, target, say)


def _fetched_kubectl(suite: str, target: Path, say: Say) -> str:
    say(f"fetching kubectl from Debian {suite}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="motley-apt-") as scratch:
        package = fetch_newer(Path(scratch), suite, _KUBECTL_PACKAGES)
        tree = Path(scratch, "tree")
        tree.mkdir()
        rootfs.extract(package, tree)
        unpacked = tree / "usr/bin/kubectl"
        if not unpacked.exists():
            raise Failure(f"{package.name} holds no kubectl")
        # Beside its place first: a program half copied must never be found there, and two
        # processes may fetch at once.
        beside = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.move(unpacked, beside)
        beside.rename(target)
    return str(target)


def fetch_newer(scratch: Path, suite: str, names: Sequence[str]) -> Path:
    """Download a package of another suite from the machine's own mirror, changing nothing."""
    sources = scratch / ("suite.sources" if (found := _deb822()) else "suite.list")
    sources.write_text(for_suite(found, suite) if found else list_for_suite(_one_line(), suite))
    for directory in ("lists/partial", "cache/archives/partial"):
        (scratch / directory).mkdir(parents=True)
    options = {
        "APT::Sandbox::User": "root",
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "Dir::State::status": "/dev/null",
    }
    given = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    _apt(["update"], given, scratch)
    for name in names:
        if _run(["apt-get", "-qq", *given, "download", name], scratch).returncode == 0:
            return next(scratch.glob("*.deb"))
    raise Failure(f"Debian {suite} has none of {', '.join(names)}")


def _deb822() -> str:
    files = sorted(Path("/etc/apt/sources.list.d").glob("*.sources"))
    return "\n\n".join(file.read_text() for file in files)


def _one_line() -> str:
    files = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*.list")]
    return "\n".join(file.read_text() for file in files if file.exists())


def for_suite(sources: str, suite: str) -> str:
    """Debian's own entry of deb822 sources, for another suite."""
    for stanza in re.split(r"\n\s*\n", sources):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = dict(line.split(":", 1) for line in lines if re.match(r"\S+:", line))
        if _is_debian(fields.get("URIs", ""), fields.get("Suites", "")):
            changed = [f"Suites: {suite}" if line.startswith("Suites:") else line for line in lines]
            return "\n".join(changed) + "\n"
    raise Failure("apt's sources have no entry for Debian itself")


def list_for_suite(sources: str, suite: str) -> str:
    """Debian's own entry of one-line sources, for another suite."""
    for line in sources.splitlines():
        found = re.match(r"(deb\s+(?:\[[^]]*\]\s+)?)(\S+)\s+(\S+)\s+(.*)", line.strip())
        if found and _is_debian(found[2], found[3]):
            return f"{found[1]}{found[2]} {suite} {found[4]}\n"
    raise Failure("apt's sources have no entry for Debian itself")


def _is_debian(uris: str, suites: str) -> bool:
    # Cloud images name a list of mirrors: mirror+file:///etc/apt/mirrors/debian.list
    is_named_so = re.search(r"\bdebian(\.list)?/?$", uris.strip()) is not None
    return is_named_so and "security" not in uris + suites


def main(cache: Path) -> int:
    """Install everything the repository's commands need."""
    try:
        packages(for_tests=True)
        kubectl(cache)
        old_kubectl(cache)
        images.ensure(cache / "images", recipes=(*images.RECIPES, images.NGINX))
        if images.architecture() != "arm64":
            emulation.prefetch(cache / "images", "arm64")  # for the tests of mixed clusters
    except (Failure, rootfs.Unavailable) as failure:
        print(failure, file=sys.stderr)
        print(getattr(failure, "advice", ""), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
