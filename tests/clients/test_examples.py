"""The documents' own manifests: what is plain Kubernetes is accepted as it stands.

Every file below `examples/` that is in none of the tables here is sent to a server. What Motley
does not serve yet (Minik8s' own kinds and spellings, some scheduler plugins) is listed with the
words it is refused with, so that the day it is served this test fails and the file leaves the
table.
"""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle

EXAMPLES = Path(__file__).parents[2] / "examples"

# What must exist before: admission looks for it.
NEEDED_FIRST = {"scheduling/priority-pod.yaml": "scheduling/priorityclass.yaml"}

NOT_SERVED_YET = {
    "minik8s/dns.yaml": 'no matches for kind "DNS" in version "v1"',
    "minik8s/gpu-job.yaml": 'no matches for kind "Job" in version "v1"',
    "minik8s/pod.yaml": "cannot be handled as a Pod",
    "minik8s/pod-volume.yaml": 'spec.containers[0].volumeMounts[0].name: Not found: "share"',
    "minik8s/pod-antiaffinity.yaml": "topologyKey: Required value: can not be empty",
    "minik8s/service.yaml": "does not match the current range 10.96.0.0/16",
    "minik8s/dns-service.yaml": "does not match the current range 10.96.0.0/16",
}
SCHEDULER_CONFIGURATIONS = ("kubehice/scheduler-configv1.yml",)
# Plugins that the scheduler does not have yet.
SCHEDULER_CONFIGURATIONS_NOT_SERVED_YET = {
    "kubehice/scheduler-configv2.yml": "Hicev2",
    "realusage/scheduler-config.yaml": "MemRealUsage",
}
IMAGE_TABLES = ("kubehice/images.yaml",)
_OTHERS = {
    *NOT_SERVED_YET,
    *SCHEDULER_CONFIGURATIONS,
    *SCHEDULER_CONFIGURATIONS_NOT_SERVED_YET,
    *IMAGE_TABLES,
}


def every_file():
    return sorted(
        str(path.relative_to(EXAMPLES))
        for path in EXAMPLES.rglob("*")
        if path.suffix in (".yaml", ".yml")
    )


PLAIN = [name for name in every_file() if name not in _OTHERS]


def documents(name):
    return [d for d in yaml.safe_load_all((EXAMPLES / name).read_text()) if d]


def test_every_table_names_files_that_exist():
    assert set(every_file()) >= _OTHERS
    assert len(PLAIN) >= 25


@pytest.mark.parametrize("name", every_file())
def test_every_example_says_what_it_shows(name):
    first = (EXAMPLES / name).read_text().splitlines()[0]

    assert first.startswith("# ")
    assert first.endswith((".", ")."))


@pytest.fixture(scope="module")
def complaints(server, kubectl_binary, tmp_path_factory):
    """What kubectl says of each file when all of them are sent at once, for show."""
    home = tmp_path_factory.mktemp("home")

    def kubectl(*arguments):
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "KUBECONFIG": str(server.kubeconfig),
        }
        return subprocess.run(
            [kubectl_binary, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            check=False,
        )

    for namespace in sorted(_namespaces()):
        assert kubectl("create", "namespace", namespace).returncode == 0
    for path in NEEDED_FIRST.values():
        assert kubectl("create", "-f", str(EXAMPLES / path)).returncode == 0
    plain = kubectl("create", "--dry-run=server", *_named(PLAIN))
    # Without kubectl's own checks, which know nothing of kinds that the server does not have.
    others = kubectl("create", "--dry-run=server", "--validate=ignore", *_named(NOT_SERVED_YET))
    assert plain.stdout.count("created (server dry run)") >= len(PLAIN) - 2, plain.stderr
    said = [*plain.stderr.splitlines(), *others.stderr.splitlines()]
    return {name: [line for line in said if f'/{name}": ' in line] for name in every_file()}


def _named(files):
    return [f"--filename={EXAMPLES / name}" for name in files]


def _namespaces():
    """Those the manifests are in, save for the ones they bring along."""
    found = {d["metadata"].get("namespace", "default") for n in PLAIN for d in documents(n)}
    return found - {"default", "kube-system"}


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_manifest_is_accepted(complaints, name):
    # The namespaces, and what is needed first, are there already: that is no complaint.
    assert [c for c in complaints[name] if "(AlreadyExists)" not in c] == []


@pytest.mark.parametrize(("name", "words"), NOT_SERVED_YET.items())
def test_what_is_not_served_yet_is_refused_with_clear_words(complaints, name, words):
    assert complaints[name]
    assert [c for c in complaints[name] if words not in c] == []


@pytest.mark.parametrize("name", SCHEDULER_CONFIGURATIONS)
def test_a_scheduler_configuration_is_loaded(name):
    configuration = profiles.parse((EXAMPLES / name).read_text())

    assert [p.scheduler_name for p in configuration.profiles] == ["kubehice-scheduler"]


@pytest.mark.parametrize(("name", "plugin"), SCHEDULER_CONFIGURATIONS_NOT_SERVED_YET.items())
def test_a_scheduler_configuration_of_an_unknown_plugin_names_it(name, plugin):
    configuration = profiles.parse((EXAMPLES / name).read_text())

    with pytest.raises(profiles.ConfigError, match=plugin):
        profiles.build(configuration, Handle(Columns(), SYSTEM, images.ImageTable()))


@pytest.mark.parametrize("name", IMAGE_TABLES)
def test_an_image_table_is_loaded(name):
    table = images.load(EXAMPLES / name)

    assert table
