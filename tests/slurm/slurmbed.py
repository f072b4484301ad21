"""A whole Slurm on loopback, of Debian's packages: munge, MariaDB, slurmdbd, slurmctld, slurmd,
sshd.

Everything lives in one directory and runs in the foreground as a child of this process, so that it
ends with it. Two sshd listen: the second one's users have a `sacct` as on clusters that keep no
accounts, few sessions on a connection and an SFTP of the plainest; it shows a certificate of its
own, and lets in whoever has one of the same authority. `Proxy` stands between a bridge and an sshd
and can be cut.
"""

import contextlib
import getpass
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from motley.ops.freeports import free_ports

HOST = socket.gethostname().partition(".")[0]
PARTITION = "dgx2"
_MAIL = """#!/bin/sh
printf '%s\\n' "$*" >> {mails}
"""
# Accepts at once but answers late while the file is there: where a crash is at its worst.
_SBATCH = """#!/bin/sh
out=$(/usr/bin/sbatch "$@")
code=$?
if [ -e {directory}/late ]; then : > {directory}/accepted; sleep 1; fi
echo "$out"
exit $code
"""
_NO_SACCT = """#!/bin/sh
echo "Slurm accounting storage is disabled" >&2
exit 1
"""
# Runs what would run in the container: this machine has no Apptainer, Debian 12 has none.
# What is not evaluated in it reaches the container as it is; `tests/slurm/test_podman.py` runs a
# real runtime.
_APPTAINER = """#!/bin/bash
[ "$1" = --version ] && { echo "apptainer version 1.4.5"; exit 0; }
[ "$1" = --quiet ] && shift
[ "$APPTAINER_NO_EVAL" = 1 ] || { echo "would evaluate variables" >&2; exit 255; }
case "$1" in exec|run) shift ;; *) echo "unknown command $1" >&2; exit 255 ;; esac
while :; do case "$1" in
  --pwd) shift 2 ;;
  --nv) shift ;;
  -*) echo "unknown option $1" >&2; exit 255 ;;
  *) break ;;
esac; done
echo "image $1"; shift
for variable in ${!APPTAINERENV_*}; do
  export "${variable#APPTAINERENV_}=${!variable}"
done
exec "$@"
"""

# Takes what enroot's `import`, `create`, `start` and `remove` take, and nothing else. Images say
# `WORKDIR /tmp` and `ENTRYPOINT ["echo", "entrypoint"]`; the start script is as enroot writes it.
_ENROOT = r"""#!/bin/bash
wrong() { echo "enroot $verb: $*" >&2; exit 64; }
verb=$1; shift
name= force= output= mounts=() variables=()
while :; do case "$verb $1" in
  "import -o"|"import --output") output=$2; shift 2 ;;
  "create -n"|"create --name") name=$2; shift 2 ;;
  "create -f"|"create --force"|"remove -f"|"remove --force") force=1; shift ;;
  "start -w"|"start --rw"|"start -r"|"start --root") shift ;;
  "start -e"|"start --env") [[ $2 =~ ^[A-Za-z_][A-Za-z0-9_]*(=|$) ]] || wrong "$2"
    variables+=("$2"); shift 2 ;;
  "start -m"|"start --mount") mounts+=("$2"); shift 2 ;;
  *" --") shift; break ;;
  *" -"*) wrong "unknown option $1" ;;
  *) break ;;
esac; done
case $verb in
  import)
    [[ $# = 1 && $1 =~ ^docker://([^/#@]+#)?[a-z0-9/._-]+(:[A-Za-z0-9._-]+)?$ ]] || wrong "URI $*"
    [ ! -e "$output" ] || wrong "file exists $output"
    echo "$1" > "$output" ;;
  create)
    [[ $# = 1 && -f $1 && -n $name ]] || wrong "$*"
    [[ ! -e DATA/$name || -n $force ]] || wrong "exists $name"
    mkdir -p "DATA/$name"; cp "$1" "DATA/$name/image" ;;
  start)
    name=$1; shift
    [ -d "DATA/$name" ] || wrong "no such container $name"
    echo "image $(cat "DATA/$name/image")"
    for mount in "${mounts[@]}"; do
      IFS=: read -r source target kind options <<< "$mount"
      [[ $kind = none && $options = *bind* && -e $source ]] || wrong "mount $mount"
      [ "$target" = /etc/rc.local ] && hook=$(realpath "$source")
    done
    exec env "${variables[@]}" HOOK="$hook" sh -c 'cd /tmp && unset OLDPWD
      if [ -s "$HOOK" ]; then . "$HOOK"; fi
      exec echo entrypoint "$@"' rc "$@" ;;
  remove) [[ $# = 1 && -n $force && -d DATA/$1 ]] || wrong "$*"; rm -r "DATA/${1:?}" ;;
  *) wrong "unknown" ;;
esac
"""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = 60.0) -> object:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        select.select([], [], [], 0.05)
    raise AssertionError(f"not within {timeout_s} s: {what}")


@dataclass
class Slurm:
    """The daemons and how to reach them; a context manager."""

    directory: Path
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    def __enter__(self) -> "Slurm":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.directory}/bin:{os.environ['PATH']}:/usr/sbin"
        return {"PATH": path, "SLURM_CONF": str(self.directory / "slurm.conf"), "LC_ALL": "C"}

    def _start(self) -> None:
        self.directory.chmod(0o755)
        (self.ctld, self.slurmd, self.dbd, self.ssh_port, self.bare_port) = free_ports(5)
        for name in ("ctld", "spool", "bin", "bare", "home", "munge"):
            (self.directory / name).mkdir()
        self._write_programs()
        self._write_configuration()
        self._write_keys()
        directory = self.directory
        munge = ["--key-file", f"{directory}/munge/key", "--socket", f"{directory}/munge.sock"]
        files = ("pid-file", "log-file", "seed-file")
        munge += [f"--{name}={directory}/munge/{name}" for name in files]
        self._run("munged", "/usr/sbin/munged", "-F", "--force", *munge)
        self._start_database()
        wait_until((directory / "munge.sock").exists, "munge is up")
        self.start_sshd()
        self._run("slurmdbd", "slurmdbd", "-D")
        wait_until(lambda: answers(self.dbd), "slurmdbd is up")
        self._run("slurmctld", "slurmctld", "-D", "-i")
        wait_until(lambda: answers(self.ctld), "slurmctld is up")
        self._run("slurmd", "slurmd", "-D", "-N", HOST)
        wait_until(self._is_idle, "the node is idle")

    def _is_idle(self) -> bool:
        for name, process in self.processes.items():
            if process.poll() is not None:
                raise AssertionError(f"{name} ended: {(self.directory / name).read_text()[-2000:]}")
        return "idle" in self.command("sinfo", "-h", "-o", "%t")

    def command(self, *words: str) -> str:
        """What a client command prints."""
        done = subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=20, check=False
        )
        return done.stdout

    def submissions(self, name: str) -> list[str]:
        """Ids of every job ever accepted whose name begins so, finished or not."""
        rows = self.command("sacct", "-nXP", "-S", "now-1hour", "-o", "JobIDRaw,JobName")
        return [
            row.split("|")[0] for row in rows.splitlines() if row.split("|")[1].startswith(name)
        ]

    def start_sshd(self) -> None:
        for name, port in (("sshd", self.ssh_port), ("sshd-bare", self.bare_port)):
            if name not in self.processes:
                self._run(
                    name, "/usr/sbin/sshd", "-D", "-e", "-f", str(self.directory / name) + ".conf"
                )
                wait_until(lambda port=port: answers(port), f"{name} is up")

    def stop_sshd(self) -> None:
        """The login node is gone, and everybody's connections with it."""
        for name in ("sshd", "sshd-bare"):
            self._end(self.processes.pop(name))

    def _run(self, name: str, *command: str) -> None:
        with (self.directory / name).open("ab") as log:
            # Also when the tests themselves are killed.
            self.processes[name] = subprocess.Popen(
                ["setpriv", "--pdeathsig=TERM", *command],
                env=self._daemon_environment(),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _daemon_environment(self) -> dict[str, str]:
        return {**self.environment, "MYSQL_UNIX_PORT": str(self.directory / "mysql.sock")}

    def _start_database(self) -> None:
        data = self.directory / "mysql"
        user = f"--user={getpass.getuser()}"
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", user, f"--datadir={data}", "--skip-test-db",
             "--auth-root-authentication-method=normal"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        self._run(
            "mariadbd", "/usr/sbin/mariadbd", "--no-defaults", user, f"--datadir={data}",
            "--skip-networking", f"--socket={self.directory}/mysql.sock", "--skip-grant-tables",
            f"--pid-file={self.directory}/mysql.pid", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M",
        )  # fmt: skip
        wait_until((self.directory / "mysql.sock").exists, "MariaDB is up")

    def _write_programs(self) -> None:
        self.mails = self.directory / "mails"
        programs = {
            "bin/mailprog": _MAIL.format(mails=self.mails),
            "bin/apptainer": _APPTAINER,
            "bin/enroot": _ENROOT.replace("DATA", str(self.directory / "enroot")),
            "bare/sacct": _NO_SACCT,
            "bin/sbatch": _SBATCH.format(directory=self.directory),
        }
        for name, text in programs.items():
            (self.directory / name).write_text(text)
            (self.directory / name).chmod(0o755)

    def _write_configuration(self) -> None:
        d = self.directory
        (d / "munge/key").write_bytes(os.urandom(128))
        (d / "munge/key").chmod(0o400)
        (d / "munge").chmod(0o700)
        me = getpass.getuser()
        (d / "slurm.conf").write_text(f"""
ClusterName=test
SlurmctldHost={HOST}(127.0.0.1)
SlurmUser={me}
SlurmdUser={me}
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock
CryptoType=crypto/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPort={self.ctld}
SlurmdPort={self.slurmd}
StateSaveLocation={d}/ctld
SlurmdSpoolDir={d}/spool
SlurmctldPidFile={d}/ctld.pid
SlurmdPidFile={d}/slurmd.pid
SlurmctldLogFile={d}/ctld.log
SlurmdLogFile={d}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=sched_min_interval=20000,batch_sched_delay=0,sched_interval=1,bf_interval=1,nohold_on_prolog_fail
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={self.dbd}
AccountingStoragePass={d}/munge.sock
MailProg={d}/bin/mailprog
KillWait=1
CompleteWait=0
EpilogMsgTime=1
MinJobAge=2
OverTimeLimit=0
MaxArraySize=1000
NodeName={HOST} NodeAddr=127.0.0.1 CPUs=16 CoresPerSocket=16 RealMemory=8000 Gres=gpu:2
PartitionName={PARTITION} Nodes={HOST} Default=YES DefMemPerCPU=50 MaxTime=INFINITE State=UP
""")
        devices = "Name=gpu File=/dev/null\nName=gpu File=/dev/zero\n"  # some that everybody has
        (d / "gres.conf").write_text(devices)
        (d / "slurmdbd.conf").write_text(f"""
AuthType=auth/munge
AuthInfo=socket={d}/munge.sock
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={self.dbd}
SlurmUser={me}
PidFile={d}/dbd.pid
LogFile={d}/dbd.log
StorageType=accounting_storage/mysql
StorageUser=root
StorageLoc=slurm
CommitDelay=1
""")
        (d / "slurmdbd.conf").chmod(0o600)

    def _write_keys(self) -> None:
        d = self.directory
        for name in ("host", "user", "stranger", "member", "authority"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(d / name)]
            subprocess.run(words, check=True, timeout=20)
        shutil.copy(d / "user.pub", d / "authorized")
        self.certify("host", "-h", "-n", "127.0.0.1", "-V", "+1h")
        Path("/run/sshd").mkdir(exist_ok=True)
        paths = {"sshd": f"{d}/bin", "sshd-bare": f"{d}/bare"}
        certified = {
            "sshd": "",
            "sshd-bare": f"HostCertificate {d}/host-cert.pub\nTrustedUserCAKeys {d}/authority.pub",
        }
        for name, port, sessions, lacks in (
            ("sshd", self.ssh_port, 10, ""),
            ("sshd-bare", self.bare_port, 3, " -P posix-rename"),
        ):
            (d / f"{name}.conf").write_text(f"""
Port {port}
ListenAddress 127.0.0.1
HostKey {d}/host
{certified[name]}
PidFile none
AuthorizedKeysFile {d}/authorized
UsePAM no
StrictModes no
PasswordAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
MaxSessions {sessions}
LogLevel ERROR
Subsystem sftp internal-sftp{lacks}
SetEnv SLURM_CONF={d}/slurm.conf PATH={paths[name]}:/usr/local/bin:/usr/bin:/bin:/usr/sbin
""")

    def certify(self, name: str, *options: str) -> str:
        """The authority's certificate for one of the keys."""
        d = self.directory
        words = ["ssh-keygen", "-q", "-s", str(d / "authority"), "-I", name, *options]
        subprocess.run([*words, str(d / f"{name}.pub")], check=True, timeout=20)
        return (d / f"{name}-cert.pub").read_text()

    def public_key(self, name: str) -> str:
        return " ".join((self.directory / f"{name}.pub").read_text().split()[:2])

    @property
    def host_key(self) -> str:
        return self.public_key("host")

    def key(self, name: str = "user") -> str:
        return (self.directory / name).read_text()

    def stop(self) -> None:
        with contextlib.suppress(Exception):
            self.command("scancel", "--user", getpass.getuser(), "--signal=KILL", "--full")
        for name in ("sshd", "sshd-bare", "slurmd", "slurmctld", "slurmdbd", "mariadbd", "munged"):
            if process := self.processes.pop(name, None):
                self._end(process)

    def _end(self, process: "subprocess.Popen[bytes]") -> None:
        for child in _children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def _children(pid: int) -> list[int]:
    """Processes that descend from one, youngest last; sshd's sessions outlive it otherwise."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return found


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def running(directory: Path) -> Iterator[Slurm]:
    with Slurm(directory) as slurm:
        yield slurm


class Proxy:
    """A TCP proxy before an sshd: it can be cut, and cut itself after so many bytes."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._pairs: list[socket.socket] = []
        self._lock = threading.Lock()
        self._budget: dict[str, int] = {}
        self.is_open = True
        self.connections = 0
        self.cuts = 0
        self.carried = {"up": 0, "down": 0}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self.is_open:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            for side in (client, server):  # else every small answer waits for 40 ms
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.connections += 1
            with self._lock:
                self._pairs += [client, server]
            for a, b, way in ((client, server, "up"), (server, client, "down")):
                threading.Thread(target=self._copy, args=(a, b, way), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
                self.carried[way] += len(data)
                with self._lock:
                    left = self._budget.get(way)
                    if left is not None:
                        self._budget[way] = left - len(data)
                if left is not None and left - len(data) <= 0:
                    self._budget.pop(way, None)
                    self.cut()
        for side in (source, sink):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)

    def cut_after(self, way: str, count: int) -> None:
        """Cut everything once so many bytes more have gone `up` or `down`."""
        with self._lock:
            self._budget[way] = count

    def cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, []
        self.cuts += 1
        for side in pairs:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def close(self) -> None:
        self._listener.close()
        self.cut()
