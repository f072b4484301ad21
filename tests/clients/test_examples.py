"""The documents' own manifests: what is plain Kubernetes is accepted as it stands.

Every file below `examples/` that is in none of the tables here is sent to a server. Minik8s' own
kinds and spellings are refused by a server as it is, and accepted with warnings by one that was
told to read them. Scheduler configurations make the profiles they describe.
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
NEEDED_FIRST = {
    "scheduling/priority-pod.yaml": "scheduling/priorityclass.yaml",
    "minik8s/service.yaml": "minik8s/service-cidr.yaml",
}

# What a server refuses, with these words, unless it has `--compat minik8s`.
MINIK8S = {
    "minik8s/dns.yaml": 'no matches for kind "DNS" in version "v1"',
    "minik8s/gpu-job.yaml": 'no matches for kind "Job" in version "v1"',
    "minik8s/func.yaml": 'no matches for kind "Func" in version "v1"',
    "minik8s/pod.yaml": "cannot be handled as a Pod",
    "minik8s/pod-volume.yaml": 'spec.containers[0].volumeMounts[0].name: Not found: "share"',
    "minik8s/pod-antiaffinity.yaml": "topologyKey: Required value: can not be empty",
}
# What the controller of ServiceCIDRs says of a new one; it does not run here.
READY = """{"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "",
"message": "", "lastTransitionTime": "2026-11-16T00:00:00Z"}]}}"""
# The profile each file describes, the scorers it names, and who binds.
SCHEDULER_CONFIGURATIONS = {
    "kubehice/scheduler-configv1.yml": ("kubehice-scheduler", set(), "Hicev1"),
    "kubehice/scheduler-configv2.yml": ("kubehice-scheduler", {"Hicev2"}, "Hicev2"),
    "realusage/scheduler-config.yaml": (
        "mem-real-usage-scheduler",
        {"MemRealUsage"},
        "DefaultBinder",
    ),
    "realusage/load-aware-config.yaml": ("load-aware-scheduler", {"LoadAware"}, "DefaultBinder"),
    "realusage/by-use-alone-config.yaml": (
        "by-use-alone-scheduler",
        {"LoadAware"},
        "DefaultBinder",
    ),
    "realusage/overcommit-config.yaml": ("overcommit-scheduler", {"Overcommit"}, "DefaultBinder"),
    "networkaware/scheduler-config.yaml": (
        "network-aware-scheduler",
        {"NetworkAware"},
        "DefaultBinder",
    ),
    "minik8s/scheduler-config.yaml": ("minik8s-scheduler", {"Minik8s"}, "DefaultBinder"),
    "gangs/scheduler-config.yaml": ("default-scheduler", set(), "DefaultBinder"),
}
IMAGE_TABLES = ("kubehice/images.yaml",)
_OTHERS = {
    *MINIK8S,
    *SCHEDULER_CONFIGURATIONS,
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
def kubectl_to(kubectl_binary, tmp_path_factory):
    """Calls kubectl on a server."""
    home = tmp_path_factory.mktemp("home")

    def call(server, *arguments):
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

    return call


@pytest.fixture(scope="module")
def complaints(server, kubectl_to):
    """What kubectl says of each file when all of them are sent at once, for show."""

    def kubectl(*arguments):
        return kubectl_to(server, *arguments)

    for namespace in sorted(_namespaces()):
        assert kubectl("create", "namespace", namespace).returncode == 0
    for path in NEEDED_FIRST.values():
        assert kubectl("create", "-f", str(EXAMPLES / path)).returncode == 0
    ready = ("--subresource=status", "--type=merge", f"--patch={READY}")
    assert kubectl("patch", "servicecidr", "minik8s", *ready).returncode == 0
    plain = kubectl("create", "--dry-run=server", *_named(PLAIN))
    # Without kubectl's own checks, which know nothing of kinds that the server does not have.
    others = kubectl("create", "--dry-run=server", "--validate=ignore", *_named(MINIK8S))
    assert plain.stdout.count("created (server dry run)") >= len(PLAIN) - 3, plain.stderr
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


@pytest.mark.parametrize(("name", "words"), MINIK8S.items())
def test_what_is_not_kubernetes_is_refused_with_clear_words(complaints, name, words):
    assert complaints[name]
    assert [c for c in complaints[name] if words not in c] == []


def test_kubectl_names_objects_by_uid_on_a_server_that_reads_minik8s(make_server, kubectl_to):
    server = make_server("memory", "--compat", "minik8s")
    kubectl_to(server, "create", "configmap", "one", "--from-literal=a=b")
    kubectl_to(server, "create", "configmap", "two")
    template = "--output=jsonpath={.metadata.uid}"
    uid = kubectl_to(server, "get", "configmap", "one", template).stdout

    shown = kubectl_to(server, "get", "configmap", uid)

    assert shown.stdout.splitlines()[1].split()[0] == "one"
    assert f'"{uid}" read as the UID of "one"' in shown.stderr
    assert "a:\n----\nb" in kubectl_to(server, "describe", "configmap", uid).stdout
    kubectl_to(server, "delete", "configmap", uid)
    left = kubectl_to(server, "get", "configmaps", "--output=name").stdout.split()
    assert left == ["configmap/two"]


def test_a_server_that_reads_minik8s_accepts_all_of_its_manifests(make_server, kubectl_to):
    server = make_server("memory", "--compat", "minik8s")
    made = kubectl_to(server, "create", *_named(MINIK8S))

    assert made.stdout.splitlines() == [
        "route.motley.io/dns-test created",
        "slurmjob.motley.io/matrix-sum created",
        "function.motley.io/shout created",
        "pod/succeed-failure created",
        "pod/arg-volume-test created",
        "pod/myapp-schedule-large created",
    ]
    said = made.stderr.splitlines()
    assert len(said) == 10  # kubectl says the same only once
    assert all(line.startswith("Warning: ") and "(--compat minik8s)" in line for line in said)
    # They go by their own kinds' names, too, and Kubernetes' Jobs stay what they are.
    shown = kubectl_to(server, "get", "dns,slurmjobs", "--output=name").stdout
    assert shown.split() == ["route.motley.io/dns-test", "slurmjob.motley.io/matrix-sum"]
    assert kubectl_to(server, "get", "jobs", "--output=name").stdout == ""
    job = kubectl_to(server, "create", "job", "x", "--image=busybox", "--output=name")
    assert (job.stdout, job.stderr) == ("job.batch/x\n", "")
    # Again, as an update: by server-side apply, and by kubectl's own apply where it compares.
    again = kubectl_to(server, "apply", "-f", str(EXAMPLES / "minik8s/pod.yaml"))
    assert again.stdout == "pod/succeed-failure configured\n"
    server_side = kubectl_to(
        server, "apply", "--server-side", "-f", str(EXAMPLES / "minik8s/gpu-job.yaml")
    )
    assert server_side.stdout == "slurmjob.motley.io/matrix-sum serverside-applied\n"


@pytest.mark.parametrize(("name", "expected"), SCHEDULER_CONFIGURATIONS.items())
def test_a_scheduler_configuration_makes_the_profile_it_describes(name, expected):
    configuration = profiles.parse((EXAMPLES / name).read_text())
    made = profiles.build(configuration, Handle(Columns(), SYSTEM, images.ImageTable()))

    scheduler_name, scorers, binder = expected
    assert list(made) == [scheduler_name]
    profile = made[scheduler_name]
    assert scorers <= {plugin.name for plugin, _ in profile.score}
    assert [plugin.name for plugin in profile.bind] == [binder]


@pytest.mark.parametrize("name", IMAGE_TABLES)
def test_an_image_table_is_loaded(name):
    table = images.load(EXAMPLES / name)

    assert table
