"""`python -m motley.dashboard`: the dashboard in a pod.

With --tls-dir it serves whoever reaches the pod; without, it listens on loopback alone, where
`kubectl port-forward` finds it: tokens never cross a network in the clear.
"""

import argparse
import os
import ssl
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from motley.dashboard.kube import Endpoint
from motley.dashboard.server import Options, Server

_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="motley.dashboard",
        description="Shows a cluster in a browser. Users log in with a token; RBAC decides what "
        "each of them sees.",
    )
    made.add_argument("--port", type=int, default=8443)
    made.add_argument("--bind", metavar="ADDRESS", help="default: all with TLS, else loopback")
    made.add_argument("--tls-dir", type=Path, help="where tls.crt and tls.key are, as in a Secret")
    made.add_argument("--api", metavar="URL", help="the API server; default: that of the pod")
    made.add_argument("--ca", metavar="FILE", help=f"its authority; default: {_CA}, if it is there")
    return made


def reloaded(directory: Path) -> Callable[[], ssl.SSLContext]:
    """A certificate that is read again when its files have changed."""
    held: list[tuple[object, ssl.SSLContext]] = []
    lock = threading.Lock()

    def current() -> ssl.SSLContext:
        stats = [(directory / name).stat() for name in ("tls.crt", "tls.key")]
        changed = [(found.st_mtime_ns, found.st_ino) for found in stats]
        with lock:
            if not held or held[-1][0] != changed:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                context.load_cert_chain(directory / "tls.crt", directory / "tls.key")
                held[:] = [(changed, context)]
            return held[-1][1]

    return current


def options(arguments: Sequence[str]) -> Options:
    """What the command line asks for. Exits with a message where that cannot be."""
    made = parser()
    given = made.parse_args(arguments)
    ca = given.ca or (_CA if Path(_CA).exists() else None)
    try:
        tls = reloaded(given.tls_dir) if given.tls_dir else None
        if tls is not None:
            tls()
        context = ssl.create_default_context(cafile=ca)
    except OSError as error:
        made.error(f"certificates: {error}")
    url = given.api or _pod_api()
    if not url:
        made.error("not in a pod: say where the API server is with --api")
    address = given.bind or ("0.0.0.0" if tls else "127.0.0.1")
    if tls is None and address not in ("127.0.0.1", "::1", "localhost"):
        made.error("without --tls-dir tokens would be sent in the clear: only loopback is served")
    return Options(Endpoint(url, context), address, given.port, tls)


def _pod_api() -> str:
    host, port = (os.environ.get(f"KUBERNETES_SERVICE_{w}", "") for w in ("HOST", "PORT"))
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}:{port or 443}" if host else ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until told to stop."""
    server = Server(options(sys.argv[1:] if arguments is None else arguments))
    print(f"serving {server.url}", flush=True)
    server.serve_until_told()


if __name__ == "__main__":
    main()
