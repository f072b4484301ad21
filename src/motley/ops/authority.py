"""The certificates of a whole cluster: the API server's own and those of the components.

`apiserver.rotation` knows the server's files; here the components' kubeconfigs and the node
agent's certificate are looked at and made again with them.
"""

from collections.abc import Sequence
from pathlib import Path

from motley.apiserver import rotation, tls
from motley.lib import clock
from motley.ops import certificates
from motley.ops import config as configs
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
            files = certificates.located(self._config)
            for component in certificates.identities(self._config.node_name):
                path = files.kubeconfig(component)
                if (pair := tls.pair_of(path)) is not None:
                    found += rotation.listed(path.name, path, pair[0])
            if files.node_cert.exists():
                found += rotation.listed(
                    files.node_cert.name, files.node_cert, files.node_cert.read_bytes()
                )
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
        if self._config is None:
            return []
        files = certificates.located(self._config)
        names = certificates.identities(self._config.node_name)
        return [*(files.kubeconfig(name).name for name in names), files.node_cert.name]

    def _ensure(self, anew: Sequence[str]) -> None:
        if self._config is not None:
            certificates.ensure(self._config, self._clock, anew=anew)
