"""`motley scheduler` before it connects: its flags, and what it says of a wrong configuration."""

import ssl

import pytest
import yaml
from click.testing import CliRunner

from motley.cli import scheduler, scheduler_options
from motley.scheduler.metrics import NoMeter
from motley.scheduler.profiles import Configuration

KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """What belongs to a process of its own stays out of this one."""
    monkeypatch.setattr(scheduler.metrics, "make", NoMeter)
    monkeypatch.setattr(scheduler.journal, "configure", lambda level: None)


@pytest.fixture
def parsed(tmp_path, monkeypatch):
    """What a command line means: the options, once they are read."""
    taken = {}
    file = tmp_path / "scheduler.conf"
    file.write_text(yaml.safe_dump(KUBECONFIG))

    def take(kube, configuration, scheduler):
        taken["kube"] = kube
        raise ValueError("that will do")

    monkeypatch.setattr(scheduler, "_Serving", take)

    def parse(*arguments):
        given = [a.replace("FILE", str(file)) for a in arguments]
        result = CliRunner().invoke(scheduler.command, ["--kubeconfig", str(file), *given])
        assert "that will do" in result.output, result.output
        return taken["kube"]

    return parse


def elected(kube):
    configuration = Configuration()
    scheduler_options.elect(kube, configuration)
    return configuration.leader_election


@pytest.mark.parametrize(
    ("arguments", "leads"),
    [
        (["--leader-elect"], True),
        (["--leader-elect=true"], True),
        (["--leader-elect=false"], False),
        (["--leader-elect", "--v=2"], True),
        (["--no-leader-elect"], False),
        ([], True),
    ],
)
def test_leader_election_is_switched_as_kubernetes_manifests_do_it(parsed, arguments, leads):
    assert elected(parsed(*arguments)).leader_elect is leads


def test_the_leases_flags_win_over_the_file(parsed):
    found = elected(
        parsed(
            "--leader-elect-lease-duration=30s",
            "--leader-elect-renew-deadline=20s",
            "--leader-elect-retry-period=1s",
            "--leader-elect-resource-lock=leases",
            "--leader-elect-resource-name=mine",
            "--leader-elect-resource-namespace=default",
        )
    )
    assert (found.lease_duration, found.renew_deadline, found.retry_period) == ("30s", "20s", "1s")
    assert (found.resource_name, found.resource_namespace) == ("mine", "default")
    assert "'endpoints'" in run("--leader-elect-resource-lock=endpoints").output


def test_the_documents_flags_say_where_to_serve(parsed):
    nothing = Configuration()
    alone = parsed("--address=127.0.0.3")
    assert scheduler_options.plain(alone, nothing) == ("127.0.0.3", 10259)
    assert scheduler_options.secure(alone)[1] == 0
    guarded = parsed("--authentication-kubeconfig=FILE", "--authorization-kubeconfig=FILE")
    assert scheduler_options.secure(guarded) == ("0.0.0.0", 10259)
    assert scheduler_options.plain(guarded, nothing)[1] == 0
    both = parsed("--secure-port=1", "--bind-address=127.0.0.2", "--health-port=2")
    assert scheduler_options.secure(both) == ("127.0.0.2", 1)
    assert scheduler_options.plain(both, nothing) == ("127.0.0.1", 2)
    written = Configuration(healthz_bind_address="0.0.0.0:10251")
    assert scheduler_options.plain(parsed(), written) == ("0.0.0.0", 10251)


def test_the_master_flag_replaces_the_kubeconfigs_server(parsed):
    kube = parsed("--master=https://10.0.0.9:6443/")
    found = scheduler_options.connection(kube, Configuration())
    assert (found.server, found.token) == ("https://10.0.0.9:6443", "t")


def test_without_a_certificate_it_makes_itself_one(parsed):
    assert isinstance(scheduler_options.tls(parsed()), ssl.SSLContext)
    with pytest.raises(ValueError, match="go together"):
        scheduler_options.tls(parsed("--tls-cert-file=FILE"))


def run(*arguments):
    return CliRunner().invoke(scheduler.command, [str(a) for a in arguments])


def test_a_skeleton_is_written_once_and_under_a_proper_name(tmp_path):
    assert run("new-plugin", "RackFirst", "--dir", tmp_path / "p").exit_code == 0
    again = run("new-plugin", "RackFirst", "--dir", tmp_path / "p")
    assert again.exit_code == 1
    assert "rack_first.py exists" in again.output
    assert "must be CamelCase" in run("new-plugin", "rack first", "--dir", tmp_path).output
    compile((tmp_path / "p/rack_first.py").read_text(), "rack_first.py", "exec")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("pluginSources: [{path: ./nowhere.py}]", "nowhere.py: [Errno 2]"),
        ("pluginSources: [{entryPoint: 'nowhere:Mine'}]", "nowhere:Mine"),
        ("pluginSources: [{path: ./broken.py}]", "broken.py:2: NameError: name 'x'"),
        ("profiles: [{plugins: {filter: {enabled: [{name: Nonsense}]}}}]", "'Nonsense'"),
        ("extenders: [{urlPrefix: 'x'}]", "urlPrefix 'x'"),
    ],
)
def test_a_wrong_configuration_ends_the_start_with_one_line(tmp_path, text, complaint):
    (tmp_path / "broken.py").write_text("import os\nx.y\n")
    (tmp_path / "scheduler.conf").write_text(yaml.safe_dump(KUBECONFIG))
    config = tmp_path / "config.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    config.write_text(head + text)
    result = run("--kubeconfig", tmp_path / "scheduler.conf", "--config", config)
    assert result.exit_code == 1
    assert complaint in result.output
    assert result.output.count("\n") == 1


def test_help_teaches_both_uses():
    said = run("--help").output
    assert "new-plugin" in said
    assert "--config" in said
