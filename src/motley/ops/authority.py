"""The certificates of a whole cluster: the API server's own and those of the components.

`apiserver.rotation` knows the server's files; here the components' kubeconfigs and the node
agent's certificate are looked at and made again with them, also those of further nodes on this
machine (`node-2/node.crt`). A machine that has joined has an authority elsewhere
(`joinedcertificates`).
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from motley.apiserver import rotation, tls
from motley.lib import clock
from motley.ops import certificates, etcdmembers, members
from motley.ops import config as configs
from motley.ops.certificates import Credentials
from motley.ops.config import Config
from motley.ops.failure import Failure


class Authority:
    """The certificates under a cluster's root directory, or of an API server that runs alone."""

    def __init__(
        self, root: Path, data_dir: Path | None = None, source: clock.Clock = clock.SYSTEM
    ) -> None:
        """Raises `Failure` when there are none."""
        self._data_dir = data_dir or root / "apiserver"
        self._config: Config | None = None if data_dir else configs.load(root)
        self._clock = source
        if not (self._data_dir / "pki" / "ca.crt").exists():
            raise Failure(
                f"there are no certificates in {self._data_dir / 'pki'}",
                "Name the cluster with --root, or the API server's directory with --data-dir.",
            )

    @property
    def is_cluster(self) -> bool:
        """Whether components have credentials, too."""
        return self._config is not None

    def listed(self) -> list[rotation.Listed]:
        """Every certificate, those of authorities last."""
        found = rotation.of_server(self._data_dir)
        if self._config is not None:
            for name, path in self._files(self._config):
                pair = tls.pair_of(path) if path.suffix == ".kubeconfig" else None
                if pair is not None:
                    found += rotation.listed(name, path, pair[0])
                elif path.suffix == ".crt" and path.exists():
                    found += rotation.listed(name, path, path.read_bytes())
        return sorted(found, key=lambda one: one.is_authority)

    def renew(self, names: Sequence[str]) -> list[str]:
        """Make certificates again; without names every one but the authorities'."""
        own = [name for name in names if name in rotation.LEAVES] if names else rotation.LEAVES
        others = self._components()
        unknown = sorted(set(names) - set(rotation.LEAVES) - set(others))
        if unknown:
            known = ", ".join([*rotation.LEAVES, *others])
            raise Failure(f"there is no certificate {unknown[0]}", f"There are {known}.")
        try:
            made = rotation.renew(self._data_dir, own, self._clock)
        except rotation.Refused as refused:
            raise Failure(str(refused)) from None
        wanted = [name for name in others if not names or name in names]
        self._ensure(wanted)
        return made + wanted

    def begin(self) -> None:
        """Let a new authority sign, trust both."""
        try:
            rotation.begin(self._data_dir, self._clock)
        except rotation.Refused as refused:
            raise Failure(str(refused)) from None
        self._ensure(self._components())

    def finish(self) -> None:
        """Trust the new authority alone."""
        try:
            rotation.finish(self._data_dir, self._clock)
        except rotation.Refused as refused:
            raise Failure(str(refused)) from None
        self._ensure([])

    def _components(self) -> list[str]:
        """The names of the components' files."""
        return [name for name, _ in self._files(self._config)] if self._config else []

    def _files(self, config: Config) -> Iterator[tuple[str, Path]]:
        """Those of the components and their names; a further node's begin with its own."""
        yield from _of_node("", certificates.located(config), certificates.identities("").keys())
        yield from etcdmembers.leaves(config).items()
        for member in members.present(config):
            files = certificates.of_member(config, member)
            identities = certificates.member_identities(member)
            yield from _of_node(f"{member.node_name}/", files, identities.keys())

    def _ensure(self, anew: Sequence[str]) -> None:
        if self._config is None:
            return
        certificates.ensure(self._config, self._clock, anew=[n for n in anew if "/" not in n])
        if self._config.has_own_etcd:
            etcdmembers.certify(self._config, self._clock, anew=anew)
        for member in members.present(self._config):
            prefix = f"{member.node_name}/"
            own = [name.removeprefix(prefix) for name in anew if name.startswith(prefix)]
            certificates.ensure_member(self._config, member, self._clock, anew=own)


def _of_node(
    prefix: str, files: Credentials, components: Iterable[str]
) -> Iterator[tuple[str, Path]]:
    for component in components:
        path = files.kubeconfig(component)
        yield prefix + path.name, path
    yield prefix + files.node_cert.name, files.node_cert
