"""The command lines of a real control plane, as an installer writes them.

Client certificates and tokens say who asks, RBAC what they may, and aggregation is on.
"""

from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from motley.apiserver import tls


def etcd(binaries: Path, directory: Path, clients: int, peers: int) -> list[str]:
    """A store that is gone with the test."""
    here, there = f"http://127.0.0.1:{clients}", f"http://127.0.0.1:{peers}"
    command = [str(binaries / "etcd"), "--data-dir", str(directory / "etcd")]
    command += ["--listen-client-urls", here, "--advertise-client-urls", here]
    command += ["--listen-peer-urls", there, "--initial-advertise-peer-urls", there]
    return [*command, "--initial-cluster", f"default={there}", "--log-level", "error"]


def apiserver(binaries: Path, directory: Path, port: int, etcd_port: int) -> list[str]:
    """kube-apiserver; makes the certificates and the administrator's kubeconfig it needs."""
    pki = tls.ensure(directory, addresses=["127.0.0.1"], server_url=f"https://127.0.0.1:{port}")
    proxy_cert, proxy_key = tls.front_proxy(pki)
    tokens = ec.generate_private_key(ec.SECP256R1())
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    pem = serialization.Encoding.PEM
    (directory / "sa.key").write_bytes(tokens.private_bytes(pem, *private))
    (directory / "sa.pub").write_bytes(tokens.public_key().public_bytes(pem, public))
    options = {
        "etcd-servers": f"http://127.0.0.1:{etcd_port}",
        "secure-port": port,
        "bind-address": "127.0.0.1",
        "tls-cert-file": pki.cert_file,
        "tls-private-key-file": pki.key_file,
        "client-ca-file": pki.ca_file,
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "service-cluster-ip-range": "10.96.0.0/16",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": directory / "sa.pub",
        "service-account-signing-key-file": directory / "sa.key",
        "requestheader-client-ca-file": proxy_cert.with_name("ca.crt"),
        "requestheader-allowed-names": "front-proxy-client",
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": proxy_cert,
        "proxy-client-key-file": proxy_key,
    }
    program = str(binaries / "kube-apiserver")
    return [program, *(f"--{name}={value}" for name, value in options.items())]


def controllers(binaries: Path, directory: Path, autoscale_every_s: int) -> list[str]:
    """kube-controller-manager, as the administrator."""
    options = {
        "kubeconfig": directory / "admin.kubeconfig",
        "leader-elect": "false",
        "secure-port": 0,
        "service-account-private-key-file": directory / "sa.key",
        "root-ca-file": directory / "pki/ca.crt",
        "horizontal-pod-autoscaler-sync-period": f"{autoscale_every_s}s",
    }
    program = str(binaries / "kube-controller-manager")
    return [program, *(f"--{name}={value}" for name, value in options.items())]
