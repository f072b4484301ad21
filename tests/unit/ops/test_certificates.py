from motley.client import kubeconfig
from motley.lib import clock
from motley.ops import certificates
from motley.ops.config import Config


class Later:
    def __init__(self, seconds):
        self._seconds = seconds

    def now(self):
        return clock.SYSTEM.now() + self._seconds

    def monotonic(self):
        return clock.SYSTEM.monotonic()

    async def sleep(self, seconds):
        await clock.SYSTEM.sleep(seconds)


def contents(credentials):
    return {path.name: path.read_bytes() for path in credentials.directory.iterdir()}


def make(root, **options):
    return Config(root=root, node_name="n1", node_ip="10.1.2.3", **options)


def test_what_is_still_good_stays(tmp_path):
    first = contents(certificates.ensure(make(tmp_path)))
    assert contents(certificates.ensure(make(tmp_path))) == first
    assert set(first) == {
        "controllers.kubeconfig",
        "scheduler.kubeconfig",
        "node.kubeconfig",
        "proxy.kubeconfig",
        "gateway.kubeconfig",
        "functions.kubeconfig",
        "slurm.kubeconfig",
        "node.crt",
        "node.key",
    }


def test_certificates_near_their_end_are_made_again(tmp_path):
    first = contents(certificates.ensure(make(tmp_path)))
    later = contents(certificates.ensure(make(tmp_path), Later(350 * 86400)))
    assert all(later[name] != first[name] for name in first)


def test_only_what_a_changed_address_touches_is_made_again(tmp_path):
    first = contents(certificates.ensure(make(tmp_path)))
    moved = Config(root=tmp_path, node_name="n1", node_ip="10.9.9.9")
    later = contents(certificates.ensure(moved))
    assert {name for name in first if later[name] != first[name]} == {"node.crt", "node.key"}


def test_another_port_gives_other_kubeconfigs(tmp_path):
    certificates.ensure(make(tmp_path))
    credentials = certificates.ensure(make(tmp_path, api_port=7443))
    assert kubeconfig.load(credentials.kubeconfig("proxy")).server == "https://127.0.0.1:7443"


def test_nobody_but_the_owner_reads_credentials(tmp_path):
    credentials = certificates.ensure(make(tmp_path))
    modes = {path.stat().st_mode & 0o777 for path in credentials.directory.iterdir()}
    assert modes == {0o600}
